/* SPDX-License-Identifier: MIT */
/* Which addresses SPMT_SOCKET_IFNAME names, of a node that is made up here. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>

#include "spmt/address/interfaces.h"
#include "src/base/status.h"

struct given {
	const char *name, *address;
	unsigned flags;
};

static const struct given node[] = {
	{ "lo", NULL, IFF_UP | IFF_LOOPBACK },
	{ "lo", "127.0.0.1", IFF_UP | IFF_LOOPBACK },
	{ "lo", "::1", IFF_UP | IFF_LOOPBACK },
	{ "eth0", "10.1.0.5", IFF_UP },
	{ "eth0", "10.1.0.6", IFF_UP },
	{ "eth0", "fe80::5", IFF_UP },
	{ "eth0", "fd00:1::5", IFF_UP },
	{ "eth01", "10.2.0.5", IFF_UP },
	{ "eth1", "10.3.0.5", 0 },
	{ "docker0", "172.17.0.1", IFF_UP },
	{ "six0", "fe80::6", IFF_UP },
	{ "six0", "fd00:6::6", IFF_UP },
	{ "near0", "fe80::7", IFF_UP },
	{ "ib0", "192.168.7.5", IFF_UP },
};

enum { GIVEN = sizeof(node) / sizeof(node[0]) };

static struct ifaddrs list[GIVEN];
static union place_name names[GIVEN];

static void node_make(void)
{
	for (int i = 0; i < GIVEN; i++) {
		const char *text = node[i].address;
		bool six = text && strchr(text, ':');

		list[i] = (struct ifaddrs){ .ifa_next = i + 1 < GIVEN ? &list[i + 1] : NULL,
			.ifa_name = (char *)(uintptr_t)node[i].name,
			.ifa_flags = node[i].flags };
		if (!text)
			continue;
		names[i].any.sa_family = six ? AF_INET6 : AF_INET;
		cr_assert_eq(inet_pton(names[i].any.sa_family, text,
				     six ? (void *)&names[i].in6.sin6_addr
					 : (void *)&names[i].in.sin_addr),
			1);
		list[i].ifa_addr = &names[i].any;
	}
}

/* "10.1.0.5 fd00:1::5", or the sentence. */
static const char *chosen(const char *words, bool (*usable)(const struct place_address *))
{
	static char text[256];
	struct uid_place place;

	node_make();
	if (interfaces_choose(words, list, usable, &place))
		return status_sentence();
	cr_assert(place_is_sound(&place));
	*text = '\0';
	for (int i = 0; i < place_count(&place); i++) {
		char one[INET6_ADDRSTRLEN];

		address_text(&place.at[i], one);
		strcat(strcat(text, i ? " " : ""), one);
	}
	return text;
}

Test(interfaces, names_and_subnets)
{
	static const struct {
		const char *words, *place;
	} rows[] = {
		{ "eth0", "10.1.0.5 fd00:1::5" },
		{ "=eth0", "10.1.0.5 fd00:1::5" },
		{ "eth", "10.1.0.5 10.2.0.5 fd00:1::5" },
		{ "eth01,eth0", "10.2.0.5 10.1.0.5 fd00:1::5" },
		{ "nosuch0,ib", "192.168.7.5" },
		{ "six0", "fd00:6::6" },
		{ "six0,eth0", "fd00:6::6 10.1.0.5 fd00:1::5" },
		{ "lo", "127.0.0.1 ::1" },
		{ "10.1.0.0/24", "10.1.0.5 10.1.0.6" },
		{ "10.0.0.0/8", "10.1.0.5 10.1.0.6 10.2.0.5" },
		{ "10.2.0.0/15", "10.2.0.5" },
		{ "fd00::/8", "fd00:1::5 fd00:6::6" },
		{ "fd00:6::/32,10.2.0.0/16", "fd00:6::6 10.2.0.5" },
		{ "10.1.0.5/32,eth0", "10.1.0.5 fd00:1::5" },
		{ "0.0.0.0/0", "127.0.0.1 10.1.0.5 10.1.0.6" },
		{ "^docker,ib", "10.1.0.5 10.2.0.5 fd00:6::6" },
		{ "^eth0,six,ib", "172.17.0.1" },
		{ "^=eth0,docker,ib0,six0", "10.2.0.5 172.17.0.1" },
		{ "^10.0.0.0/8,fd00::/8,docker", "192.168.7.5" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		cr_expect_str_eq(chosen(rows[i].words, NULL), rows[i].place, "%s: %s",
			rows[i].words, chosen(rows[i].words, NULL));
}

static bool is_no_ten(const struct place_address *address)
{
	return address->bytes[0] != 10;
}

/* One that a socket cannot have now counts as if it were not there. */
Test(interfaces, unusable_addresses)
{
	cr_expect_str_eq(chosen("eth0", is_no_ten), "fd00:1::5");
}

/* In the order of the place. All of 127.0.0.0/8 is a node's, and of an interface that is down the addresses still are. */
Test(interfaces, those_that_are_here)
{
	static const struct place_address gone = { AF_INET, 0, { 10, 9, 0, 5 } },
					  down = { AF_INET, 0, { 10, 3, 0, 5 } },
					  near = { AF_INET, 0, { 127, 9, 0, 5 } },
					  six = { AF_INET6, 0, { 0xfd, 0, 0, 6, [15] = 6 } },
					  mapped = { AF_INET6, 0,
						  { [10] = 0xff, 0xff, 10, 1, 0, 5 } };
	struct uid_place here;

	node_make();
	interfaces_keep(list, &(struct uid_place){ .at = { six, gone, down } }, &here);
	cr_expect_eq(memcmp(&here, &(struct uid_place){ .at = { six, down } }, sizeof(here)), 0);
	interfaces_keep(list, &(struct uid_place){ .at = { gone, mapped, near } }, &here);
	cr_expect_eq(memcmp(&here, &(struct uid_place){ .at = { near } }, sizeof(here)), 0);
	interfaces_keep(NULL, &(struct uid_place){ .at = { six, down } }, &here);
	cr_expect_eq(place_count(&here), 0);
	cr_expect_eq(interfaces_here(&(struct uid_place){ .at = { gone, near } }, &here), 0);
	cr_expect_eq(place_count(&here), 1);
	cr_expect(place_has(&here, &near));
}

#define NONE                                                                                   \
	": no interface of that name or subnet is up and has an address that other nodes can " \
	"use; there are: lo 127.0.0.1, lo ::1, eth0 10.1.0.5, eth0 10.1.0.6, eth0 fd00:1::5, " \
	"eth01 10.2.0.5, docker0 172.17.0.1, six0 fd00:6::6, ib0 192.168.7.5"

/* Down, of one link alone, or not there. */
Test(interfaces, none_fits)
{
	static const char *const words[] = { "nosuch0", "eth1", "near0", "=eth", "10.3.0.0/16",
		"11.0.0.0/8", "^lo,eth,docker,six,ib" };
	struct uid_place place;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		const char *why = chosen(words[i], NULL);

		cr_expect(!strncmp(why, "SPMT_SOCKET_IFNAME=", 19), "%s", why);
		cr_expect(strstr(why, NONE), "%s", why);
		cr_expect_eq(interfaces_choose(words[i], list, NULL, &place), -ENODEV);
	}
}

Test(interfaces, words_that_are_none)
{
	static const char *const words[] = { "10.1.0.0/33", "10.1/16", "eth0,", "", "=", "^",
		"10.1.0.0/", "10.1.0.0/-1", "10.1.0.0/8x", "fd00::/129", "a/b",
		"a0123456789012345678901234567890123456789012345678901234567890123456789" };
	struct uid_place place;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		node_make();
		cr_expect_eq(
			interfaces_choose(words[i], list, NULL, &place), -EINVAL, "%s", words[i]);
		cr_expect(
			strstr(status_sentence(), "neither the name of an interface nor a subnet"),
			"%s", status_sentence());
	}
	cr_expect_eq(interfaces_choose("fe80::/64", list, NULL, &place), -EINVAL);
	cr_expect(strstr(status_sentence(),
		"other nodes cannot use the link-local addresses of \"fe80::/64\""));
}

Test(interfaces, places_that_are_unsound)
{
	const struct place_address good = { AF_INET, 0, { 10, 0, 0, 1 } };
	const struct uid_place bad[] = { { .at = { { AF_UNIX, 0, { 0 } } } },
		{ .at = { { AF_INET, 1, { 10 } } } }, { .at = { { AF_INET6, 0, { 0xfe, 0x80 } } } },
		{ .at = { { 0, 0, { 0 } }, good } }, { .at = { good, { 0, 0, { 1 } } } },
		{ .at = { good, good, { AF_INET6, 0, { 0xfe, 0xbf } } } } };

	cr_expect(place_is_sound(&(struct uid_place){ .at = { good, good, good } }));
	cr_expect(place_is_sound(&(struct uid_place){ .at = { { 0 } } }));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect_not(place_is_sound(&bad[i]), "no. %zu", i);
}

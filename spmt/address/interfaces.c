/* SPDX-License-Identifier: MIT */
#include "interfaces.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fault.h"
#include "src/base/status.h"
#include "tcp.h"

/* One word of the list. */
struct wish {
	char text[64];
	int bits; /* of the subnet; -1: a name */
	struct place_address subnet;
};

struct wishes {
	const char *all, *words; /* what was given; behind "^" and "=" */
	bool but, full;
	const struct ifaddrs *list;
	bool (*usable)(const struct place_address *address);
};

static size_t address_bytes(uint16_t family)
{
	return family == AF_INET ? sizeof(struct in_addr) : sizeof(struct in6_addr);
}

/* "10.1.0.0/16", "fd00::/8", or a name. -EINVAL: a slash, but no subnet. */
static int wish_parse(const char *word, size_t n, struct wish *wish)
{
	char *slash, *end = NULL;
	long bits;

	*wish = (struct wish){ .bits = -1 };
	if (!n || n >= sizeof(wish->text))
		return -EINVAL;
	memcpy(wish->text, word, n);
	slash = strchr(wish->text, '/');
	if (!slash)
		return 0;
	bits = slash[1] >= '0' && slash[1] <= '9' ? strtol(slash + 1, &end, 10) : -1;
	*slash = '\0';
	wish->subnet.family = strchr(wish->text, ':') ? AF_INET6 : AF_INET;
	if (bits < 0 || *end || (size_t)bits > 8 * address_bytes(wish->subnet.family) ||
		inet_pton(wish->subnet.family, wish->text, wish->subnet.bytes) != 1)
		return -EINVAL;
	wish->bits = (int)bits;
	return 0;
}

static bool in_subnet(const struct wish *wish, const struct place_address *address)
{
	int whole = wish->bits / 8, rest = wish->bits % 8;

	return wish->subnet.family == address->family &&
		!memcmp(wish->subnet.bytes, address->bytes, (size_t)whole) &&
		(!rest || (wish->subnet.bytes[whole] ^ address->bytes[whole]) >> (8 - rest) == 0);
}

/* ---- what fits -------------------------------------------------------------------------------- */

/* An address that other nodes may use; false: none. */
static bool address_take(
	const struct wishes *w, const struct ifaddrs *i, struct place_address *address)
{
	if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
		return false;
	address_of(i->ifa_addr, address);
	return address->family && !address_is_local(address) && (!w->usable || w->usable(address));
}

static bool is_interface(const struct ifaddrs *list, const char *name)
{
	while (list && strcmp(list->ifa_name, name) != 0)
		list = list->ifa_next;
	return list != NULL;
}

/* A name in full leaves those alone that only begin so. */
static bool is_called(const struct wishes *w, const struct wish *wish, const char *name)
{
	if (w->full || (!w->but && is_interface(w->list, wish->text)))
		return !strcmp(name, wish->text);
	return !strncmp(name, wish->text, strlen(wish->text));
}

static bool is_meant(const struct wishes *w, const struct wish *wish, const struct ifaddrs *i,
	const struct place_address *address)
{
	return wish->bits < 0 ? is_called(w, wish, i->ifa_name) : in_subnet(wish, address);
}

/* Whether an address of the interface, of the family, stands before `end`, NULL: anywhere. */
static bool has_earlier(const struct wishes *w, const struct ifaddrs *of, uint16_t family,
	const struct ifaddrs *end)
{
	struct place_address address;

	for (const struct ifaddrs *i = w->list; i && i != end; i = i->ifa_next)
		if (!strcmp(i->ifa_name, of->ifa_name) && address_take(w, i, &address) &&
			address.family == family)
			return true;
	return false;
}

/* In which round an interface gives this address: 0, 1, or 2, none. */
static int round_of(
	const struct wishes *w, const struct ifaddrs *i, const struct place_address *address)
{
	if (has_earlier(w, i, address->family, i))
		return 2;
	return address->family == AF_INET6 && has_earlier(w, i, AF_INET, NULL);
}

/* ---- the words --------------------------------------------------------------------------------- */

static int words_check(const struct wishes *w)
{
	for (const char *at = w->words;; at++) {
		size_t n = strcspn(at, ",");
		struct wish wish;

		if (wish_parse(at, n, &wish))
			return fail(-EINVAL,
				"SPMT_SOCKET_IFNAME=%s: \"%.*s\" is neither the name of an interface nor a subnet (10.1.0.0/16, fd00::/8)",
				w->all, (int)n, at);
		if (wish.bits >= 10 && address_is_local(&wish.subnet))
			return fail(-EINVAL,
				"SPMT_SOCKET_IFNAME=%s: other nodes cannot use the link-local addresses of \"%.*s\"",
				w->all, (int)n, at);
		at += n;
		if (!*at)
			return 0;
	}
}

static void take_meant(
	const struct wishes *w, const struct wish *wish, int round, struct uid_place *place)
{
	struct place_address address;

	for (const struct ifaddrs *i = w->list; i; i = i->ifa_next)
		if (address_take(w, i, &address) && is_meant(w, wish, i, &address) &&
			(wish->bits >= 0 ? 0 : round_of(w, i, &address)) == round)
			place_add(place, &address);
}

static bool is_left_out(
	const struct wishes *w, const struct ifaddrs *i, const struct place_address *address)
{
	bool out = i->ifa_flags & IFF_LOOPBACK;

	for (const char *at = w->words; !out; at++) {
		size_t n = strcspn(at, ",");
		struct wish wish;

		out = !wish_parse(at, n, &wish) && is_meant(w, &wish, i, address);
		at += n;
		if (!*at)
			break;
	}
	return out;
}

static void take_others(const struct wishes *w, int round, struct uid_place *place)
{
	struct place_address address;

	for (const struct ifaddrs *i = w->list; i; i = i->ifa_next)
		if (address_take(w, i, &address) && !is_left_out(w, i, &address) &&
			round_of(w, i, &address) == round)
			place_add(place, &address);
}

static void take_all(const struct wishes *w, int round, struct uid_place *place)
{
	if (w->but) {
		take_others(w, round, place);
		return;
	}
	for (const char *at = w->words;; at++) {
		size_t n = strcspn(at, ",");
		struct wish wish;

		if (!wish_parse(at, n, &wish))
			take_meant(w, &wish, round, place);
		at += n;
		if (!*at)
			return;
	}
}

/* "lo 127.0.0.1, net0 10.1.0.1" */
static void say_those_there(const struct wishes *w, char *text, size_t size)
{
	size_t used = 0;

	snprintf(text, size, "none");
	for (const struct ifaddrs *i = w->list; i; i = i->ifa_next) {
		char number[INET6_ADDRSTRLEN];
		struct place_address address;
		int n;

		if (!address_take(w, i, &address))
			continue;
		address_text(&address, number);
		n = snprintf(
			text + used, size - used, "%s%s %s", used ? ", " : "", i->ifa_name, number);
		if (n < 0 || (size_t)n >= size - used) {
			text[used] = '\0';
			return;
		}
		used += (size_t)n;
	}
}

int interfaces_choose(const char *words, const struct ifaddrs *list,
	bool (*usable)(const struct place_address *address), struct uid_place *place)
{
	struct wishes w = { .all = words, .words = words, .list = list, .usable = usable };
	struct uid_place found = { 0 };
	char there[256];
	int rc;

	w.but = *w.words == '^';
	w.words += w.but;
	w.full = *w.words == '=';
	w.words += w.full;
	rc = words_check(&w);
	if (rc)
		return rc;
	for (int round = 0; round < 2; round++)
		take_all(&w, round, &found);
	if (found.at[0].family) {
		*place = found;
		return 0;
	}
	say_those_there(&w, there, sizeof(there));
	return fail(-ENODEV,
		"SPMT_SOCKET_IFNAME=%s: no interface of that name or subnet is up and has an address that other nodes can use; there are: %s",
		words, there);
}

/* ---- this node's ------------------------------------------------------------------------------ */

/* Returns an errno. */
static int list_get(struct ifaddrs **list)
{
	if (fault_here(FAULT_FD))
		return fault_errno(FAULT_FD);
	return getifaddrs(list) ? errno : 0;
}

int interfaces_find(const char *what, const char *words, struct uid_place *place)
{
	struct ifaddrs *list;
	int err = list_get(&list), rc;

	if (err)
		return fail_call_errno(err, what, "the interfaces (SPMT_SOCKET_IFNAME=%s)", words);
	rc = interfaces_choose(words, list, tcp_can_have, place);
	freeifaddrs(list);
	return rc;
}

/* All of 127.0.0.0/8 is the loopback's, which has one of them alone. */
static bool list_has(const struct ifaddrs *list, const struct place_address *address)
{
	bool has = address->family == AF_INET && address->bytes[0] == 127;

	for (; list && !has; list = list->ifa_next) {
		struct place_address one = { .family = 0 };

		if (list->ifa_addr)
			address_of(list->ifa_addr, &one);
		has = !memcmp(&one, address, sizeof(one));
	}
	return has;
}

void interfaces_keep(
	const struct ifaddrs *list, const struct uid_place *place, struct uid_place *here)
{
	*here = (struct uid_place){ 0 };
	for (int i = 0; i < place_count(place); i++)
		if (list_has(list, &place->at[i]))
			place_add(here, &place->at[i]);
}

/* What can be bound says nothing: with net.ipv4.ip_nonlocal_bind that is every address. */
int interfaces_here(const struct uid_place *place, struct uid_place *here)
{
	struct ifaddrs *list;
	int err;

	*here = (struct uid_place){ 0 };
	if (!place_count(place))
		return 0;
	err = list_get(&list);
	if (err)
		return fail_call_errno(err, "spmt_init", "this node's addresses");
	interfaces_keep(list, place, here);
	freeifaddrs(list);
	return 0;
}

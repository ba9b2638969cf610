/* SPDX-License-Identifier: MIT */
#include "uid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/blake2s.h"
#include "src/base/env.h"
#include "src/base/fault.h"
#include "src/base/process.h"
#include "src/base/status.h"

/* FNV-1a: finds accidents and truncation. It does not defend against attackers; the secret does. */
static uint32_t uid_check(const struct uid *uid)
{
	const unsigned char *p = (const unsigned char *)uid->id;
	const unsigned char *end = (const unsigned char *)(uid + 1);
	uint32_t h = 2166136261u;

	while (p < end)
		h = (h ^ *p++) * 16777619u;
	return h;
}

static bool address_is_sound(const struct uid *u)
{
	if (!u->family)
		return true;
	return (u->family == AF_INET || u->family == AF_INET6) && u->port >= UID_PORT_LEAST &&
		u->port < UID_PORT_LEAST + UID_PORT_COUNT;
}

int uid_read(const char *what, const spmt_uid *bytes, struct uid *uid)
{
	struct uid u;

	memcpy(&u, bytes, sizeof(u));
	if (u.magic != UID_MAGIC)
		return fail_call(-EINVAL, what,
			"uid: not a uid (magic %016llx); make one with spmt_uid_create",
			(unsigned long long)u.magic);
	if (u.version != UID_VERSION)
		return fail_call(-EINVAL, what, "uid: version %u, this library knows %u", u.version,
			UID_VERSION);
	if (u.check != uid_check(&u) || !(u.id[0] | u.id[1]))
		return fail_call(-EINVAL, what, "uid: damaged (checksum %08x, expected %08x)",
			u.check, uid_check(&u));
	if (!address_is_sound(&u))
		return fail_call(-EINVAL, what,
			"uid: no address of a kind known here (family %u, port %u)", u.family,
			u.port);
	*uid = u;
	return 0;
}

uint16_t uid_port(const struct uid *uid, int i)
{
	return (uint16_t)(UID_PORT_LEAST +
		(uid->port - UID_PORT_LEAST + i * 1571) % UID_PORT_COUNT);
}

/* The port is not the old one: its world may still be there. */
static uint16_t first_port(const struct uid *u)
{
	return (uint16_t)(UID_PORT_LEAST + (u->id[0] >> 8) % UID_PORT_COUNT);
}

void uid_derive(const struct uid *from, const void *message, size_t size, struct uid *uid)
{
	const struct blake2s_part id[] = { { "spmt id", 7 }, { message, size } };
	const struct blake2s_part secret[] = { { "spmt secret", 11 }, { message, size } };
	struct uid u = *from;

	blake2s(from->secret, sizeof(from->secret), id, 2, u.id, sizeof(u.id));
	blake2s(from->secret, sizeof(from->secret), secret, 2, u.secret, sizeof(u.secret));
	u.id[0] |= 1;
	if (u.family)
		u.port = first_port(&u);
	u.check = uid_check(&u);
	*uid = u;
}

void uid_move(struct uid *uid, const struct uid_place *place)
{
	uid->family = place->family;
	uid->scope = place->scope;
	memcpy(uid->address, place->address, sizeof(uid->address));
	uid->port = uid->family ? first_port(uid) : 0;
	uid->check = uid_check(uid);
}

/* ---- making one ---------------------------------------------------------------------------- */

/* One word of the list: an interface by name, or those with an address in a subnet. */
struct wish {
	char text[64];
	int bits; /* of the subnet; -1: a name */
	uint16_t family;
	unsigned char address[16];
};

static size_t address_size(uint16_t family)
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
	wish->family = strchr(wish->text, ':') ? AF_INET6 : AF_INET;
	if (bits < 0 || *end || (size_t)bits > 8 * address_size(wish->family) ||
		inet_pton(wish->family, wish->text, wish->address) != 1)
		return -EINVAL;
	wish->bits = (int)bits;
	return 0;
}

static bool in_subnet(const struct wish *wish, const unsigned char *address)
{
	int whole = wish->bits / 8, rest = wish->bits % 8;

	return !memcmp(wish->address, address, (size_t)whole) &&
		(!rest || (wish->address[whole] ^ address[whole]) >> (8 - rest) == 0);
}

/* Takes an interface's address of the family, if there is one. */
static bool address_take(const struct ifaddrs *i, uint16_t family, struct uid *u)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;

	if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP))
		return false;
	memset(u->address, 0, sizeof(u->address));
	u->scope = 0;
	if (family == AF_INET) {
		memcpy(&in, i->ifa_addr, sizeof(in));
		memcpy(u->address, &in.sin_addr, sizeof(in.sin_addr));
	} else {
		memcpy(&in6, i->ifa_addr, sizeof(in6));
		memcpy(u->address, &in6.sin6_addr, sizeof(in6.sin6_addr));
		u->scope = in6.sin6_scope_id;
	}
	return true;
}

/* The first address of the family that is wished for. */
static bool address_find(
	const struct ifaddrs *list, const struct wish *wish, uint16_t family, struct uid *u)
{
	struct uid found = *u;

	for (; list; list = list->ifa_next) {
		if (wish->bits < 0 ? strcmp(list->ifa_name, wish->text) != 0
				   : wish->family != family)
			continue;
		if (!address_take(list, family, &found) ||
			(wish->bits >= 0 && !in_subnet(wish, found.address)))
			continue;
		*u = found;
		u->family = family;
		u->port = first_port(u);
		return true;
	}
	return false;
}

/* In the order of the words. */
static int address_choose(const struct ifaddrs *list, const char *words, struct uid *u)
{
	for (const char *at = words;; at++) {
		size_t n = strcspn(at, ",");
		struct wish wish;

		if (wish_parse(at, n, &wish))
			return fail(-EINVAL,
				"SPMT_SOCKET_IFNAME=%s: \"%.*s\" is neither the name of an interface nor a subnet (10.1.0.0/16, fd00::/8)",
				words, (int)n, at);
		if (address_find(list, &wish, AF_INET, u) || address_find(list, &wish, AF_INET6, u))
			return 0;
		at += n;
		if (!*at)
			break;
	}
	return fail(-ENODEV,
		"SPMT_SOCKET_IFNAME=%s: no interface of that name is up and has an address", words);
}

static int address_fill(const char *words, struct uid *u)
{
	struct ifaddrs *list = NULL;
	int err = fault_here(FAULT_FD) ? fault_errno(FAULT_FD) : 0, rc;

	if (!err && getifaddrs(&list))
		err = errno;
	if (err)
		return fail_call_errno(
			err, "spmt_uid_create", "the interfaces (SPMT_SOCKET_IFNAME=%s)", words);
	rc = address_choose(list, words, u);
	freeifaddrs(list);
	return rc;
}

static int uid_make(struct uid *u)
{
	const struct env *env;
	int rc = env_get(&env);

	*u = (struct uid){ .magic = UID_MAGIC, .version = UID_VERSION };
	if (!rc)
		rc = process_random(u->id, sizeof(u->id));
	if (!rc)
		rc = process_random(u->secret, sizeof(u->secret));
	if (rc)
		return rc;
	u->id[0] |= 1; /* never zero, which means "no world" */
	if (env->socket_ifname)
		rc = address_fill(env->socket_ifname, u);
	u->check = uid_check(u);
	return rc;
}

int uid_create(const char *what, spmt_uid *uid)
{
	struct uid u;
	int rc = uid_make(&u);

	if (rc)
		return fail_call(rc, what, "%s", status_sentence());
	memcpy(uid, &u, sizeof(u));
	return 0;
}

int spmt_uid_create(spmt_uid *uid)
{
	UNCANCELLED;

	return uid ? uid_create("spmt_uid_create", uid)
		   : fail_call(-EINVAL, "spmt_uid_create", "uid is NULL");
}

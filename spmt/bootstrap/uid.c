/* SPDX-License-Identifier: MIT */
#include "uid.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
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

/* ---- making one ---------------------------------------------------------------------------- */

static bool is_usable_address(const struct ifaddrs *i, const char *name, int family)
{
	return i->ifa_addr && i->ifa_addr->sa_family == family && !strcmp(i->ifa_name, name) &&
		i->ifa_flags & IFF_UP;
}

/* The interface's first address of the family. */
static bool address_find(
	const struct ifaddrs *list, const char *name, uint16_t family, struct uid *u)
{
	while (list && !is_usable_address(list, name, family))
		list = list->ifa_next;
	if (!list)
		return false;
	u->family = family;
	u->port = first_port(u);
	if (family == AF_INET) {
		struct sockaddr_in in;

		memcpy(&in, list->ifa_addr, sizeof(in));
		memcpy(u->address, &in.sin_addr, sizeof(in.sin_addr));
	} else {
		struct sockaddr_in6 in;

		memcpy(&in, list->ifa_addr, sizeof(in));
		memcpy(u->address, &in.sin6_addr, sizeof(in.sin6_addr));
		u->scope = in.sin6_scope_id;
	}
	return true;
}

static int address_fill(const char *name, struct uid *u)
{
	struct ifaddrs *list = NULL;
	int err = fault_here(FAULT_FD) ? fault_errno(FAULT_FD) : 0;
	bool found;

	if (!err && getifaddrs(&list))
		err = errno;
	if (err)
		return fail_call_errno(
			err, "spmt_uid_create", "the interfaces (SPMT_SOCKET_IFNAME=%s)", name);
	found = address_find(list, name, AF_INET, u) || address_find(list, name, AF_INET6, u);
	freeifaddrs(list);
	if (!found)
		return fail(-ENODEV,
			"SPMT_SOCKET_IFNAME=%s: no interface of that name is up and has an address",
			name);
	return 0;
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

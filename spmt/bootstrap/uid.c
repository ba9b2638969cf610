/* SPDX-License-Identifier: MIT */
#include "uid.h"

#include <errno.h>
#include <string.h>

#include "spmt/address/interfaces.h"
#include "src/base/blake2s.h"
#include "src/base/env.h"
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

static bool port_is_sound(const struct uid *u)
{
	return !u->zero &&
		(!uid_travels(u) ||
			(u->port >= PLACE_PORT_LEAST &&
				u->port < PLACE_PORT_LEAST + PLACE_PORT_COUNT));
}

bool uid_travels(const struct uid *uid)
{
	return uid->place.at[0].family != 0;
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
	if (!place_is_sound(&u.place) || !port_is_sound(&u))
		return fail_call(-EINVAL, what,
			"uid: no address of a kind known here (families %u, %u, %u, port %u)",
			u.place.at[0].family, u.place.at[1].family, u.place.at[2].family, u.port);
	*uid = u;
	return 0;
}

/* The port is not the old one: its world may still be there. */
static uint16_t first_port(const struct uid *u)
{
	return (uint16_t)(PLACE_PORT_LEAST + (u->id[0] >> 8) % PLACE_PORT_COUNT);
}

void uid_derive(const struct uid *from, const void *message, size_t size, struct uid *uid)
{
	const struct blake2s_part id[] = { { "spmt id", 7 }, { message, size } };
	size_t id_size = uid_travels(from) ? sizeof(from->id[0]) : sizeof(from->id);
	const struct blake2s_part secret[] = { { "spmt secret", 11 }, { message, size } };
	struct uid u = *from;

	blake2s(from->secret, sizeof(from->secret), id, 2, u.id, id_size);
	blake2s(from->secret, sizeof(from->secret), secret, 2, u.secret, sizeof(u.secret));
	u.id[0] |= 1;
	if (uid_travels(&u))
		u.port = first_port(&u);
	u.check = uid_check(&u);
	*uid = u;
}

/* ---- where it was made ------------------------------------------------------------------------ */

/* What stands for this node in the ids of uids; false: nothing does. */
static bool node_mark(uint64_t *mark)
{
	static const unsigned char unknown[16];
	unsigned char host[16];
	const struct blake2s_part node[] = { { "spmt node", 9 }, { host, sizeof(host) } };

	if (process_host(host) || !memcmp(host, unknown, sizeof(host)))
		return false;
	process_network(host);
	blake2s(NULL, 0, node, 2, mark, sizeof(*mark));
	return true;
}

bool uid_is_from_here(const struct uid *uid)
{
	uint64_t mark;
	bool is;
	KEEPS_SENTENCE;

	is = node_mark(&mark) && uid->id[1] == mark;
	return is;
}

void uid_move(struct uid *uid, const struct uid_place *place)
{
	uid->place = *place;
	uid->id[1] = 0;
	uid->port = uid_travels(uid) ? first_port(uid) : 0;
	uid->check = uid_check(uid);
}

/* ---- making one ---------------------------------------------------------------------------- */

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
		rc = interfaces_find("spmt_uid_create", env->socket_ifname, &u->place);
	if (uid_travels(u)) {
		(void)node_mark(&u->id[1]);
		u->port = first_port(u);
	}
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

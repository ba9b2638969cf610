/* SPDX-License-Identifier: MIT */
#include "uid.h"

#include <errno.h>
#include <string.h>

#include "../src/process.h"
#include "../src/status.h"

/* FNV-1a: finds accidents and truncation. It is no defence: the secret is. */
static uint32_t uid_check(const struct uid *uid)
{
	const unsigned char *p = (const unsigned char *)uid->id;
	const unsigned char *end = (const unsigned char *)(uid + 1);
	uint32_t h = 2166136261u;

	while (p < end)
		h = (h ^ *p++) * 16777619u;
	return h;
}

int uid_read(const char *what, const spmt_uid *bytes, struct uid *uid)
{
	struct uid u;

	memcpy(&u, bytes, sizeof(u));
	if (u.magic != UID_MAGIC)
		return fail(-EINVAL,
			"%s: uid: not a uid (magic %016llx); make one with spmt_uid_create", what,
			(unsigned long long)u.magic);
	if (u.version != UID_VERSION)
		return fail(-EINVAL, "%s: uid: version %u, this library knows %u", what, u.version,
			UID_VERSION);
	if (u.check != uid_check(&u) || !(u.id[0] | u.id[1]))
		return fail(-EINVAL, "%s: uid: damaged (checksum %08x, expected %08x)", what,
			u.check, uid_check(&u));
	*uid = u;
	return 0;
}

int spmt_uid_create(spmt_uid *uid)
{
	struct uid u = { .magic = UID_MAGIC, .version = UID_VERSION };
	int rc;

	if (!uid)
		return fail(-EINVAL, "spmt_uid_create: uid is NULL");
	rc = process_random(u.id, sizeof(u.id));
	if (!rc)
		rc = process_random(u.secret, sizeof(u.secret));
	if (rc)
		return rc;
	u.id[0] |= 1; /* never zero, which means "no world" */
	u.check = uid_check(&u);
	memcpy(uid, &u, sizeof(u));
	return 0;
}

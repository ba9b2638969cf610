/* SPDX-License-Identifier: MIT */
/* Any 128 bytes as a uid, with a checksum that is put right every other time. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "spmt/bootstrap/uid.h"
#include "src/base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool promise)
{
	if (!promise)
		abort();
}

/* FNV-1a over what follows the checksum, as spmt/bootstrap/uid.c says. */
static void put_right(struct uid *uid)
{
	const unsigned char *p = (const unsigned char *)uid->id;
	uint32_t h = 2166136261u;

	while (p < (const unsigned char *)(uid + 1))
		h = (h ^ *p++) * 16777619u;
	uid->magic = UID_MAGIC;
	uid->version = UID_VERSION;
	uid->check = h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uid in = { 0 }, out;
	spmt_uid bytes;

	if (!size)
		return 0;
	memcpy(&in, data + 1, size - 1 < sizeof(in) ? size - 1 : sizeof(in));
	if (data[0] & 1)
		put_right(&in);
	memcpy(&bytes, &in, sizeof(in));
	if (uid_read("fuzz", &bytes, &out)) {
		need(*status_sentence());
		return 0;
	}
	need(!memcmp(&in, &out, sizeof(in)));
	need(out.id[0] | out.id[1]);
	for (int i = 0; i < place_count(&out.place); i++) {
		const struct place_address *a = &out.place.at[i];

		need(a->family == AF_INET || a->family == AF_INET6);
		need(!address_is_local(a));
	}
	for (int i = 0; uid_travels(&out) && i < PLACE_PORTS; i++) {
		need(place_port(out.port, i) >= PLACE_PORT_LEAST);
		need(place_port(out.port, i) < PLACE_PORT_LEAST + PLACE_PORT_COUNT);
		for (int k = 0; k < i; k++)
			need(place_port(out.port, i) != place_port(out.port, k));
	}
	return 0;
}

/* SPDX-License-Identifier: MIT */
#include "tests/xla/closes.h"

#include <stdatomic.h>

#include "tests/lib/ranks.h"
#include "tests/xla/xla.h"

enum { DEVICES = 3, TIMEOUT_MS = 2000, SLOW_MS = 50, WORLD = 1 << 21 };

/* The program goes on for a while, on the thread that fails the call. */
static void told_slowly(void *told, int code, const char *sentence)
{
	(void)code;
	(void)sentence;
	atomic_fetch_add((_Atomic int *)told, 1);
	sleep_ms(SLOW_MS);
}

/* The world ends as soon as all devices are told, though nobody comes to the failed call any more. */
int closed_as_a_call_fails(void)
{
	static const int32_t devices[DEVICES] = { 0, 1, 2 };
	struct spmt_xla_attr attr = { .size = sizeof(attr),
		.id = WORLD,
		.groups = 1,
		.nranks = DEVICES,
		.devices = devices,
		.backend = "host",
		.heap_size = 2 << 20,
		.timeout_ms = TIMEOUT_MS };
	int32_t in[1] = { 1 }, out[DEVICES];
	struct xla_site site;
	_Atomic int told = 0;
	int64_t begin;

	if (spmt_xla_open(&attr))
		return ranks_fail("%s", spmt_xla_last_error());
	REQUIRE_EQ(xla_instantiate(&site, spmt_xla_all_reduce, WORLD, SPMT_OP_SUM, -1, NULL, 0), 0);
	for (int d = 0; d < DEVICES - 1; d++) {
		struct xla_call call = { &site, d, 1, { { FFI_S32, in, 1, 0 } },
			{ FFI_S32, &out[d], 1, 0 }, 1, NULL };

		REQUIRE(!xla_execute(&call, told_slowly, &told));
	}
	while (!atomic_load(&told))
		sleep_ms(1);
	begin = now_ns();
	REQUIRE_EQ(spmt_xla_close(WORLD), 0);
	REQUIRE(now_ns() - begin < TIMEOUT_MS * 1000000ll);
	REQUIRE_EQ(atomic_load(&told), DEVICES - 1);
	xla_forget(&site);
	return 0;
}

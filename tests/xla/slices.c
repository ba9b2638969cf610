/* SPDX-License-Identifier: MIT */
#include "tests/xla/slices.h"

#include <pthread.h>
#include <stdio.h>

#include "tests/lib/ranks.h"
#include "tests/xla/xla.h"

enum { DEVICES = 8, ROWS = 3, ARRAY = 10, COLS = 4 };

static int64_t slice_runs = 1 << 20;

static int slices_open(int64_t *id)
{
	static int64_t opened = 1 << 20;
	static const int32_t devices[DEVICES] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct spmt_xla_attr attr = { .size = sizeof(attr),
		.id = ++opened,
		.groups = 1,
		.nranks = DEVICES,
		.devices = devices,
		.backend = "host",
		.heap_size = 2 << 20,
		.timeout_ms = 60000 };

	*id = attr.id;
	if (spmt_xla_open(&attr))
		return ranks_fail("%s", spmt_xla_last_error());
	return 0;
}

struct slice {
	struct xla_site *site;
	int32_t array[ARRAY * COLS], rows[ROWS * COLS], out[ARRAY * COLS];
	int64_t run;
	int index, get, code;
	char sentence[256];
};

static void *slice_main(void *arg)
{
	struct slice *s = arg;
	struct xla_call call = { .site = s->site, .device = s->index, .run = s->run, .nargs = 2 };

	for (int i = 0; i < ARRAY * COLS; i++)
		s->array[i] = 1000 * s->index + i;
	for (int i = 0; i < ROWS * COLS; i++)
		s->rows[i] = -1000 * s->index - i - 1;
	call.args[0] = (struct xla_array){ FFI_S32, s->array, ARRAY, COLS };
	call.args[1] = (struct xla_array){ FFI_S32, s->rows, ROWS, COLS };
	call.ret = (struct xla_array){ FFI_S32, s->out, s->get ? ROWS : ARRAY, COLS };
	s->code = xla_wait(&call);
	snprintf(s->sentence, sizeof(s->sentence), "%s", xla_sentence());
	return NULL;
}

static int slices_call(struct slice *slices, struct xla_site *site, int get)
{
	pthread_t threads[DEVICES];

	slice_runs++;
	for (int i = 0; i < DEVICES; i++) {
		slices[i].site = site;
		slices[i].index = i;
		slices[i].get = get;
		slices[i].run = slice_runs;
		REQUIRE_EQ(pthread_create(&threads[i], NULL, slice_main, &slices[i]), 0);
	}
	for (int i = 0; i < DEVICES; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < DEVICES; i++)
		if (slices[i].code)
			return ranks_fail("device %d: %s", i, slices[i].sentence);
	return 0;
}

/* Ranks 0 and 3 write to rank 5, others by one further, rank 7 nowhere; all but rank 2 get, two of them of rank 6. */
int slices_move(void)
{
	static const int64_t to[DEVICES] = { 5, 2, 3, 5, 4, 6, 0, -1 },
			     of[DEVICES] = { 6, 1, -1, 0, 6, 7, 2, 3 },
			     start[DEVICES] = { 0, 7, 1, 5, 2, 7, 0, 4 };
	static struct slice all[DEVICES];
	struct xla_site put, get;
	int64_t world;

	TRY(slices_open(&world));
	REQUIRE_EQ(xla_instantiate_slice(&put, spmt_xla_put, world, "to", to, start, DEVICES), 0);
	REQUIRE_EQ(xla_instantiate_slice(&get, spmt_xla_get, world, "of", of, start, DEVICES), 0);
	TRY(slices_call(all, &put, 0));
	for (int d = 0; d < DEVICES; d++)
		for (int i = 0; i < ARRAY * COLS; i++) {
			int32_t want = 1000 * d + i;

			for (int s = 0; s < DEVICES; s++) {
				int at = i - (int)start[s] * COLS;

				if (to[s] == d && at >= 0 && at < ROWS * COLS)
					want = -1000 * s - at - 1;
			}
			REQUIRE_EQ(all[d].out[i], want);
		}
	TRY(slices_call(all, &get, 1));
	for (int d = 0; d < DEVICES; d++)
		for (int i = 0; i < ROWS * COLS; i++)
			REQUIRE_EQ(all[d].out[i],
				of[d] < 0 ? -1000 * d - i - 1 : 1000 * of[d] + start[d] * COLS + i);
	REQUIRE_EQ(spmt_xla_close(world), 0);
	xla_forget(&put);
	xla_forget(&get);
	return 0;
}

static int wrong_slice(int64_t world, ffi_handler *handler, const int64_t *ranks,
	const int64_t *start, const char *word)
{
	static int32_t array[ARRAY * COLS], rows[ROWS * COLS], out[ARRAY * COLS];
	bool get = handler == spmt_xla_get;
	struct xla_site site;
	struct xla_call call = { &site, 0, ++slice_runs,
		{ { FFI_S32, array, ARRAY, COLS }, { FFI_S32, rows, ROWS, COLS } },
		{ FFI_S32, out, get ? ROWS : ARRAY, COLS }, 2, NULL };

	REQUIRE_EQ(xla_instantiate_slice(
			   &site, handler, world, get ? "of" : "to", ranks, start, DEVICES),
		0);
	REQUIRE_EQ(xla_wait(&call), FFI_INVALID_ARGUMENT);
	if (!strstr(xla_sentence(), word))
		return ranks_fail("no \"%s\": %s", word, xla_sentence());
	xla_forget(&site);
	return 0;
}

int slices_wrong(void)
{
	static const int64_t one[DEVICES] = { 1, 1, -1, -1, -1, -1, -1, -1 },
			     none[DEVICES] = { 9, 0, 0, 0, 0, 0, 0, 0 },
			     apart[DEVICES] = { 0, 3, -5 }, near[DEVICES] = { 0, 2 },
			     far[DEVICES] = { 8 }, before[DEVICES] = { -1 };
	int64_t world;

	TRY(slices_open(&world));
	TRY(wrong_slice(
		world, spmt_xla_put, one, near, "ranks 0 and 1 write the same rows of rank 1"));
	TRY(wrong_slice(world, spmt_xla_put, one, far, "3 rows from row 8 on"));
	TRY(wrong_slice(world, spmt_xla_get, one, before, "3 rows from row -1 on"));
	TRY(wrong_slice(world, spmt_xla_get, none, apart, "of[0] is no rank"));
	TRY(wrong_slice(world, spmt_xla_put, none, apart, "to[0] is no rank"));
	TRY(wrong_slice(world, spmt_xla_put, NULL, apart, "attribute to has 0 entries"));
	TRY(wrong_slice(world, spmt_xla_get, one, NULL, "attribute start has 0 entries"));
	REQUIRE_EQ(spmt_xla_close(world), 0);
	return 0;
}

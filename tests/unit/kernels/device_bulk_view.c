/* SPDX-License-Identifier: MIT */
/* Ordinary puts and gets by a view that was handed shared memory, over a model of the engine (engine_model.c). */
#define SPMTD_BULK_MODEL 1
#define SPMTD_BULK_BY_VIEW 1
#define SPMTD_BULK_LEAST 64
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "spmt.h"
#include "tests/lib/device/engine_model.h"
#include "tests/lib/device/plain_views.h"

enum { RANKS = 3, HEAP = 32768, SRC = 1024, DST = 16384, SIG = 64, LEAST = SPMTD_BULK_LEAST };

static struct views world;
static struct spmt_view me;
static char before[RANKS * HEAP];
static char shared[4 * 32768 + 128] __attribute__((aligned(128)));

static void open_world(void)
{
	cr_assert_eq(views_open(&world, RANKS, HEAP, true), 0);
	me = view_of(&world, 1);
	engine = (struct engine){ .reaches = true, .seed = 1 };
}

static void close_world(void)
{
	views_close(&world);
}

TestSuite(device_bulk_view, .init = open_world, .fini = close_world, .timeout = 120);

static char *at(int pe, size_t off)
{
	return views_heap(&world, pe) + off;
}

static char *expected(int pe, size_t off)
{
	return before + (size_t)pe * HEAP + off;
}

static void scramble_all(uint32_t seed)
{
	for (size_t i = 0; i < RANKS * HEAP; i++) {
		seed = seed * 1664525u + 1013904223u;
		before[i] = (char)(seed >> 24);
	}
	for (int pe = 0; pe < RANKS; pe++)
		memcpy(at(pe, 0), before + (size_t)pe * HEAP, HEAP);
}

/* All is where it has to be, and the engine has nothing left to do. */
static void check_all(const char *what, size_t n)
{
	cr_assert_eq(engine.nstores, 0, "%s of %zu bytes: stores are on their way", what, n);
	for (int pe = 0; pe < RANKS; pe++)
		cr_assert(!memcmp(at(pe, 0), expected(pe, 0), HEAP), "%s of %zu bytes: rank %d",
			what, n, pe);
}

static int open_bars(void)
{
	int n = 0;

	for (int i = 0; i < BARS; i++)
		n += engine.bars[i].open;
	return n;
}

static int begin(bool warp, struct spmt_view *v, size_t bytes)
{
	return warp ? spmtd_view_bulk_warp(v, shared, bytes) : spmtd_view_bulk(v, shared, bytes);
}

static void end(bool warp, struct spmt_view *v)
{
	if (warp)
		spmtd_view_bulk_end_warp(v);
	else
		spmtd_view_bulk_end(v);
	cr_assert_eq(v->bulk, 0);
	cr_assert_eq(open_bars(), 0, "a barrier is left");
}

/* ---- the calls -------------------------------------------------------------------------------- */

enum {
	PUT,
	GET,
	PUT_NBI,
	GET_NBI,
	PUT_SIGNAL,
	PUT_TYPED,
	GET_TYPED,
	MEM_PUT,
	MEM_GET,
	MEM_SIGNAL,
	CALLS
};

static struct spmt_mem_view buffer(struct spmtd_mem_peer *parts)
{
	for (int pe = 0; pe < RANKS; pe++)
		parts[pe] = (struct spmtd_mem_peer){ (uintptr_t)at(pe, 0), HEAP };
	return (struct spmt_mem_view){
		.size = sizeof(struct spmt_mem_view), .pe = 1, .npes = RANKS, .peers = parts
	};
}

#define BY(warp, call, ...) ((warp) ? call##_warp(__VA_ARGS__) : call(__VA_ARGS__))
static void one_call(
	int call, bool warp, const struct spmt_view *v, size_t src, size_t dst, size_t n)
{
	struct spmtd_mem_peer parts[RANKS];
	struct spmt_mem_view m = buffer(parts);
	uint64_t *sig = (uint64_t *)(void *)at(1, SIG), value = 0;
	bool gets = call == GET || call == GET_NBI || call == GET_TYPED || call == MEM_GET;

	if (gets)
		memcpy(expected(1, dst), expected(2, src), n);
	else
		memcpy(expected(2, dst), expected(1, src), n);
	switch (call) {
	case PUT:
		BY(warp, spmtd_putmem, v, at(1, dst), at(1, src), n, 2);
		break;
	case GET:
		BY(warp, spmtd_getmem, v, at(1, dst), at(1, src), n, 2);
		break;
	case PUT_NBI:
		BY(warp, spmtd_putmem_nbi, v, at(1, dst), at(1, src), n, 2);
		break;
	case GET_NBI:
		BY(warp, spmtd_getmem_nbi, v, at(1, dst), at(1, src), n, 2);
		break;
	case PUT_TYPED:
		BY(warp, spmtd_uint8_put, v, (uint8_t *)at(1, dst), (uint8_t *)at(1, src), n, 2);
		break;
	case GET_TYPED:
		BY(warp, spmtd_uint8_get, v, (uint8_t *)at(1, dst), (uint8_t *)at(1, src), n, 2);
		break;
	case MEM_PUT:
		BY(warp, spmtd_mem_putmem, v, &m, dst, at(1, src), n, 2);
		break;
	case MEM_GET:
		BY(warp, spmtd_mem_getmem, v, at(1, dst), &m, src, n, 2);
		break;
	default:
		value = n + 77;
		memcpy(expected(2, SIG), &value, sizeof(value));
		if (call == MEM_SIGNAL)
			BY(warp, spmtd_mem_putmem_signal, v, &m, dst, at(1, src), n, sig, value,
				SPMT_SIGNAL_SET, 2);
		else
			BY(warp, spmtd_putmem_signal, v, at(1, dst), at(1, src), n, sig, value,
				SPMT_SIGNAL_SET, 2);
		break;
	}
}

/* One behind the other, so that stages go round; now and then by a copy of the view, which goes on where the other has been. */
Test(device_bulk_view, puts_and_gets)
{
	static const size_t sizes[] = { 0, 1, 16, 63, 64, 65, 100, 511, 512, 513, 1000, 1024, 4096,
		9999 };
	static const size_t rooms[] = { 4 * 128 + 128, 4 * 256 + 200, 4 * 4096 + 128 };

	for (int k = 0; k < 6; k++) {
		bool warp = k % 2;
		struct spmt_view copy;

		cr_assert_eq(begin(warp, &me, rooms[k / 2]), 0);
		copy = me;
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			for (int call = 0; call < CALLS; call++) {
				uint64_t loaded = engine.loaded_bytes;
				size_t odd = (i + (size_t)call) % 3 ? 0 : i, n = sizes[i];

				scramble_all((uint32_t)(n + (size_t)call));
				one_call(call, warp, i % 2 ? &me : &copy, SRC + odd, DST + odd, n);
				check_all("call", n);
				cr_assert_eq(engine.loaded_bytes > loaded,
					n >= (size_t)LEAST * (warp ? 8 : 1), "%zu bytes, call %d",
					n, call);
			}
		end(warp, &me);
	}
}

/* A put of another scope, and one whose sides lie differently, go by stores; and all do behind the end. */
Test(device_bulk_view, of_the_same_scope_alone)
{
	scramble_all(3);
	for (int warp = 0; warp < 2; warp++) {
		uint64_t loads = engine.loads;

		cr_assert_eq(begin(warp, &me, sizeof(shared)), 0);
		one_call(PUT, !warp, &me, SRC, DST, 4096);
		memcpy(expected(2, DST), expected(1, SRC), 4096);
		spmtd_putmem_block(&me, at(1, DST), at(1, SRC), 4096, 2);
		spmtd_getmem_nbi_block(&me, at(1, DST), at(1, DST), 4096, 2);
		memcpy(expected(1, DST), expected(2, DST), 4096);
		one_call(PUT, warp, &me, SRC + 1, DST, 4096);
		cr_assert_eq(engine.loads, loads, "by stores");
		one_call(PUT, warp, &me, SRC, DST, 4096);
		cr_assert_gt(engine.loads, loads, "by the engine");
		loads = engine.loads;
		end(warp, &me);
		one_call(PUT, warp, &me, SRC, DST, 4096);
		cr_assert_eq(engine.loads, loads);
		check_all("put", 4096);
	}
	engine.reaches = false;
	cr_assert_eq(begin(false, &me, sizeof(shared)), 0);
	one_call(PUT, false, &me, SRC, DST, 4096);
	end(false, &me);
	check_all("put of what the engine does not reach", 4096);
}

Test(device_bulk_view, a_put_wakes)
{
	cr_assert_eq(begin(false, &me, sizeof(shared)), 0);
	spmtd_putmem(&me, at(1, DST), at(1, SRC), 4096, 2);
	cr_assert_eq(views_wakes(&world, 2), 1);
	spmtd_getmem(&me, at(1, DST), at(1, SRC), 4096, 2);
	cr_assert_eq(views_wakes(&world, 2), 1);
	end(false, &me);
}

Test(device_bulk_view, wrong_arguments)
{
	scramble_all(9);
	cr_assert_eq(spmtd_view_bulk(&me, NULL, sizeof(shared)), SPMTD_INVALID);
	cr_assert_eq(spmtd_view_bulk(&me, shared + 64, 4096), SPMTD_INVALID);
	for (size_t bytes = 0; bytes < 4 * 128 + 128; bytes++)
		cr_assert_eq(spmtd_view_bulk_warp(&me, shared, bytes), SPMTD_INVALID);
	cr_assert_eq(me.bulk, 0);
	cr_assert_eq(open_bars(), 0);
	one_call(PUT, false, &me, SRC, DST, 4096);
	check_all("put by a view that has nothing", 4096);
	end(false, &me); /* nothing to end */
	cr_assert_eq(begin(false, &me, 4 * 128 + 128), 0);
	cr_assert_eq(begin(false, &me, sizeof(shared)), SPMTD_INVALID, "it has some");
	cr_assert_eq(open_bars(), 4);
	end(false, &me);
	cr_assert_eq(begin(true, &me, SIZE_MAX), 0, "no more than the largest stages");
	cr_assert_eq((uint32_t)me.bulk_shape, 32768);
}

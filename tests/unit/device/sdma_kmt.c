/* SPDX-License-Identifier: MIT */
/*
 * Queues of AMD's engines over a stand-in for libhsakmt, with nodes and links written as the driver lists them: two gfx942 side by side
 * over xGMI, one gfx1030 over PCIe.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "include/spmt.h"
#include "src/base/env.h"
#include "src/base/fault.h"
#include "src/base/status.h"
#include "src/device/sdma/abi_hsakmt.h"
#include "src/device/sdma/kmt.h"
#include "tests/fakes/fake_hsakmt.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/patterns.h"
#include "transports/sdma/kernel_queue.h"
#include "transports/sdma/ring.h"

static char nodes[64];
static struct fake_hsakmt *fake;

static void write_file(const char *text, const char *fmt, int a, int b)
{
	char path[128], rest[64];
	FILE *file;

	snprintf(rest, sizeof(rest), fmt, a, b);
	snprintf(path, sizeof(path), "%s/%s", nodes, rest);
	for (char *at = path + strlen(nodes) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		mkdir(path, 0700);
		*at = '/';
	}
	file = fopen(path, "w");
	cr_assert_not_null(file, "%s", path);
	fputs(text, file);
	fclose(file);
}

/* Of a CPU, which has node 0, or of a GPU, which has a render device. */
static void write_node(int node, const char *text)
{
	char gpu[256];

	snprintf(gpu, sizeof(gpu), "%sdrm_render_minor %d\n", text, 127 + node);
	write_file(node ? gpu : text, "%d/properties%.0d", node, 0);
	write_file(node ? "4711\n" : "0\n", "%d/gpu_id%.0d", node, 0);
	if (node)
		write_file("", "renderD%d%.0d", 127 + node, 0);
}

static void write_link(int node, int link, const char *text)
{
	write_file(text, "%d/io_links/%d/properties", node, link);
}

#define FIRST "0000:1b:00.0"
#define SECOND "0000:3d:00.0"
#define THIRD "0001:03:00.0"

static void init(void)
{
	snprintf(nodes, sizeof(nodes), "/tmp/spmt-kfd-XXXXXX");
	cr_assert_not_null(mkdtemp(nodes));
	write_node(0, "cpu_cores_count 64\nsimd_count 0\ngfx_target_version 0\nlocation_id 0\n");
	write_node(1,
		"cpu_cores_count 0\nlocation_id 6912\ndomain 0\nnum_sdma_engines 2\nnum_sdma_xgmi_engines 14\ngfx_target_version 90402\n");
	write_node(2,
		"cpu_cores_count 0\nlocation_id 15616\ndomain 0\nnum_sdma_engines 2\nnum_sdma_xgmi_engines 14\ngfx_target_version 90402\n");
	write_node(3,
		"cpu_cores_count 0\nlocation_id 768\ndomain 1\nnum_sdma_engines 2\ngfx_target_version 100300\n");
	write_link(1, 0, "type 2\nnode_from 1\nnode_to 0\nflags 1\n");
	write_link(1, 1,
		"type 11\nnode_from 1\nnode_to 2\nflags 1\nrecommended_sdma_engine_id_mask 40\n");
	write_link(2, 0, "type 2\nnode_from 2\nnode_to 0\nflags 13\n");
	write_link(2, 1, "type 11\nnode_from 2\nnode_to 1\nflags 1\n");
	write_link(3, 0, "type 2\nnode_from 3\nnode_to 0\nflags 0\n");
	write_file("type 2\nnode_from 3\nnode_to 1\nflags 1\n", "%d/p2p_links/%d/properties", 3, 0);
	setenv("SPMT_HSAKMT_LIB", FAKES "/fake-hsakmt.so", 1);
}

static void fini(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", nodes);
	cr_assert_eq(system(command), 0);
}

/* The library counts so many nodes. */
static void load(unsigned counted)
{
	void *library = dlopen(FAKES "/fake-hsakmt.so", RTLD_NOW);

	cr_assert_not_null(library);
	fake = dlsym(library, "fake_hsakmt");
	cr_assert_not_null(fake);
	fake->counted = counted;
	cr_assert_eq(kmt_load(), 0, "%s", status_sentence());
}

static int engine_find(
	const char *src, const char *dst, struct kfd_engine *e, char reason[DEVICE_REASON])
{
	char render[80];

	snprintf(render, sizeof(render), "%s/renderD", nodes);
	return kfd_engine(&(struct kfd_files){ nodes, render }, src, dst, e, reason);
}

static struct kfd_engine engine_of(const char *src, const char *dst)
{
	struct kfd_engine e;
	char reason[DEVICE_REASON];

	cr_assert_eq(engine_find(src, dst, &e, reason), 0, "%s", reason);
	return e;
}

/* ---- what the driver lists */

Test(sdma_kmt, an_engine_by_the_link, .init = init, .fini = fini)
{
	struct kfd_engine e = engine_of(FIRST, SECOND);
	char text[DEVICE_REASON];

	cr_assert_eq(e.src.node, 1);
	cr_assert_eq(e.dst.node, 2);
	cr_assert_eq(e.cpu.node, 0);
	cr_assert(e.xgmi);
	cr_assert_eq(e.engines, 40);
	cr_assert(e.format.atomics);
	cr_assert(e.signals);
	kmt_describe(&e, text);
	cr_assert_str_eq(text, "SDMA 4 engine for xGMI, node 1 to 2");
	e = engine_of(SECOND, FIRST);
	cr_assert(e.xgmi);
	cr_assert_eq(e.engines, 0);
	cr_assert_not(e.format.atomics, "the link to the CPU takes none");
	e = engine_of(THIRD, FIRST);
	cr_assert_not(e.xgmi);
	cr_assert(e.format.atomics);
	cr_assert(e.signals);
	write_file("type 2\nnode_from 3\nnode_to 1\nflags 9\n", "%d/p2p_links/%d/properties", 3, 0);
	e = engine_of(THIRD, FIRST);
	cr_assert_not(e.signals, "the link to the peer takes none");
	e = engine_of(FIRST, THIRD);
	cr_assert_not(e.signals, "no link is listed");
	e = engine_of(THIRD, FIRST);
	kmt_describe(&e, text);
	cr_assert_str_eq(text, "SDMA 5 engine for PCIe, node 3 to 1");
	e = engine_of(FIRST, FIRST);
	cr_assert_not(e.xgmi);
}

Test(sdma_kmt, packets_by_the_chip)
{
	static const struct {
		unsigned gfx, version, bits, unit;
	} chips[] = {
		{ 90000, 4, 22, 256 },
		{ 90006, 4, 22, 64 },
		{ 90008, 4, 22, 64 },
		{ 90010, 4, 30, 64 },
		{ 90012, 4, 22, 256 },
		{ 90402, 4, 22, 64 },
		{ 100100, 5, 22, 64 },
		{ 100300, 5, 30, 64 },
		{ 110000, 5, 30, 64 },
		{ 120001, 5, 30, 64 },
	};
	struct sdma_format f;

	for (size_t i = 0; i < ARRAY_SIZE(chips); i++) {
		cr_assert(kfd_format(chips[i].gfx, &f), "%u", chips[i].gfx);
		cr_assert_eq((unsigned)f.version, chips[i].version, "%u", chips[i].gfx);
		cr_assert_eq(f.count_bits, chips[i].bits, "%u", chips[i].gfx);
		cr_assert_eq(f.unit, chips[i].unit, "%u", chips[i].gfx);
	}
	cr_assert_not(kfd_format(80003, &f));
	cr_assert_not(kfd_format(100103, &f));
	cr_assert_not(kfd_format(130000, &f));
	cr_assert_not(kfd_format(0, &f));
}

static void no_engine(const char *src, const char *dst, const char *why)
{
	struct kfd_engine e;
	char reason[DEVICE_REASON] = "";

	cr_expect_lt(engine_find(src, dst, &e, reason), 0, "%s", why);
	cr_expect_not_null(strstr(reason, why), "%s: %s", why, reason);
}

Test(sdma_kmt, why_there_is_no_engine, .init = init, .fini = fini)
{
	no_engine("0000:1c:00.0", FIRST, "the driver lists 0 nodes at 0000:1c:00.0");
	no_engine(FIRST, "", "the driver lists 0 nodes at");
	write_node(4,
		"cpu_cores_count 0\nlocation_id 6912\ndomain 0\nnum_sdma_engines 2\ngfx_target_version 90402\n");
	no_engine(SECOND, FIRST, "the driver lists 2 nodes at " FIRST);
	write_node(4,
		"cpu_cores_count 0\nlocation_id 7168\ndomain 0\nnum_sdma_engines 2\ngfx_target_version 80003\n");
	no_engine("0000:1c:00.0", FIRST, "the engines of target 80003 take no packets of ours");
	write_node(4,
		"no line of properties\n\n\x01 1\nlocation_id\ngfx_target_version 90402\nlocation_id 7168\n");
	no_engine("0000:1c:00.0", FIRST, "node 4 has no SDMA engines");
	write_node(4, /* part 3 of the one that is node 1 */
		"cpu_cores_count 0\nlocation_id 805313280\ndomain 0\nnum_sdma_engines 2\ngfx_target_version 90402\n");
	no_engine(FIRST, SECOND, "the driver lists 2 nodes at " FIRST);
	write_node(0, "cpu_cores_count 0\n");
	no_engine(SECOND, THIRD, "the driver lists no node of a CPU");
	snprintf(nodes + strlen(nodes), 8, "/9");
	no_engine(FIRST, FIRST, "No such file or directory");
	nodes[strlen(nodes) - 2] = '\0';
}

/* ---- the library */

Test(sdma_kmt, no_library_is_said_each_time)
{
	setenv("SPMT_HSAKMT_LIB", "/nonexistent/libhsakmt.so", 1);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(kmt_load(), -ENOENT);
		cr_assert_not_null(strstr(status_sentence(), "no libhsakmt: /nonexistent"), "%s",
			status_sentence());
	}
}

/* A copy's queues are opened as soon as there is a descriptor again. */
Test(sdma_kmt, a_shortage_passes)
{
	struct rlimit limit, none;
	const struct env *env;
	int rc;

	setenv("SPMT_HSAKMT_LIB", FAKES "/fake-hsakmt.so", 1);
	cr_assert_eq(env_get(&env), 0);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none); /* no asserts from here on: they take descriptors */
	rc = kmt_load();
	setrlimit(RLIMIT_NOFILE, &limit);
	cr_assert_eq(rc, -EMFILE, "%d", rc);
	cr_assert_eq(kmt_load(), 0, "%s", status_sentence());
}

Test(sdma_kmt, a_library_that_lacks_calls_is_said)
{
	setenv("SPMT_HSAKMT_LIB", FAKES "/fake-pmix.so", 1);
	cr_assert_eq(kmt_load(), SPMT_ERR_UNSUPPORTED);
	cr_assert_str_eq(status_sentence(), "libhsakmt lacks hsaKmtOpenKFD");
}

Test(sdma_kmt, a_driver_that_is_not_there_is_said, .init = init, .fini = fini)
{
	void *library = dlopen(FAKES "/fake-hsakmt.so", RTLD_NOW);

	cr_assert_not_null(library);
	((struct fake_hsakmt *)dlsym(library, "fake_hsakmt"))->open_status = 20;
	cr_assert_eq(kmt_load(), -ENODEV);
	cr_assert_str_eq(status_sentence(), "libhsakmt does not open /dev/kfd: status 20");
}

/* ---- queues */

static const struct kfd_engine *wanted;

static int kmt_any_check(int src, int dst, char reason[DEVICE_REASON])
{
	(void)src;
	(void)dst;
	kmt_describe(wanted, reason);
	return 0;
}

static int kmt_any_open(int src, int dst, struct sdma_queue **queue)
{
	(void)src;
	(void)dst;
	return kmt_open(wanted, queue);
}

static bool kmt_any_reaches(int src, const void *ptr, size_t n)
{
	(void)src;
	(void)ptr;
	(void)n;
	return true;
}

static const struct device_sdma_ops kmt_ops = { kmt_any_check, kmt_any_open, kmt_close,
	kmt_doorbell, kmt_any_reaches };
static const struct backend kmt_backend = { .name = "kmt", .sdma = &kmt_ops };

static int copy_and_wait(struct sdma_ring *r, void *dst, const void *src, size_t n)
{
	struct sdma_span span;
	int rc = sdma_ring_copy(r, dst, src, n, 60000000000, NULL, &span);

	while (!rc && !(rc = sdma_ring_query(r, span.end)))
		usleep(100);
	return rc;
}

static void copies_by(const struct kfd_engine *e)
{
	static unsigned char src[70000], dst[70000];
	struct sdma_ring *r;

	wanted = e;
	fake->format = e->format;
	cr_assert_eq(sdma_ring_open(&kmt_backend, 0, 1, &r), 0, "%s", status_sentence());
	for (size_t n = 1; n < sizeof(src); n = n * 5 + 1) {
		pattern_fill(src, n, n);
		cr_assert_eq(copy_and_wait(r, dst, src, n), 1, "%s", status_sentence());
		cr_assert_eq(pattern_differs(dst, n, n), SIZE_MAX);
	}
	cr_assert_eq(fake->queues, 1);
	sdma_ring_close(r);
	cr_assert_eq(fake->queues + fake->memory + fake->mapped, 0);
}

Test(sdma_kmt, copies_by_the_engine_of_the_link, .init = init, .fini = fini)
{
	struct kfd_engine e;
	unsigned first;

	load(4);
	e = engine_of(FIRST, SECOND);
	copies_by(&e);
	cr_assert_eq(fake->type, KMT_QUEUE_SDMA_ENGINE);
	cr_assert_eq(fake->node, 1);
	cr_assert_eq(fake->flags, KMT_MEMORY_HOST | KMT_MEMORY_EXECUTE | KMT_MEMORY_ANYWHERE);
	first = fake->engine;
	copies_by(&e);
	cr_assert_eq(first + fake->engine, 3 + 5, "the recommended ones take turns: %u, %u", first,
		fake->engine);
	fake->no_engine = true;
	copies_by(&e);
	cr_assert_eq(fake->type, KMT_QUEUE_SDMA_XGMI);
	e = engine_of(SECOND, FIRST);
	copies_by(&e);
	cr_assert_eq(fake->type, KMT_QUEUE_SDMA_XGMI);
	cr_assert_eq(fake->node, 2);
	e = engine_of(THIRD, FIRST);
	copies_by(&e);
	cr_assert_eq(fake->type, KMT_QUEUE_SDMA);
	cr_assert_eq(fake->node, 3);
}

static void no_render_device(int node)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/renderD%d", nodes, 127 + node);
	cr_assert_eq(unlink(path), 0, "%s", path);
}

static void numbered(const struct kfd_engine *e, int src, int dst, unsigned counted)
{
	cr_expect_eq(e->src.number, src, "%d", e->src.number);
	cr_expect_eq(e->dst.number, dst, "%d", e->dst.number);
	cr_expect_eq(e->cpu.number, 0, "%d", e->cpu.number);
	cr_expect_eq(e->counted, counted, "%u", e->counted);
}

/* What the process may not open libhsakmt has no number for. */
Test(sdma_kmt, nodes_as_the_library_numbers_them, .init = init, .fini = fini)
{
	struct kfd_engine e = engine_of(THIRD, SECOND);
	char reason[DEVICE_REASON];

	numbered(&e, 3, 2, 4);
	no_render_device(1);
	e = engine_of(THIRD, SECOND);
	cr_assert_eq(e.src.node, 3);
	numbered(&e, 2, 1, 3);
	no_engine(FIRST, SECOND, "this process may not use node 1");
	no_engine(SECOND, FIRST, "this process may not use node 1");
	load(3);
	cr_assert_eq(kmt_check(&e, reason), 0, "%s", reason);
	copies_by(&e);
	cr_assert_eq(fake->node, 2);
	write_node(1, "cpu_cores_count 0\n");
	e = engine_of(THIRD, SECOND);
	numbered(&e, 3, 2, 4);
	cr_assert_eq(kmt_check(&e, reason), -ENODEV);
	cr_assert_str_eq(
		reason, "libhsakmt counts 3 nodes, and the driver lists 4 for this process");
}

/* As kernels do: packets, write pointer and doorbell by the functions of the device header. The engine hears of the register alone. */
static void fed_by(const struct kfd_engine *e, struct views *world)
{
	uint64_t *sig = (uint64_t *)(void *)views_heap(world, 1);
	char *mine = views_heap(world, 1), *theirs = views_heap(world, 0);
	struct spmt_view v = view_of(world, 1);
	struct spmtd_sdma table[2] = { { .ring = 0 } };
	struct sdma_queue *q;
	uint64_t *ends;

	fake->format = e->format;
	cr_assert_eq(kmt_open(e, &q), 0, "%s", status_sentence());
	ends = malloc(kernel_queue_room(q));
	cr_assert_not_null(ends);
	kernel_queue_fill(q, &table[0], ends, (uintptr_t)ends);
	v.sdma = table;
	for (uint64_t i = 1; i <= 300; i++) {
		size_t n = (size_t)(i * 37 % 3000);

		pattern_fill((unsigned char *)mine + 64, n, i);
		cr_assert_eq(spmtd_sdma_put(&v, mine + 65, mine + 64, n, 0), 0);
		cr_assert_eq(spmtd_sdma_signal(&v, sig, i, SPMT_SIGNAL_SET, 0), 0);
		cr_assert_eq(spmtd_sdma_quiet(&v, 0), 0);
		cr_assert_eq(pattern_differs((unsigned char *)theirs + 65, n, i), SIZE_MAX);
		cr_assert_eq(*(uint64_t *)(void *)theirs, i);
	}
	cr_assert_eq(kernel_queue_query(q, kernel_queue_told(q)), 1);
	free(ends);
	kmt_close(q);
}

Test(sdma_kmt, kernels_feed_a_queue, .init = init, .fini = fini)
{
	struct kfd_engine e;
	struct views world;

	load(4);
	cr_assert_eq(views_open(&world, 2, 1 << 16, true), 0);
	e = engine_of(FIRST, SECOND);
	fed_by(&e, &world);
	e = engine_of(SECOND, FIRST);
	fed_by(&e, &world);
	e = engine_of(THIRD, FIRST);
	fed_by(&e, &world);
	views_close(&world);
}

Test(sdma_kmt, what_a_queue_needs_is_refused_in_turn, .init = init, .fini = fini)
{
	struct kfd_engine e = engine_of(SECOND, FIRST);
	struct sdma_queue *q;
	int n, rc = -1;

	load(4);
	for (n = 1; rc; n++) {
		q = NULL;
		fake->fail_at = n;
		rc = kmt_open(&e, &q);
		cr_assert_eq(!rc, !!q);
		if (rc)
			cr_assert_not_null(strstr(status_sentence(), "libhsakmt: hsaKmt"), "%s",
				status_sentence());
		cr_assert_eq(fake->queues + fake->memory + fake->mapped, rc ? 0 : 5);
	}
	cr_assert_eq(n, 7, "two of memory, two mapped, a queue");
	fake->fail_at = 0;
	kmt_close(q);
	for (n = 1; n < 10; n++) {
		fault_arm(FAULT_ANY, (uint64_t)n);
		rc = kmt_open(&e, &q);
		fault_disarm();
		if (!rc)
			break;
		cr_assert_eq(fake->queues + fake->memory + fake->mapped, 0);
	}
	cr_assert_gt(n, 3);
	kmt_close(q);
}

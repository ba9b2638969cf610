/* SPDX-License-Identifier: MIT */
/* Ports: what does not fit, or is gone, is told and touches nothing; packets of any size. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "spmt_channel.h"
#include "tests/lib/clocks.h"
#include "tests/lib/device/kernel_checks.h"
#include "tests/lib/ranks.h"

enum { ROOM = 1024, RANKS = 2 };

#define KERNELS "kernels that are C functions"

struct ends {
	struct spmt_view view;
	struct spmt_port port; /* to the other rank */
	char *block;	       /* 2 * ROOM bytes, of which the port has the first half */
};

static int open_ends(spmt_comm *comm, spmt_mem *mem, struct ends *e)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr), .peer = 1 - spmt_rank(comm) };
	void *block;

	e->view.size = sizeof(e->view);
	e->port.size = sizeof(e->port);
	REQUIRE_OK(spmt_calloc(comm, 1, 2 * ROOM, &block));
	e->block = block;
	attr.remote = mem ? NULL : block;
	attr.remote_size = mem ? 0 : ROOM;
	attr.mem = mem;
	REQUIRE_OK(spmt_view_get(comm, &e->view));
	REQUIRE_OK(spmt_port_get(comm, &attr, &e->port));
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

/* ---- what does not fit ----------------------------------------------------------------------------- */

struct wrong {
	int (*post)(const struct ends *e);
	const char *says;
};

static int packets_at(const struct ends *e, size_t dst_off, size_t via_off, size_t size)
{
	char data[64];

	memset(data, 0x5a, sizeof(data));
	return spmtd_port_put_packets(&e->view, &e->port, dst_off, via_off, data, size, 1);
}

static int packets_via_beyond(const struct ends *e)
{
	return packets_at(e, 0, ROOM, 64);
}

static int packets_via_half_beyond(const struct ends *e)
{
	return packets_at(e, 0, ROOM - 16, 9);
}

static int packets_via_misaligned(const struct ends *e)
{
	return packets_at(e, 0, 8, 64);
}

static int packets_to_misaligned(const struct ends *e)
{
	return packets_at(e, 8, 0, 64);
}

/* Twice as many bytes are none, and 16. */
static int packets_of_all(const struct ends *e)
{
	return packets_at(e, 0, 0, SIZE_MAX);
}

static int packets_of_half(const struct ends *e)
{
	return packets_at(e, 0, 0, SIZE_MAX / 2 + 9);
}

static int signal_beyond(const struct ends *e)
{
	return spmtd_port_put_signal(&e->view, &e->port, ROOM, 0, 8);
}

static int flush_beyond(const struct ends *e)
{
	return spmtd_port_put_signal_flush(&e->view, &e->port, 0, ROOM, 8) == SPMTD_ABORTED ? 0 : 1;
}

static int post_wrong(spmt_comm *comm, void *arg)
{
	const struct wrong *w = arg;
	struct ends e = { .block = NULL };

	TRY(open_ends(comm, NULL, &e));
	if (spmt_rank(comm) == 0) {
		REQUIRE_EQ(w->post(&e), 0);
		REQUIRE_EQ(spmtd_port_flush(&e.view, &e.port), SPMTD_ABORTED);
	} else {
		REQUIRE_EQ(spmtd_port_wait(&e.view, &e.port), SPMTD_ABORTED);
	}
	REQUIRE_CODE(spmt_quiet(comm), -EINVAL);
	REQUIRE_SAYS(w->says);
	for (size_t i = w->post == packets_to_misaligned ? ROOM : 0; i < 2 * ROOM; i++)
		REQUIRE_EQ(e.block[i], 0);
	return 0;
}

Test(ports_bounds, what_does_not_fit_touches_nothing)
{
	static struct wrong wrong[] = {
		{ packets_via_beyond,
			"spmtd_port_put_packets: rank 0: offset 1024 with 128 bytes goes beyond this rank's buffer" },
		{ packets_via_half_beyond,
			"spmtd_port_put_packets: rank 0: offset 1008 with 32 bytes goes beyond this rank's buffer" },
		{ packets_via_misaligned, "packets of 16 bytes lie at multiples of that" },
		{ packets_to_misaligned, "packets of 16 bytes lie at multiples of that" },
		{ packets_of_all, "spmtd_port_put_packets: rank 0: offset 0" },
		{ packets_of_half, "spmtd_port_put_packets: rank 0: offset 0" },
		{ signal_beyond, "spmtd_port_put_signal: rank 0: offset 1024" },
		{ flush_beyond, "spmtd_port_put_signal_flush: rank 0: offset 1024" },
	};

	NEEDS_HOST(KERNELS);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		RANKS_OK(ranks_run(RANKS, NULL, post_wrong, &wrong[i]));
}

/* ---- what cannot come ---------------------------------------------------------------------------------- */

static int wait_wrong(spmt_comm *comm, void *arg)
{
	struct ends e = { .block = NULL };
	char data[64];

	(void)arg;
	TRY(open_ends(comm, NULL, &e));
	REQUIRE_EQ(spmtd_port_unpack_packets(&e.view, &e.port, data, ROOM - 112, 64, 1),
		SPMTD_INVALID);
	REQUIRE_EQ(spmtd_port_unpack_packets(&e.view, &e.port, data, 8, 8, 1), SPMTD_INVALID);
	REQUIRE_EQ(spmtd_port_unpack_packets8(&e.view, &e.port, data, SIZE_MAX - 7, 64, 1),
		SPMTD_INVALID);
	REQUIRE_EQ(
		spmtd_port_unpack_packets8(&e.view, &e.port, data, 0, SIZE_MAX, 1), SPMTD_INVALID);
	REQUIRE_EQ(spmtd_port_read_put_packets(&e.view, &e.port, 0, ROOM, 8, 1), SPMTD_INVALID);
	REQUIRE_EQ(spmtd_port_unpack_packets(&e.view, &e.port, data, 0, 64, 0), SPMTD_INVALID);
	REQUIRE_OK(spmt_quiet(comm));
	return spmt_barrier(comm);
}

Test(ports_bounds, what_cannot_come_is_not_waited_for)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(RANKS, NULL, wait_wrong, NULL));
}

static int nobody_signals(spmt_comm *comm, void *arg)
{
	struct ends e = { .block = NULL };

	(void)arg;
	TRY(open_ends(comm, NULL, &e));
	e.view.timeout_ns = 20000000;
	if (spmt_rank(comm) == 0) {
		REQUIRE_EQ(spmtd_port_wait(&e.view, &e.port), SPMTD_TIMEOUT);
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("wait for signal 1 of rank 1's through a port ended: 0 had come");
	}
	return spmt_barrier(comm);
}

Test(ports_bounds, a_wait_is_told_as_a_ports)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(RANKS, NULL, nobody_signals, NULL));
}

/* ---- packets of any size ------------------------------------------------------------------------------- */

static int odd_sizes(spmt_comm *comm, void *arg)
{
	struct ends e = { .block = NULL };
	char data[40], back[40];
	int me = spmt_rank(comm);

	(void)arg;
	TRY(open_ends(comm, NULL, &e));
	for (uint32_t n = 1; n <= 32; n++) {
		for (int i = 0; i < 40; i++)
			data[i] = (char)(n * 7 + (uint32_t)i + 50 * (uint32_t)me);
		memset(back, 0x11, sizeof(back));
		REQUIRE_EQ(spmtd_port_put_packets(&e.view, &e.port, 0, 512, data, n, n), 0);
		REQUIRE_EQ(spmtd_port_unpack_packets(&e.view, &e.port, back, 0, n, n), 0);
		for (uint32_t i = 0; i < n; i++)
			REQUIRE_EQ(back[i], (char)(n * 7 + i + 50 * (uint32_t)(1 - me)));
		REQUIRE_EQ(back[n], 0x11);
		REQUIRE_EQ(spmtd_port_flush(&e.view, &e.port), 0);
		REQUIRE_OK(spmt_barrier(comm));
	}
	return 0;
}

Test(ports_bounds, packets_of_any_size)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(RANKS, NULL, odd_sizes, NULL));
}

/* Ranks that came one after the other: then a NIC's failure could be the death of a process, and this one is none. */
static int wrong_in_time(spmt_comm *comm, void *arg)
{
	struct ends e = { .block = NULL };
	int64_t begin;

	(void)arg;
	TRY(open_ends(comm, NULL, &e));
	begin = calm_ns();
	if (spmt_rank(comm) == 0)
		REQUIRE_EQ(packets_via_beyond(&e), 0);
	REQUIRE_EQ(spmtd_port_wait(&e.view, &e.port), SPMTD_ABORTED);
	REQUIRE(calm_ns() - begin < 1400000000); /* it would be 1.5 s */
	REQUIRE_CODE(spmt_status(comm), -EINVAL);
	return 0;
}

static int comes_late(int rank, void *uid)
{
	struct spmt_attr attr = ranks_attr(rank, RANKS, uid);
	spmt_comm *comm;
	int rc;

	sleep_ms(100 * rank);
	REQUIRE_OK(spmt_init(&attr, &comm));
	rc = wrong_in_time(comm, NULL);
	(void)spmt_finalize(comm);
	return rc;
}

Test(ports_bounds, what_does_not_fit_is_told_at_once)
{
	spmt_uid uid;

	NEEDS_HOST(KERNELS);
	(void)calm_ns();
	cr_assert_eq(spmt_uid_create(&uid), 0);
	RANKS_OK(ranks_threads(RANKS, comes_late, &uid));
}

/* ---- a buffer that is gone ------------------------------------------------------------------------------ */

static int put_to_what_was(spmt_comm *comm, void *arg)
{
	struct ends e = { .block = NULL };
	char *buffer = calloc(1, ROOM);
	spmt_mem *mem;

	(void)arg;
	REQUIRE(buffer != NULL);
	REQUIRE_OK(spmt_register(comm, buffer, ROOM, &mem));
	TRY(open_ends(comm, mem, &e));
	REQUIRE_EQ(spmtd_port_put_signal(&e.view, &e.port, 0, 512, 64), 0);
	REQUIRE_EQ(spmtd_port_wait(&e.view, &e.port), 0);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_deregister(comm, mem));
	free(buffer);
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0)
		REQUIRE_EQ(spmtd_port_put_signal(&e.view, &e.port, 0, 512, 64), 0);
	else
		REQUIRE_EQ(spmtd_port_wait(&e.view, &e.port), SPMTD_ABORTED);
	REQUIRE_CODE(spmt_quiet(comm), -EINVAL);
	REQUIRE_SAYS("there is no port 0 to rank 1, or its buffer is no longer registered");
	return 0;
}

Test(ports_bounds, a_buffer_that_is_no_longer_registered)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(RANKS, NULL, put_to_what_was, NULL));
}

/* Of rank 1 alone, which deregisters it alone, too. */
static int put_to_what_one_had(spmt_comm *comm, void *arg)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr), .peer = 1 };
	struct ends e = { .block = NULL };
	char *buffer = calloc(1, ROOM), from[64];

	(void)arg;
	REQUIRE(buffer != NULL);
	memset(from, 0x5a, sizeof(from));
	attr.local = from;
	attr.local_size = sizeof(from);
	TRY(open_ends(comm, NULL, &e));
	if (spmt_rank(comm) == 1)
		REQUIRE_OK(spmt_register_local(comm, 3, buffer, ROOM, &attr.mem));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		REQUIRE_OK(spmt_mem_lookup(comm, 1, 3, &attr.mem));
		REQUIRE_OK(spmt_port_get(comm, &attr, &e.port));
		REQUIRE_EQ(spmtd_port_put_signal(&e.view, &e.port, 0, 0, 64), 0);
	} else {
		REQUIRE_EQ(spmtd_port_wait(&e.view, &e.port), 0);
		REQUIRE_EQ(buffer[63], 0x5a);
		REQUIRE_OK(spmt_deregister(comm, attr.mem));
		free(buffer);
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		REQUIRE_EQ(spmtd_port_put(&e.view, &e.port, 0, 0, 64), 0);
		free(buffer);
	}
	REQUIRE_EQ(spmtd_port_wait(&e.view, &e.port), SPMTD_ABORTED);
	REQUIRE_CODE(spmt_quiet(comm), -EINVAL);
	REQUIRE_SAYS("no port 0 to rank 1, or its buffer is no longer registered");
	return 0;
}

Test(ports_bounds, a_buffer_that_its_rank_has_deregistered_alone)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(RANKS, NULL, put_to_what_one_had, NULL));
}

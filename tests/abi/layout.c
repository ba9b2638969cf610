/* SPDX-License-Identifier: MIT */
/*
 * Sizes, offsets and numbers that programs compiled earlier rely on, for 64-bit targets. A released line never changes; a
 * new member adds one line and enlarges its struct.
 */
#include <stddef.h>
#include <stdio.h>

#include "spmt.h"
#include "spmt_device.h"

#define SIZE(type, bytes)                                           \
	{                                                           \
		"sizeof(" #type ")", (long long)sizeof(type), bytes \
	}
#define AT(type, member, offset)                                                              \
	{                                                                                     \
		"offsetof(" #type ", " #member ")", (long long)offsetof(type, member), offset \
	}
#define NUMBER(name, value)                     \
	{                                       \
#name, (long long)(name), value \
	}

static const struct {
	const char *what;
	long long is, want;
} rows[] = {
	SIZE(spmt_uid, 128),
	SIZE(struct spmt_attr, 64),
	AT(struct spmt_attr, rank, 8),
	AT(struct spmt_attr, nranks, 12),
	AT(struct spmt_attr, device, 16),
	AT(struct spmt_attr, backend, 24),
	AT(struct spmt_attr, heap_size, 32),
	AT(struct spmt_attr, uid, 40),
	AT(struct spmt_attr, timeout_ms, 48),
	AT(struct spmt_attr, bootstrap, 56),
	SIZE(struct spmt_bootstrap, 32),
	AT(struct spmt_bootstrap, process, 8),
	AT(struct spmt_bootstrap, processes, 12),
	AT(struct spmt_bootstrap, all_gather, 16),
	AT(struct spmt_bootstrap, ctx, 24),
	SIZE(struct spmt_route, 336),
	AT(struct spmt_route, pe, 8),
	AT(struct spmt_route, map, 12),
	AT(struct spmt_route, movers, 28),
	AT(struct spmt_route, threshold, 64),
	AT(struct spmt_route, reason, 72),
	AT(struct spmt_route, process, 328),
	AT(struct spmt_route, device, 332),
	SIZE(struct spmt_guard, 24),
	SIZE(struct spmt_stats, 88),
	AT(struct spmt_stats, ops, 8),
	AT(struct spmt_stats, bytes, 16),
	AT(struct spmt_stats, store, 24),
	AT(struct spmt_stats, sdma, 40),
	AT(struct spmt_stats, verbs, 56),
	AT(struct spmt_stats, waits, 72),
	AT(struct spmt_stats, longest_wait_ns, 80),
	AT(struct spmt_view, size, 0),
	AT(struct spmt_view, abi, 4),
	SIZE(struct spmt_view, 144),
	AT(struct spmt_view, base, 16),
	AT(struct spmt_view, peers, 48),
	AT(struct spmt_view, timeout_ns, 80),
	AT(struct spmt_view, host, 88),
	AT(struct spmt_view, sessions, 96),
	AT(struct spmt_view, nsessions, 104),
	AT(struct spmt_view, bulk, 112),
	AT(struct spmt_view, bulk_shape, 120),
	AT(struct spmt_view, sdma, 128),
	AT(struct spmt_view, fifo, 136), /* where it ends with SPMT_NEAR */
	SIZE(struct spmtd_sdma, 192),
	AT(struct spmtd_sdma, ends, 56),
	AT(struct spmtd_sdma, version, 64),
	AT(struct spmtd_sdma, rung, 80),
	AT(struct spmtd_sdma, claimed, 128),
	AT(struct spmtd_sdma, seen, 152),
	SIZE(struct spmtd_own, 64),
	AT(struct spmtd_own, sync_epoch, 0),
	AT(struct spmtd_own, recording, 56),
	SIZE(struct spmtd_inbox, 80),
	AT(struct spmtd_inbox, sync, 0),
	AT(struct spmtd_inbox, turn, 40),
	AT(struct spmt_mem_view, size, 0),
	AT(struct spmt_mem_view, abi, 4),
	AT(struct spmt_mem_view, peers, 16),
	AT(struct spmt_mem_view, far, 56),
	SIZE(struct spmt_mem_view, 64),
	SIZE(struct spmt_channel_attr, 56),
	AT(struct spmt_channel_attr, peer, 8),
	AT(struct spmt_channel_attr, index, 12),
	AT(struct spmt_channel_attr, remote, 16),
	AT(struct spmt_channel_attr, mem, 32),
	AT(struct spmt_channel_attr, local, 40),
	SIZE(struct spmt_channel, 112),
	AT(struct spmt_channel, local, 16),
	AT(struct spmt_channel, remote, 32),
	AT(struct spmt_channel, incoming, 48),
	AT(struct spmt_channel, arrived, 56),
	AT(struct spmt_channel, there, 72),
	SIZE(struct spmt_port, 96),
	AT(struct spmt_port, fifo, 16),
	AT(struct spmt_port, index, 24),
	AT(struct spmt_port, arrived, 48),
	AT(struct spmt_port, incoming, 72),
	AT(struct spmt_port, incoming_size, 80),
	SIZE(struct spmtd_post, 32),
	SIZE(struct spmtd_fifo, 64),
	AT(struct spmtd_fifo, own, 24),
	AT(struct spmtd_own, posted, 8),
	SIZE(struct spmt_switch, 96),
	AT(struct spmt_switch, bytes, 16),
	AT(struct spmt_switch, offset, 24),
	AT(struct spmt_switch, peers, 48),
	AT(struct spmt_switch, parts, 56),
	AT(struct spmt_switch, multicast, 64),

	NUMBER(SPMT_ERR_TIMEOUT, -10001),
	NUMBER(SPMT_ERR_ABORTED, -10002),
	NUMBER(SPMT_ERR_PEER_DEAD, -10003),
	NUMBER(SPMT_ERR_MISMATCH, -10004),
	NUMBER(SPMT_ERR_FORKED, -10005),
	NUMBER(SPMT_ERR_UNSUPPORTED, -10006),
	NUMBER(SPMT_ERR_BROKEN, -10007),
	NUMBER(SPMT_TYPE_I8, 0),
	NUMBER(SPMT_TYPE_U64, 7),
	NUMBER(SPMT_TYPE_F64, 11),
	NUMBER(SPMT_TYPE_F8E5M2, 13),
	NUMBER(SPMT_OP_SUM, 0),
	NUMBER(SPMT_OP_XOR, 6),
	NUMBER(SPMT_OP_AVG, 7),
	NUMBER(SPMT_OP_MADE, 0x40000000),
	NUMBER(SPMT_SCALAR_HOST, 0),
	NUMBER(SPMT_SCALAR_DEVICE, 1),
	NUMBER(SPMT_CMP_EQ, 0),
	NUMBER(SPMT_CMP_LE, 5),
	NUMBER(SPMT_SIGNAL_SET, 0),
	NUMBER(SPMT_SIGNAL_ADD, 1),
	NUMBER(SPMT_AMO_FETCH, 0),
	NUMBER(SPMT_AMO_FETCH_XOR, 13),
	NUMBER(SPMT_CAP_VMM, 0),
	NUMBER(SPMT_CAP_HEAP_SIZE, 8),
	NUMBER(SPMT_CAP_BARRIERS, 9),
	NUMBER(SPMT_CAP_CHANNELS, 10),
};

_Static_assert(sizeof(struct spmt_view) <= 256, "the view is passed by value");

int main(void)
{
	size_t n = sizeof(rows) / sizeof(rows[0]);
	int failed = 0;

	printf("1..%zu\n", n);
	for (size_t i = 0; i < n; i++) {
		int ok = rows[i].is == rows[i].want;

		printf("%sok %zu - %s is %lld\n", ok ? "" : "not ", i + 1, rows[i].what,
			rows[i].want);
		if (!ok)
			printf("# it is %lld\n", rows[i].is);
		failed |= !ok;
	}
	return failed;
}

/* SPDX-License-Identifier: MIT */
/* Every kind of collective of the table, and what has to come of it. */
#include "every_call.h"

uint64_t every_call_given(int rank, uint64_t i)
{
	uint64_t x = ((uint64_t)rank * 7919 + i + 1) * 0x9e3779b97f4a7c15u;

	return x ^ x >> 31;
}

int every_call_collective(spmt_comm *comm, enum kernel_collective_kind c, uint64_t *dst,
	const uint64_t *src, size_t count, const int *to)
{
	enum spmt_type t = SPMT_TYPE_U64;
	int root = spmt_nranks(comm) - 1;

	switch (c) {
	case COLL_BROADCAST:
		return spmt_broadcast(comm, dst, src, count, t, root, NULL);
	case COLL_ALL_GATHER:
		return spmt_all_gather(comm, dst, src, count, t, NULL);
	case COLL_ALL_TO_ALL:
		return spmt_all_to_all(comm, dst, src, count, t, NULL);
	case COLL_PERMUTE:
		return spmt_permute(comm, dst, src, count, t, to, NULL);
	case COLL_GATHER:
		return spmt_gather(comm, dst, src, count, t, root, NULL);
	case COLL_SCATTER:
		return spmt_scatter(comm, dst, src, count, t, root, NULL);
	case COLL_EXCHANGE:
		return spmt_all_to_all(comm, dst, dst, count, t, NULL);
	case COLL_REDUCE_SCATTER:
		return spmt_reduce_scatter(comm, dst, src, count, t, SPMT_OP_SUM, NULL);
	case COLL_REDUCE:
		return spmt_reduce(comm, dst, src, count, t, SPMT_OP_SUM, root, NULL);
	case COLL_ALL_REDUCE:
		return spmt_all_reduce(comm, dst, src, count, t, SPMT_OP_SUM, NULL);
	default:
		return ranks_fail("no call of kind %d is known", (int)c);
	}
}

uint64_t every_call_collected(enum kernel_collective_kind c, int me, int n, size_t count, size_t i)
{
	const uint64_t untouched = ~(uint64_t)0;
	size_t mine = (size_t)me * count;
	uint64_t sum = 0;

	switch (c) {
	case COLL_BROADCAST:
		return every_call_given(n - 1, i);
	case COLL_ALL_GATHER:
		return every_call_given((int)(i / count), i % count);
	case COLL_ALL_TO_ALL:
	case COLL_EXCHANGE:
		return every_call_given((int)(i / count), mine + i % count);
	case COLL_PERMUTE:
		return me + 1 < n ? every_call_given(me + 1, i) : untouched;
	case COLL_GATHER:
		return me + 1 < n ? untouched : every_call_given((int)(i / count), i % count);
	case COLL_SCATTER:
		return every_call_given(n - 1, mine + i);
	default:
		for (int r = 0; r < n; r++)
			sum += every_call_given(r, i + (c == COLL_REDUCE_SCATTER ? mine : 0));
		return c == COLL_REDUCE && me + 1 < n ? untouched : sum;
	}
}

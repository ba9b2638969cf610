/* SPDX-License-Identifier: MIT */
/* Calls of XLA's as calls of the library's. */
#include <errno.h>
#include <stdlib.h>

#include "bindings/jax/site.h"

/* Each pair by a count of its own, of which most are 0. */
static int issue_slice(
	const struct call *call, const struct site *site, spmt_comm *comm, spmt_stream stream)
{
	int n = spmt_nranks(comm), me = spmt_rank(comm), rc;
	size_t *counts = calloc(4 * (size_t)n, sizeof(*counts));
	size_t *in = counts, *in_at = counts + n, *out = in_at + n, *out_at = out + n;

	if (!counts)
		return -ENOMEM;
	for (int i = 0; i < n; i++) {
		bool comes = call->kind == KIND_PUT ? site->to[i] == me : site->of[me] == i,
		     goes = call->kind == KIND_PUT ? site->to[me] == i : site->of[i] == me;

		in[i] = comes ? call->count : 0;
		out[i] = goes ? call->count : 0;
		if (call->kind == KIND_PUT)
			in_at[i] = comes ? (size_t)site->start[i] * call->row : 0;
		else
			out_at[i] = goes ? (size_t)site->start[i] * call->row : 0;
	}
	rc = spmt_all_to_all_v(
		comm, call->dst, in, in_at, call->src, out, out_at, call->type, stream);
	free(counts);
	return rc;
}

/* Each rank sends its data to itself, when all have come. */
static int issue_barrier(const struct call *call, spmt_comm *comm, spmt_stream stream)
{
	int to[SITE_RANKS_MAX];

	for (int i = 0; i < spmt_nranks(comm); i++)
		to[i] = i;
	return spmt_permute(comm, call->dst, call->src, call->count, call->type, to, stream);
}

int call_issue(
	const struct call *call, const struct site *site, spmt_comm *comm, spmt_stream stream)
{
	switch (call->kind) {
	case KIND_ALL_REDUCE:
		return spmt_all_reduce(comm, call->dst, call->src, call->count, call->type,
			(enum spmt_op)site->op, stream);
	case KIND_REDUCE_SCATTER:
		return spmt_reduce_scatter(comm, call->dst, call->src, call->count, call->type,
			(enum spmt_op)site->op, stream);
	case KIND_PERMUTE:
		return spmt_permute(
			comm, call->dst, call->src, call->count, call->type, site->to, stream);
	case KIND_BROADCAST:
		return spmt_broadcast(comm, call->dst, call->src, call->count, call->type,
			(int)site->root, stream);
	case KIND_ALL_GATHER:
		return spmt_all_gather(comm, call->dst, call->src, call->count, call->type, stream);
	case KIND_ALL_TO_ALL:
		return spmt_all_to_all(comm, call->dst, call->src, call->count, call->type, stream);
	case KIND_BARRIER:
		return issue_barrier(call, comm, stream);
	case KIND_PUT:
	case KIND_GET:
		return issue_slice(call, site, comm, stream);
	default:
		return SPMT_ERR_UNSUPPORTED;
	}
}

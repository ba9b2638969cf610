/* SPDX-License-Identifier: MIT */
/* Collectives whose ranks a thread of the host has brought together: only the moving of the data is left. */
#include "coll.h"
#include "src/kernels/fold/factor.h"
#include "src/kernels/fold/slot.h"

void coll_here(const struct kernel_collective_args *args)
{
	struct coll c = { .args = args, .view = &args->view, .bytes = args->bytes, .met = 1 };

	switch (args->algorithm) {
#define X(name, kinds, way, gpu, cpu, grain) \
	case COLL_ROW_##name:                \
		if ((way) == COLL_AT_PEERS)  \
			coll_##name(&c);     \
		break;
		COLL_TABLE(X)
#undef X
	default:
		break;
	}
}

void coll_here_factor(const struct kernel_collective_args *args)
{
	const struct spmt_view *v = &args->view;

	piece_send(factors_at(spmtd_at_(v->own), v->npes, 0), (uint64_t)(uint32_t)v->pe,
		factor_bits(&args->factor), flags_alike(area_flag(0)));
}

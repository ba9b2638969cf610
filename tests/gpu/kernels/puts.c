/* SPDX-License-Identifier: MIT */
#include "puts.h"

static inline int goes_on(const struct puts_args *a, uint64_t round)
{
	if (a->rounds)
		return round < a->rounds;
	return !spmtd_any_block_(spmtd_peek32_(spmtd_at_(a->view.stop)) != 0);
}

KERNEL_BODY run_puts(const struct puts_args *a)
{
	const struct spmt_view *v = &a->view;
	uint64_t blocks = kernel_blocks(), each = a->size / blocks / 16 * 16;
	uint64_t from = each * kernel_block();
	size_t n = (size_t)(kernel_block() + 1 == blocks ? a->size - from : each);

	for (uint64_t i = 0; goes_on(a, i); i++) {
		const void *src = spmtd_to_(a->src + from);

		if (a->on_mem)
			spmtd_mem_putmem_nbi_block(v, &a->mem, a->dst + from, src, n, a->pe);
		else
			spmtd_putmem_nbi_block(v, spmtd_to_(a->dst + from), src, n, a->pe);
	}
	(void)spmtd_quiet_block(v);
}
TEST_KERNEL(puts)

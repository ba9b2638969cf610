/* SPDX-License-Identifier: MIT */
/* Folds of 8-bit floats, in f32: a unit has four times four values. */
#include "f8.h"
#include "fold_unit.h"

/* What rank pe gives to the fold. */
static inline struct f8_wide f8_given(const struct fold *r, int pe, uint64_t k, int op, int e5m2)
{
	struct f8_wide w = f8_widen(unit_of(r, pe, k), e5m2);

	if (op == COLL_PREMUL) {
		float factor = f8_value((uint8_t)fold_factor(r, pe), e5m2);

		for (int i = 0; i < 4; i++)
			w.part[i] = w.part[i] * factor;
	}
	return w;
}

/* One loop for both types and all ops: a kernel is loaded with all that it may do. */
__attribute__((noinline)) void fold_f8(const struct fold *r, int type, int op)
{
	int e5m2 = type == SPMT_TYPE_F8E5M2;

	for (uint64_t k = r->lane; 16 * k < r->bytes; k += r->lanes) {
		struct f8_wide a = f8_given(r, 0, k, op, e5m2);

		for (int pe = 1; pe < r->npes; pe++) {
			struct f8_wide x = f8_given(r, pe, k, op, e5m2);

			for (int i = 0; i < 4; i++)
				a.part[i] = f32_step(a.part[i], x.part[i], op);
		}
		for (int i = 0; i < 4 && op == SPMT_OP_AVG; i++)
			a.part[i] = a.part[i] / (float)r->npes;
		unit_out(r, k, f8_narrow(a, e5m2));
	}
}

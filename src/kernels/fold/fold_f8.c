/* SPDX-License-Identifier: MIT */
/* Folds of 8-bit floats, in f32: a unit has four times four values. */
#include "f8.h"
#include "fold_unit.h"

struct f8_wide {
	f32x4 part[4];
};

static inline float f8_value(uint8_t x, int e5m2)
{
	return e5m2 ? f8e5m2_value(x) : f8e4m3_value(x);
}

static inline uint8_t f8_code(float x, int e5m2)
{
	return e5m2 ? f8e5m2_nearest(x) : f8e4m3_nearest(x);
}

static inline struct f8_wide f8_widen(union unit u, int e5m2)
{
	struct f8_wide w;

	for (int i = 0; i < 16; i++)
		w.part[i / 4][i % 4] = f8_value(u.u8[i], e5m2);
	return w;
}

static inline union unit f8_narrow(struct f8_wide w, int e5m2)
{
	union unit u;

	for (int i = 0; i < 16; i++)
		u.u8[i] = f8_code(w.part[i / 4][i % 4], e5m2);
	return u;
}

static inline f32x4 f8_step(f32x4 a, f32x4 x, int op)
{
	switch (op) {
	case SPMT_OP_PROD:
		return a * x;
	case SPMT_OP_MIN:
		return min_f32(a, x);
	case SPMT_OP_MAX:
		return max_f32(a, x);
	default:
		return a + x;
	}
}

/* One loop for both types and all ops: a kernel is loaded with all that it may do. */
__attribute__((noinline)) void fold_f8(const struct fold *r, int type, int op)
{
	int e5m2 = type == SPMT_TYPE_F8E5M2;

	for (uint64_t k = r->lane; 16 * k < r->bytes; k += r->lanes) {
		struct f8_wide a = f8_widen(unit_of(r, 0, k), e5m2);

		for (int pe = 1; pe < r->npes; pe++) {
			struct f8_wide x = f8_widen(unit_of(r, pe, k), e5m2);

			for (int i = 0; i < 4; i++)
				a.part[i] = f8_step(a.part[i], x.part[i], op);
		}
		for (int i = 0; i < 4 && op == SPMT_OP_AVG; i++)
			a.part[i] = a.part[i] / (float)r->npes;
		unit_out(r, k, f8_narrow(a, e5m2));
	}
}

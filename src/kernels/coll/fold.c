/* SPDX-License-Identifier: MIT */
#include "fold.h"

#include "../../../include/spmt.h"
#include "halves.h"
#include "slot.h"

/* Two words in two registers; left alone, ptxas carries every byte of a unit through the loop in a
   register of its own. Not on AMD: of a function with assembly LLVM does not know that it calls
   nobody, and gives each lane of its kernels 16 KiB of scratch. */
static inline union unit packed(union unit u)
{
#if defined(__NVPTX__)
	__asm__ volatile("" : "+l"(u.words[0]), "+l"(u.words[1]));
#endif
	return u;
}

static inline struct wide packed_wide(struct wide w)
{
	return w;
}

/* Bytes of unit k that there are. */
static inline uint32_t unit_bytes(const struct fold *r, uint64_t k)
{
	uint64_t left = r->bytes - 16 * k;

	return 16 * k >= r->bytes ? 0 : left < 16 ? (uint32_t)left : 16;
}

static inline union unit unit_of(const struct fold *r, int pe, uint64_t k)
{
	if (r->slots)
		return packed(unit_arrived(r->slots + (uint64_t)(uint32_t)pe * r->slot, k));
	return packed(fetch(r->inboxes[pe].src + r->from + 16 * k, unit_bytes(r, k)));
}

static inline void unit_out(const struct fold *r, uint64_t k, union unit u)
{
	uint32_t n = unit_bytes(r, k);
	int pe = r->first;

	if (!r->everyone) {
		place(r->dst + r->to + 16 * k, u, n);
		return;
	}
	for (int i = 0; i < r->npes; i++) {
		place(r->inboxes[pe].dst + r->to + 16 * k, u, n);
		pe = pe + 1 < r->npes ? pe + 1 : 0;
	}
}

/* ---- folding: acc and x are units of values; halves have their values in two units ---------- */

static inline float quiet32(float x)
{
	return x != x ? spmtd_float_of_(0x7fc00000u) : x;
}

static inline double quiet64(double x)
{
	return x != x ? spmtd_double_of_(0x7ff8000000000000ull) : x;
}

static inline float min32(float a, float b)
{
	if (a != a || b != b)
		return spmtd_float_of_(0x7fc00000u);
	if (a == b) /* zeros may differ by sign */
		return spmtd_float_of_(spmtd_float_bits_(a) | spmtd_float_bits_(b));
	return a < b ? a : b;
}

static inline float max32(float a, float b)
{
	if (a != a || b != b)
		return spmtd_float_of_(0x7fc00000u);
	if (a == b)
		return spmtd_float_of_(spmtd_float_bits_(a) & spmtd_float_bits_(b));
	return a < b ? b : a;
}

static inline double min64(double a, double b)
{
	if (a != a || b != b)
		return spmtd_double_of_(0x7ff8000000000000ull);
	if (a == b)
		return spmtd_double_of_(spmtd_double_bits_(a) | spmtd_double_bits_(b));
	return a < b ? a : b;
}

static inline double max64(double a, double b)
{
	if (a != a || b != b)
		return spmtd_double_of_(0x7ff8000000000000ull);
	if (a == b)
		return spmtd_double_of_(spmtd_double_bits_(a) & spmtd_double_bits_(b));
	return a < b ? b : a;
}

#define LANES2(f, a, b)                              \
	{                                            \
		f((a)[0], (b)[0]), f((a)[1], (b)[1]) \
	}
#define LANES4(f, a, b)                                                                    \
	{                                                                                  \
		f((a)[0], (b)[0]), f((a)[1], (b)[1]), f((a)[2], (b)[2]), f((a)[3], (b)[3]) \
	}

#define DEFINE_LANEWISE(name, type, lanes, f)   \
	static inline type name(type a, type b) \
	{                                       \
		type x = lanes(f, a, b);        \
                                                \
		return x;                       \
	}
DEFINE_LANEWISE(min_f32, f32x4, LANES4, min32)
DEFINE_LANEWISE(max_f32, f32x4, LANES4, max32)
DEFINE_LANEWISE(min_f64, f64x2, LANES2, min64)
DEFINE_LANEWISE(max_f64, f64x2, LANES2, max64)

static inline f32x4 quiet_f32(f32x4 a)
{
	f32x4 x = { quiet32(a[0]), quiet32(a[1]), quiet32(a[2]), quiet32(a[3]) };

	return x;
}

static inline f64x2 quiet_f64(f64x2 a)
{
	f64x2 x = { quiet64(a[0]), quiet64(a[1]) };

	return x;
}

#define VALUES(name, v, i)                                                                \
	{                                                                                 \
		name##_value((v)[i]), name##_value((v)[i + 1]), name##_value((v)[i + 2]), \
			name##_value((v)[i + 3])                                          \
	}
#define NEAREST(name, v, i) name##_nearest((v)[i]), name##_nearest((v)[i + 1])
#define DEFINE_HALVES(name)                                                                  \
	static inline struct wide name##_widen(union unit u)                                 \
	{                                                                                    \
		struct wide w = { VALUES(name, u.u16, 0), VALUES(name, u.u16, 4) };          \
                                                                                             \
		return w;                                                                    \
	}                                                                                    \
	static inline union unit name##_narrow(struct wide w)                                \
	{                                                                                    \
		union unit u = { .u16 = { NEAREST(name, w.lo, 0), NEAREST(name, w.lo, 2),    \
					 NEAREST(name, w.hi, 0), NEAREST(name, w.hi, 2) } }; \
                                                                                             \
		return u;                                                                    \
	}
DEFINE_HALVES(f16)
DEFINE_HALVES(bf16)

/* One step of a fold, acc a with the next rank's unit x; m: the member of both that is meant. */
#define STEP_SUM(m, a, x) ((a).m += (x).m)
#define STEP_PROD(m, a, x) ((a).m *= (x).m)
#define STEP_AND(m, a, x) ((a).m &= (x).m)
#define STEP_OR(m, a, x) ((a).m |= (x).m)
#define STEP_XOR(m, a, x) ((a).m ^= (x).m)
#define STEP_KEEP(mask, a, x) ((a).u64 = ((a).u64 & (u64x2)(mask)) | ((x).u64 & ~(u64x2)(mask)))
#define STEP_MIN(m, a, x) STEP_KEEP((a).m < (x).m, a, x)
#define STEP_MAX(m, a, x) STEP_KEEP((a).m > (x).m, a, x)
#define STEP_MIN_F(m, a, x) ((a).m = min_##m((a).m, (x).m))
#define STEP_MAX_F(m, a, x) ((a).m = max_##m((a).m, (x).m))

/* The same for halves, m: f16 or bf16. */
#define STEP_WIDE(m, a, x, part)               \
	do {                                   \
		struct wide w_ = m##_widen(x); \
		part((a).lo, w_.lo);           \
		part((a).hi, w_.hi);           \
	} while (0)
#define PART_SUM(a, x) ((a) += (x))
#define PART_PROD(a, x) ((a) *= (x))
#define PART_MIN(a, x) ((a) = min_f32((a), (x)))
#define PART_MAX(a, x) ((a) = max_f32((a), (x)))
#define STEP_WIDE_SUM(m, a, x) STEP_WIDE(m, a, x, PART_SUM)
#define STEP_WIDE_PROD(m, a, x) STEP_WIDE(m, a, x, PART_PROD)
#define STEP_WIDE_MIN(m, a, x) STEP_WIDE(m, a, x, PART_MIN)
#define STEP_WIDE_MAX(m, a, x) STEP_WIDE(m, a, x, PART_MAX)

static inline union unit same(union unit u)
{
	return u;
}

static inline union unit f32_end(union unit u)
{
	u.f32 = quiet_f32(u.f32);
	return u;
}

static inline union unit f64_end(union unit u)
{
	u.f64 = quiet_f64(u.f64);
	return u;
}

/* ---- loops: one for each pair of type and op that differs ----------------------------------- */

/* The next rank's unit is loaded before the last one's is folded. */
#define DEFINE_REDUCER(name, acc, hold, begin, step, m, end)                   \
	static void name(const struct fold *r)                                 \
	{                                                                      \
		for (uint64_t k = r->lane; 16 * k < r->bytes; k += r->lanes) { \
			union unit x = unit_of(r, 0, k), next = x;             \
			acc a = begin(x);                                      \
                                                                               \
			if (r->npes > 1)                                       \
				next = unit_of(r, 1, k);                       \
			for (int pe = 1; pe < r->npes; pe++) {                 \
				x = next;                                      \
				if (pe + 1 < r->npes)                          \
					next = unit_of(r, pe + 1, k);          \
				step(m, a, x);                                 \
				a = hold(a);                                   \
			}                                                      \
			unit_out(r, k, end(a));                                \
		}                                                              \
	}
#define REDUCERS_SUM(type)                                                         \
	DEFINE_REDUCER(sum_##type, union unit, packed, same, STEP_SUM, type, same) \
	DEFINE_REDUCER(prod_##type, union unit, packed, same, STEP_PROD, type, same)
#define REDUCERS_ORDER(type)                                                          \
	DEFINE_REDUCER(min_of_##type, union unit, packed, same, STEP_MIN, type, same) \
	DEFINE_REDUCER(max_of_##type, union unit, packed, same, STEP_MAX, type, same)
#define REDUCERS_FLOAT(type)                                                                  \
	DEFINE_REDUCER(sum_##type, union unit, packed, same, STEP_SUM, type, type##_end)      \
	DEFINE_REDUCER(prod_##type, union unit, packed, same, STEP_PROD, type, type##_end)    \
	DEFINE_REDUCER(min_of_##type, union unit, packed, same, STEP_MIN_F, type, type##_end) \
	DEFINE_REDUCER(max_of_##type, union unit, packed, same, STEP_MAX_F, type, type##_end)
#define REDUCERS_HALF(type)                                                                        \
	DEFINE_REDUCER(sum_##type, struct wide, packed_wide, type##_widen, STEP_WIDE_SUM, type,    \
		type##_narrow)                                                                     \
	DEFINE_REDUCER(prod_##type, struct wide, packed_wide, type##_widen, STEP_WIDE_PROD, type,  \
		type##_narrow)                                                                     \
	DEFINE_REDUCER(min_of_##type, struct wide, packed_wide, type##_widen, STEP_WIDE_MIN, type, \
		type##_narrow)                                                                     \
	DEFINE_REDUCER(max_of_##type, struct wide, packed_wide, type##_widen, STEP_WIDE_MAX, type, \
		type##_narrow)

REDUCERS_SUM(u8)
REDUCERS_SUM(u16)
REDUCERS_SUM(u32)
REDUCERS_SUM(u64)
REDUCERS_ORDER(i8)
REDUCERS_ORDER(u8)
REDUCERS_ORDER(i16)
REDUCERS_ORDER(u16)
REDUCERS_ORDER(i32)
REDUCERS_ORDER(u32)
REDUCERS_ORDER(i64)
REDUCERS_ORDER(u64)
REDUCERS_HALF(f16)
REDUCERS_HALF(bf16)
REDUCERS_FLOAT(f32)
REDUCERS_FLOAT(f64)
DEFINE_REDUCER(and_all, union unit, packed, same, STEP_AND, u64, same)
DEFINE_REDUCER(or_all, union unit, packed, same, STEP_OR, u64, same)
DEFINE_REDUCER(xor_all, union unit, packed, same, STEP_XOR, u64, same)

/* Signed and unsigned integers differ in order alone. */
#define PICK(type, sums)                                             \
	static inline void pick_##type(const struct fold *r, int op) \
	{                                                            \
		if (op == SPMT_OP_SUM)                               \
			sum_##sums(r);                               \
		else if (op == SPMT_OP_PROD)                         \
			prod_##sums(r);                              \
		else if (op == SPMT_OP_MIN)                          \
			min_of_##type(r);                            \
		else                                                 \
			max_of_##type(r);                            \
	}
PICK(i8, u8)
PICK(u8, u8)
PICK(i16, u16)
PICK(u16, u16)
PICK(i32, u32)
PICK(u32, u32)
PICK(i64, u64)
PICK(u64, u64)
PICK(f16, f16)
PICK(bf16, bf16)
PICK(f32, f32)
PICK(f64, f64)

static inline int fold_bits(const struct fold *r, int op)
{
	switch (op) {
	case SPMT_OP_AND:
		and_all(r);
		return 1;
	case SPMT_OP_OR:
		or_all(r);
		return 1;
	case SPMT_OP_XOR:
		xor_all(r);
		return 1;
	default:
		return 0;
	}
}

__attribute__((noinline)) void fold_run(const struct fold *r, int type, int op)
{
	if (fold_bits(r, op))
		return;
	switch (type) {
	case SPMT_TYPE_I8:
		pick_i8(r, op);
		break;
	case SPMT_TYPE_U8:
		pick_u8(r, op);
		break;
	case SPMT_TYPE_I16:
		pick_i16(r, op);
		break;
	case SPMT_TYPE_U16:
		pick_u16(r, op);
		break;
	case SPMT_TYPE_I32:
		pick_i32(r, op);
		break;
	case SPMT_TYPE_U32:
		pick_u32(r, op);
		break;
	case SPMT_TYPE_I64:
		pick_i64(r, op);
		break;
	case SPMT_TYPE_U64:
		pick_u64(r, op);
		break;
	case SPMT_TYPE_F16:
		pick_f16(r, op);
		break;
	case SPMT_TYPE_BF16:
		pick_bf16(r, op);
		break;
	case SPMT_TYPE_F32:
		pick_f32(r, op);
		break;
	case SPMT_TYPE_F64:
		pick_f64(r, op);
		break;
	default:
		break;
	}
}

/* SPDX-License-Identifier: MIT */
/* What the machine of the device header is asked of memory, of order_model.h; a part of order_machine.h. */
#ifndef TESTS_ORDER_ACCESS_H
#define TESTS_ORDER_ACCESS_H

#include "order_model.h"
#include "spmt_device/types.h"

/* In the place of these parts. */
#define SPMTD_TARGET_H
#define SPMTD_AMDGCN_H
#define SPMTD_HOST_H
#define SPMTD_NVPTX_H
#define SPMTD_FN static inline __attribute__((unused))
#define SPMTD_MEETS
#define SPMTD_LONG SPMTD_FN
#define SPMTD_RARE SPMTD_FN
#define SPMTD_ONCE SPMTD_FN
#define SPMTD_ROLLED
#define SPMTD_UNROLL
#define SPMTD_BEGIN
#define SPMTD_END

struct spmtd_unit_ {
	uint64_t a, b;
};
enum spmtd_scope_ { SPMTD_THREAD_, SPMTD_WARP_, SPMTD_BLOCK_ };

SPMTD_FN uint64_t spmtd_at_(const volatile void *p)
{
	return (uint64_t)(size_t)p;
}

SPMTD_FN void *spmtd_to_(uint64_t a)
{
	return (void *)(size_t)a;
}

#define ORDER_LOAD(name, type, kind)                \
	SPMTD_FN type spmtd_##name##_(uint64_t a)   \
	{                                           \
		type x;                             \
                                                    \
		order_load(a, &x, sizeof(x), kind); \
		return x;                           \
	}
#define ORDER_STORE(name, type, kind)                     \
	SPMTD_FN void spmtd_##name##_(uint64_t a, type x) \
	{                                                 \
		order_store(a, &x, sizeof(x), kind);      \
	}
#define ORDER_ACCESS(bits, type)                    \
	ORDER_LOAD(load##bits, type, ORDER_WEAK)    \
	ORDER_LOAD(gload##bits, type, ORDER_WEAK)   \
	ORDER_LOAD(peek##bits, type, ORDER_RELAXED) \
	ORDER_LOAD(look##bits, type, ORDER_SYNC)    \
	ORDER_STORE(store##bits, type, ORDER_WEAK)  \
	ORDER_STORE(gstore##bits, type, ORDER_WEAK) \
	ORDER_STORE(poke##bits, type, ORDER_RELAXED)
ORDER_ACCESS(8, uint8_t)
ORDER_ACCESS(16, uint16_t)
ORDER_ACCESS(32, uint32_t)
ORDER_ACCESS(64, uint64_t)
ORDER_LOAD(load16b, struct spmtd_unit_, ORDER_WEAK)
ORDER_LOAD(gload16b, struct spmtd_unit_, ORDER_WEAK)
ORDER_STORE(store16b, struct spmtd_unit_, ORDER_WEAK)
ORDER_STORE(gstore16b, struct spmtd_unit_, ORDER_WEAK)

/* Two accesses, as the model has them. */
SPMTD_FN struct spmtd_unit_ spmtd_peek16b_(uint64_t a)
{
	struct spmtd_unit_ u;

	u.a = spmtd_peek64_(a);
	u.b = spmtd_peek64_(a + 8);
	return u;
}

SPMTD_FN void spmtd_poke16b_(uint64_t a, struct spmtd_unit_ u)
{
	spmtd_poke64_(a, u.a);
	spmtd_poke64_(a + 8, u.b);
}

#define ORDER_ATOMIC(name, change, bits)                                                         \
	SPMTD_FN uint##bits##_t spmtd_##name##bits##_(uint64_t a, uint##bits##_t x)              \
	{                                                                                        \
		return (uint##bits##_t)order_atomic(a, (bits) / 8, change, x, 0, ORDER_RELAXED); \
	}                                                                                        \
	SPMTD_FN void spmtd_noret_##name##bits##_(uint64_t a, uint##bits##_t x)                  \
	{                                                                                        \
		(void)spmtd_##name##bits##_(a, x);                                               \
	}
#define ORDER_ATOMICS(bits)                                                   \
	ORDER_ATOMIC(swap, ORDER_SWAP, bits)                                  \
	ORDER_ATOMIC(add, ORDER_ADD, bits)                                    \
	ORDER_ATOMIC(and, ORDER_AND, bits)                                    \
	ORDER_ATOMIC(or, ORDER_OR, bits)                                      \
	ORDER_ATOMIC(xor, ORDER_XOR, bits)                                    \
	SPMTD_FN uint##bits##_t spmtd_cas##bits##_(                           \
		uint64_t a, uint##bits##_t compare, uint##bits##_t x)         \
	{                                                                     \
		return (uint##bits##_t)order_atomic(                          \
			a, (bits) / 8, ORDER_CAS, x, compare, ORDER_RELAXED); \
	}
ORDER_ATOMICS(32)
ORDER_ATOMICS(64)

SPMTD_FN void spmtd_release_set_(uint64_t a, uint64_t x)
{
	order_store(a, &x, sizeof(x), ORDER_SYNC);
}

SPMTD_FN void spmtd_release_add_(uint64_t a, uint64_t x)
{
	(void)order_atomic(a, sizeof(x), ORDER_ADD, x, 0, ORDER_SYNC);
}

SPMTD_FN void spmtd_order_(void)
{
	order_fence();
}

SPMTD_FN void spmtd_complete_(void)
{
	order_fence();
}

SPMTD_FN void spmtd_acquired_(void)
{
}

SPMTD_FN void spmtd_settle_(void)
{
}

#endif

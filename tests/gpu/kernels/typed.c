/* SPDX-License-Identifier: MIT */
#include "typed.h"

#define ONE_SCOPE(name, T, scope, suffix)                                                        \
	static inline void name##_##scope(const struct typed_args *a)                            \
	{                                                                                        \
		const struct spmt_view *v = &a->view;                                            \
		const struct spmt_mem_view *m = &a->mem;                                         \
		T *dst = (T *)spmtd_to_(a->dst);                                                 \
		const T *src = (const T *)spmtd_to_(a->src);                                     \
		size_t n = (size_t)a->count;                                                     \
                                                                                                 \
		switch (a->form + TYPED_FORMS * a->on_mem) {                                     \
		case TYPED_PUT:                                                                  \
			spmtd_##name##_put##suffix(v, dst, src, n, a->pe);                       \
			break;                                                                   \
		case TYPED_PUT_NBI:                                                              \
			spmtd_##name##_put_nbi##suffix(v, dst, src, n, a->pe);                   \
			break;                                                                   \
		case TYPED_GET:                                                                  \
			spmtd_##name##_get##suffix(v, dst, src, n, a->pe);                       \
			break;                                                                   \
		case TYPED_GET_NBI:                                                              \
			spmtd_##name##_get_nbi##suffix(v, dst, src, n, a->pe);                   \
			break;                                                                   \
		case TYPED_FORMS + TYPED_PUT:                                                    \
			spmtd_mem_##name##_put##suffix(v, m, (size_t)a->dst, src, n, a->pe);     \
			break;                                                                   \
		case TYPED_FORMS + TYPED_PUT_NBI:                                                \
			spmtd_mem_##name##_put_nbi##suffix(v, m, (size_t)a->dst, src, n, a->pe); \
			break;                                                                   \
		case TYPED_FORMS + TYPED_GET:                                                    \
			spmtd_mem_##name##_get##suffix(v, dst, m, (size_t)a->src, n, a->pe);     \
			break;                                                                   \
		default:                                                                         \
			spmtd_mem_##name##_get_nbi##suffix(v, dst, m, (size_t)a->src, n, a->pe); \
		}                                                                                \
	}

#define ONE_TYPE(name, T)                                                                         \
	ONE_SCOPE(name, T, thread, )                                                              \
	ONE_SCOPE(name, T, warp, _warp)                                                           \
	ONE_SCOPE(name, T, block, _block)                                                         \
	static inline void name##_single(const struct typed_args *a)                              \
	{                                                                                         \
		const struct spmt_view *v = &a->view;                                             \
		const struct spmt_mem_view *m = &a->mem;                                          \
		T *dst = (T *)spmtd_to_(a->dst);                                                  \
		const T *src = (const T *)spmtd_to_(a->src);                                      \
                                                                                                  \
		for (uint32_t i = kernel_lane(); i < a->count; i += kernel_lanes()) {             \
			size_t off = i * sizeof(T);                                               \
                                                                                                  \
			if (a->form == TYPED_P && !a->on_mem)                                     \
				spmtd_##name##_p(v, dst + i, src[i], a->pe);                      \
			else if (a->form == TYPED_P)                                              \
				spmtd_mem_##name##_p(v, m, (size_t)a->dst + off, src[i], a->pe);  \
			else if (!a->on_mem)                                                      \
				dst[i] = spmtd_##name##_g(v, src + i, a->pe);                     \
			else                                                                      \
				dst[i] = spmtd_mem_##name##_g(v, m, (size_t)a->src + off, a->pe); \
		}                                                                                 \
	}                                                                                         \
	static TYPED_ALONE void name##_all(const struct typed_args *a)                            \
	{                                                                                         \
		if (a->form == TYPED_P || a->form == TYPED_G)                                     \
			name##_single(a);                                                         \
		else if (a->scope == BY_THREAD) {                                                 \
			if (kernel_lane() == 0)                                                   \
				name##_thread(a);                                                 \
		} else if (a->scope == BY_WARP) {                                                 \
			if (worker(BY_WARP) == 0)                                                 \
				name##_warp(a);                                                   \
		} else if (kernel_block() == 0) {                                                 \
			name##_block(a);                                                          \
		}                                                                                 \
	}
/* A function a type, so that no type's code is optimised with another's. */
#define TYPED_ALONE __attribute__((noinline))
TYPES(ONE_TYPE)

KERNEL_BODY run_typed(const struct typed_args *a)
{
	switch (a->type) {
#define X(name, T)             \
	case TYPE_OF_##name:   \
		name##_all(a); \
		break;
		TYPES(X)
#undef X
	default:
		break;
	}
}
TEST_KERNEL(typed)

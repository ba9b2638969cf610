/* SPDX-License-Identifier: MIT */
/* Put and get of elements that do not lie side by side. */
#ifndef SPMTD_STRIDED_H
#define SPMTD_STRIDED_H

#include "fifo.h"
#include "half.h"

SPMTD_BEGIN

/* ---- strided put and get -------------------------------------------------------------------- */

/* n elements, dst_stride and src_stride elements from one to the next; each as spmtd_<type>_p or _g. Offsets into registered
   buffers are bytes. The two sides may not overlap. */
SPMTD_FN uint64_t spmtd_step_(uint64_t base, uint64_t i, int64_t stride, uint32_t bytes)
{
	return base + i * (uint64_t)stride * bytes;
}

#define SPMTD_STRIDED_BY(name, T, bits, suffix, scope)                                             \
	SPMTD_FN void spmtd_##name##_do_iput##suffix##_(const struct spmt_view *v, uint64_t dst,   \
		const T *src, int64_t dst_stride, int64_t src_stride, size_t n, int pe)            \
	{                                                                                          \
		spmtd_meet_(scope);                                                                \
		for (uint64_t i = spmtd_lane_(scope); i < n; i += spmtd_lanes_(scope))             \
			spmtd_poke##bits##_(spmtd_step_(dst, i, dst_stride, sizeof(T)),            \
				spmtd_load##bits##_(                                               \
					spmtd_step_(spmtd_at_(src), i, src_stride, sizeof(T))));   \
		if (n)                                                                             \
			spmtd_wake_(v, pe);                                                        \
		spmtd_meet_(scope);                                                                \
	}                                                                                          \
	SPMTD_FN void spmtd_##name##_do_iget##suffix##_(                                           \
		T *dst, uint64_t src, int64_t dst_stride, int64_t src_stride, size_t n)            \
	{                                                                                          \
		spmtd_meet_(scope);                                                                \
		for (uint64_t i = spmtd_lane_(scope); i < n; i += spmtd_lanes_(scope))             \
			spmtd_store##bits##_(                                                      \
				spmtd_step_(spmtd_at_(dst), i, dst_stride, sizeof(T)),             \
				spmtd_peek##bits##_(spmtd_step_(src, i, src_stride, sizeof(T))));  \
		spmtd_meet_(scope);                                                                \
	}                                                                                          \
	SPMTD_FN void spmtd_##name##_far_iput##suffix##_(const struct spmt_view *v, int where,     \
		uint64_t dst, const T *src, int64_t dst_stride, int64_t src_stride, size_t n,      \
		int pe)                                                                            \
	{                                                                                          \
		spmtd_meet_(scope);                                                                \
		for (uint64_t i = spmtd_lane_(scope); i < n; i += spmtd_lanes_(scope))             \
			spmtd_far_value_(v, where, spmtd_step_(dst, i, dst_stride, sizeof(T)),     \
				spmtd_load##bits##_(                                               \
					spmtd_step_(spmtd_at_(src), i, src_stride, sizeof(T))),    \
				sizeof(T), pe);                                                    \
		spmtd_meet_(scope);                                                                \
	}                                                                                          \
	SPMTD_FN void spmtd_##name##_far_iget##suffix##_(const struct spmt_view *v, T *dst,        \
		int where, uint64_t src, int64_t dst_stride, int64_t src_stride, size_t n, int pe) \
	{                                                                                          \
		spmtd_meet_(scope);                                                                \
		for (uint64_t i = spmtd_lane_(scope); i < n; i += spmtd_lanes_(scope))             \
			spmtd_store##bits##_(                                                      \
				spmtd_step_(spmtd_at_(dst), i, dst_stride, sizeof(T)),             \
				(uint##bits##_t)spmtd_far_fetch_(v, where,                         \
					spmtd_step_(src, i, src_stride, sizeof(T)), sizeof(T),     \
					pe));                                                      \
		spmtd_meet_(scope);                                                                \
	}                                                                                          \
	SPMTD_FN void spmtd_##name##_iput##suffix(const struct spmt_view *v, T *dst, const T *src, \
		int64_t dst_stride, int64_t src_stride, size_t n, int pe)                          \
	{                                                                                          \
		if (spmtd_is_far_(v, pe))                                                          \
			spmtd_##name##_far_iput##suffix##_(v, SPMTD_FAR_HEAP,                      \
				spmtd_offset_(v, dst), src, dst_stride, src_stride, n, pe);        \
		else                                                                               \
			spmtd_##name##_do_iput##suffix##_(                                         \
				v, spmtd_there_(v, dst, pe), src, dst_stride, src_stride, n, pe);  \
	}                                                                                          \
	SPMTD_FN void spmtd_##name##_iget##suffix(const struct spmt_view *v, T *dst, const T *src, \
		int64_t dst_stride, int64_t src_stride, size_t n, int pe)                          \
	{                                                                                          \
		if (spmtd_is_far_(v, pe))                                                          \
			spmtd_##name##_far_iget##suffix##_(v, dst, SPMTD_FAR_HEAP,                 \
				spmtd_offset_(v, src), dst_stride, src_stride, n, pe);             \
		else                                                                               \
			spmtd_##name##_do_iget##suffix##_(                                         \
				dst, spmtd_there_(v, src, pe), dst_stride, src_stride, n);         \
	}                                                                                          \
	SPMTD_FN void spmtd_mem_##name##_iput##suffix(const struct spmt_view *v,                   \
		const struct spmt_mem_view *m, size_t dst_off, const T *src, int64_t dst_stride,   \
		int64_t src_stride, size_t n, int pe)                                              \
	{                                                                                          \
		if (spmtd_mem_is_far_(m, pe))                                                      \
			spmtd_##name##_far_iput##suffix##_(v, SPMTD_FAR_MEM,                       \
				spmtd_mem_offset_(m, dst_off, pe), src, dst_stride, src_stride, n, \
				pe);                                                               \
		else                                                                               \
			spmtd_##name##_do_iput##suffix##_(v, spmtd_mem_there_(m, dst_off, pe),     \
				src, dst_stride, src_stride, n, pe);                               \
	}                                                                                          \
	SPMTD_FN void spmtd_mem_##name##_iget##suffix(const struct spmt_view *v, T *dst,           \
		const struct spmt_mem_view *m, size_t src_off, int64_t dst_stride,                 \
		int64_t src_stride, size_t n, int pe)                                              \
	{                                                                                          \
		if (spmtd_mem_is_far_(m, pe))                                                      \
			spmtd_##name##_far_iget##suffix##_(v, dst, SPMTD_FAR_MEM,                  \
				spmtd_mem_offset_(m, src_off, pe), dst_stride, src_stride, n, pe); \
		else                                                                               \
			spmtd_##name##_do_iget##suffix##_(                                         \
				dst, spmtd_mem_there_(m, src_off, pe), dst_stride, src_stride, n); \
	}
#define SPMTD_STRIDED(name, T, U_, bits, kind)              \
	SPMTD_STRIDED_BY(name, T, bits, , SPMTD_THREAD_)    \
	SPMTD_STRIDED_BY(name, T, bits, _warp, SPMTD_WARP_) \
	SPMTD_STRIDED_BY(name, T, bits, _block, SPMTD_BLOCK_)
SPMTD_TYPES(SPMTD_STRIDED)
SPMTD_STRIDED(half, uint16_t, uint16_t, 16, U)
SPMTD_STRIDED(bfloat16, uint16_t, uint16_t, 16, U)

#undef SPMTD_STRIDED_BY
#undef SPMTD_STRIDED

SPMTD_END

#endif

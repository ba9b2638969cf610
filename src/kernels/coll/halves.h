/* SPDX-License-Identifier: MIT */
/* f16 and bf16 as the device header has them. */
#ifndef SPMT_KERNELS_HALVES_H
#define SPMT_KERNELS_HALVES_H

#include "../../../include/spmt_device/half.h"

static inline float f16_value(uint16_t h)
{
	return spmtd_half_value_(h);
}

static inline uint16_t f16_nearest(float value)
{
	return spmtd_half_nearest_(value);
}

static inline float bf16_value(uint16_t h)
{
	return spmtd_bfloat16_value_(h);
}

static inline uint16_t bf16_nearest(float value)
{
	return spmtd_bfloat16_nearest_(value);
}

#endif

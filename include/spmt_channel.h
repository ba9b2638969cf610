/* SPDX-License-Identifier: MIT */
/* Channels, for the host and for kernels: spmt.h has spmt_channel_get, spmt_port_get and spmt_switch_get, spmt_device.h what kernels call. */
#ifndef SPMT_CHANNEL_H
#define SPMT_CHANNEL_H

#include "spmt_device.h"
#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__) && \
	(!(defined(__AMDGCN__) || defined(__NVPTX__)) || defined(__CUDA__) || defined(__HIP__))
#include "spmt.h"
#endif

#endif

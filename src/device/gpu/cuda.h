/* SPDX-License-Identifier: MIT */
/* What NVIDIA's backend has of its own, in several files. */
#ifndef SPMT_GPU_CUDA_H
#define SPMT_GPU_CUDA_H

#include "abi_cuda_calls.h"
#include "bind.h"

struct cuda_team; /* cuda_multicast.c */

struct cuda_state {
	struct gpu_state gpu; /* the first member */
	struct cuda_api api;
	pthread_mutex_t teams_lock; /* guards teams; zeroed is unlocked */
	struct cuda_team *teams;
};

extern const struct gpu_vendor cuda_vendor;
extern const struct device_multicast_ops cuda_multicast_ops; /* cuda_multicast.c */

static inline const struct cuda_api *cuda_own(const struct gpu_state *state)
{
	return &((const struct cuda_state *)state)->api;
}

/* Attributes younger than the driver are errors: the feature is not there. */
bool cuda_has(const struct gpu_bound *b, cu_attribute what);

#endif

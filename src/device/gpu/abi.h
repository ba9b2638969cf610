/* SPDX-License-Identifier: MIT */
/* Structs that CUDA and HIP lay out alike; tests/abi compares each with the vendors' headers. */
#ifndef SPMT_GPU_ABI_H
#define SPMT_GPU_ABI_H

struct gpu_uuid {
	char bytes[16];
};
struct gpu_ipc_handle {
	char reserved[64];
};
struct gpu_location {
	int type, id;
};
/* HIP's from 5.3 on. 5.2 has the same size and another order, and creates no memory with it. */
struct gpu_memory_prop {
	int type, handle_type;
	struct gpu_location location;
	void *win32;
	unsigned char flags[8];
};
struct gpu_memory_access {
	struct gpu_location location;
	int flags;
};

_Static_assert(sizeof(struct gpu_uuid) == 16 && sizeof(struct gpu_ipc_handle) == 64 &&
		sizeof(struct gpu_memory_prop) == 32 && sizeof(struct gpu_memory_access) == 12,
	"the vendors' layouts");

#endif

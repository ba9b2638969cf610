/* SPDX-License-Identifier: MIT */
/*
 * Row ll12 as NVIDIA's GPUs run it, beside what coll_grids.c does: threads of a warp have a quad between them, tell each other what they
 * have, and vote; one thread of a rank looks at the stop word in a graph. A warp is of four threads here.
 */
#define KERNELS_OF_GPUS
#include "coll_grids.c"

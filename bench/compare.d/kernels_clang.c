/* SPDX-License-Identifier: MIT */
/* libspmt's side once more, as C by clang for nvptx: loaded by spmt.cu's program with --ptx. */
#include "ops_spmt.cuh"

#include "kernels.cuh"

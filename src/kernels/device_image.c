/* SPDX-License-Identifier: MIT */
/* All kernels as one unit: what a device image is compiled from. Not part of the host's build. */
#include "collective.c"
#include "meet.c"
#include "pushed.c"
#include "reduce.c"
#include "simple.c"

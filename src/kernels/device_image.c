/* SPDX-License-Identifier: MIT */
/* All kernels as one unit: what a device image is compiled from. Not part of the host's build. */
#include "coll/coll.c"
#include "coll/direct.c"
#include "coll/meet.c"
#include "coll/pushed.c"
#include "coll/reduce.c"
#include "coll/swap.c"
#include "coll/varied.c"
#include "fold/fold.c"
#include "fold/fold_f8.c"
#include "fold/fold_mean.c"
#include "plan.c"
#include "simple.c"

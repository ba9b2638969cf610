/* SPDX-License-Identifier: MIT */
/* Ops that users have made: pre-multiplied sums. A comm has a table of them; threads that call one lane may use it at once. */
#ifndef SPMT_COLLECTIVE_OP_H
#define SPMT_COLLECTIVE_OP_H

#include "spmt/comm/comm.h"
#include "src/kernels/kernels.h"

/* *op as a caller of `what` passed it, for elements of a type: where it was made it becomes COLL_PREMUL, with the factor. Else it is one of
   enum spmt_op afterwards, or refused. */
int op_use(const spmt_comm *comm, const char *what, enum spmt_type type, int *op,
	struct coll_factor *factor);

#endif

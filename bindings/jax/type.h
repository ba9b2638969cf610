/* SPDX-License-Identifier: MIT */
/* XLA's types of elements, and the names that sentences have for them. */
#ifndef SPMT_XLA_TYPE_H
#define SPMT_XLA_TYPE_H

#include <stddef.h>
#include <stdint.h>

/* An XLA type: its size, and as what the library reduces it. */
struct xla_type {
	const char *name;
	size_t size;
	int type, parts; /* parts elements of type are one; 0: it cannot be reduced */
};

/* NULL: no call takes it. */
const struct xla_type *xla_type_of(int dtype);

/* Of any number: "unknown" where XLA has none, or has got it since. */
const char *xla_type_name(int dtype);

/* Of one of enum spmt_op up to SPMT_OP_XOR. */
const char *xla_op_name(int64_t op);

#endif

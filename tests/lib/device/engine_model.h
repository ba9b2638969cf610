/* SPDX-License-Identifier: MIT */
/*
 * A model of the engine of bulk copies, which does everything as early or as late as it may, in an order drawn at random, and refuses
 * what hardware would do wrong: a stage loaded while it is still read, a phase that is not the next, a store of what has not come. For
 * files that define SPMTD_BULK_MODEL.
 */
#ifndef TESTS_ENGINE_MODEL_H
#define TESTS_ENGINE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spmt.h"

enum { BARS = 8, STORES = 64 };

struct load {
	uint64_t stage, src;
	uint32_t n;
	bool waiting, moved;
};

struct store {
	uint64_t dst, stage, group;
	uint32_t n;
	int fold;
	bool read, written;
	char *bytes;
};

/* Every type and op, and what the engine calls it; 0: it cannot. */
#define FLOAT(X, TYPE, name)    \
	X(TYPE, name, SUM, sum) \
	X(TYPE, name, MIN, min) \
	X(TYPE, name, MAX, max)
#define INTEGER(X, TYPE, name)  \
	FLOAT(X, TYPE, name)    \
	X(TYPE, name, AND, and) \
	X(TYPE, name, OR, or)   \
	X(TYPE, name, XOR, xor)
#define FOLDS(X)                \
	INTEGER(X, I32, int32)  \
	INTEGER(X, U32, uint32) \
	INTEGER(X, I64, int64)  \
	INTEGER(X, U64, uint64) \
	FLOAT(X, F32, float)    \
	FLOAT(X, F64, double)   \
	FLOAT(X, F16, half)     \
	FLOAT(X, BF16, bfloat16)
#define FOLD_ONE(TYPE, name, OP, op) +1
enum { ALL_FOLDS = 0 FOLDS(FOLD_ONE) };
extern const struct fold {
	int fold;
	enum spmt_type type;
	enum spmt_op op;
} folds[ALL_FOLDS];

extern struct engine {
	struct {
		uint64_t at, phase;
		bool open;
		struct load load;
	} bars[BARS];
	struct store stores[STORES];
	int nstores;
	uint64_t group; /* the one that is being made */
	uint64_t loads, loaded_bytes, folds,
		next; /* next: where the next load has to begin, if counting */
	uint32_t seed;
	/* caller_fenced: what the caller has in shared memory has not been stored since */
	bool fenced, shared_fenced, caller_fenced, reaches;
	bool counting; /* addresses are no memory */
	/* behind `multicast` lie the same bytes of so many buffers. alias_fenced, alias: multimem_fence_ came before a store there, and has to
	   come behind it */
	uint64_t multicast, buffers[8];
	int nbuffers, spreads;
	bool alias_fenced, alias;
} engine;

/* n bytes of src into dst, which is the first operand. */
void engine_fold_into(const struct fold *f, char *dst, const char *src, size_t n);

#endif

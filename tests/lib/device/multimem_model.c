/* SPDX-License-Identifier: MIT */
#define SPMTD_MULTIMEM_MODEL 1
#include "multimem_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmt_channel.h"
#include "tests/lib/folds.h"

#define FOLDS(X)                    \
	X(uint32, U32, sum, SUM)    \
	X(uint32, U32, min, MIN)    \
	X(uint32, U32, max, MAX)    \
	X(int32, I32, sum, SUM)     \
	X(int32, I32, min, MIN)     \
	X(int32, I32, max, MAX)     \
	X(uint64, U64, sum, SUM)    \
	X(uint64, U64, min, MIN)    \
	X(uint64, U64, max, MAX)    \
	X(int64, I64, sum, SUM)     \
	X(int64, I64, min, MIN)     \
	X(int64, I64, max, MAX)     \
	X(float, F32, sum, SUM)     \
	X(double, F64, sum, SUM)    \
	X(half, F16, sum, SUM)      \
	X(half, F16, min, MIN)      \
	X(half, F16, max, MAX)      \
	X(bfloat16, BF16, sum, SUM) \
	X(bfloat16, BF16, min, MIN) \
	X(bfloat16, BF16, max, MAX)
static const struct fold {
	int fold;
	enum spmt_type type;
	enum spmt_op op;
} folds[] = {
#define FOLD(name, TYPE, op, OP) { SPMTD_MULTI_##name##_##op##_, SPMT_TYPE_##TYPE, SPMT_OP_##OP },
	FOLDS(FOLD)
#undef FOLD
};

enum { FOLDS_MADE = sizeof(folds) / sizeof(folds[0]) };

static int (*find)(const void *address, size_t n, char **parts);
static _Thread_local struct {
	int loads, stores;
	bool fenced, pending;
} here;

void multimem_open(int (*at)(const void *address, size_t n, char **parts))
{
	find = at;
}

int multimem_loads(void)
{
	int n = here.loads;

	here.loads = 0;
	return n;
}

int multimem_stores(void)
{
	int n = here.stores;

	here.stores = 0;
	return n;
}

bool multimem_settled(void)
{
	bool settled = !here.pending;

	here.fenced = here.pending = false;
	return settled;
}

static void refuse(const char *why, uint64_t a)
{
	fprintf(stderr, "model of a switch: %s: %#llx\n", why, (unsigned long long)a);
	abort();
}

static int parts_at(uint64_t a, char *parts[MULTIMEM_DEVICES])
{
	int n = a % 16 ? 0 : find(spmtd_to_(a), 16, parts);

	if (!here.fenced)
		refuse("no fence before", a);
	if (!n)
		refuse("not bound, or not at a multiple of 16", a);
	here.pending = true;
	return n;
}

void spmtd_multimem_fence_(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	here.fenced = true;
	here.pending = false;
}

struct spmtd_unit_ spmtd_multimem_load_(uint64_t a, int fold)
{
	char *parts[MULTIMEM_DEVICES], out[16];
	int n = parts_at(a, parts);
	const struct fold *f = folds;
	struct spmtd_unit_ u;

	here.loads++;
	while (f < folds + FOLDS_MADE && f->fold != fold)
		f++;
	if (f == folds + FOLDS_MADE)
		refuse("no such fold", (uint64_t)fold);
	for (size_t k = 0; k < 16; k += folds_width[f->type]) {
		uint64_t in[MULTIMEM_DEVICES] = { 0 }, x;

		for (int i = 0; i < n; i++)
			memcpy(&in[n - 1 - i], parts[i] + k, folds_width[f->type]);
		x = folds_of(f->type, f->op, in, n);
		memcpy(out + k, &x, folds_width[f->type]);
	}
	memcpy(&u, out, sizeof(u));
	return u;
}

void spmtd_multimem_store_(uint64_t a, struct spmtd_unit_ u)
{
	char *parts[MULTIMEM_DEVICES];
	int n = parts_at(a, parts);

	here.stores++;
	for (int i = 0; i < n; i++)
		memcpy(parts[i], &u, sizeof(u));
}

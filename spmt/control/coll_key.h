/* SPDX-License-Identifier: MIT */
/* Packs a rank's call into one word that its peers' kernels compare with theirs, and finds in
   what two such words differ. Pure. */
#ifndef SPMT_COLL_KEY_H
#define SPMT_COLL_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/kernels/kernels.h"

struct coll_same {
	enum kernel_collective_kind kind;
	int type, op, root; /* op: 0 where there is none; root: where one rank gives or gets */
	uint64_t count, to; /* to: of a permute, the table as coll_fold makes it */
};

uint64_t coll_fold(uint64_t key, uint64_t value);

uint64_t coll_key(const struct coll_same *call);

/* The same of a run of a plan: its type, and all else that has to be equal, folded. Kernels make keys of two that show an argument
   (plan_shown). */
uint64_t coll_plan_key(int type, uint64_t rest);

/* The function that was called: "spmt_all_reduce". */
const char *coll_key_call(uint64_t key);

/* Of ranks a and b, whose keys differ: "spmt_all_reduce: count differs: rank 3 passed 65, rank 0 passed 64". At most size bytes. */
void coll_differ(char *text, size_t size, int a, uint64_t key_a, int b, uint64_t key_b);

#endif

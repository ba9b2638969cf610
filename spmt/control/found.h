/* SPDX-License-Identifier: MIT */
/* What the ranks of a process have found of the plans of their world, each of which all of them ask for. */
#ifndef SPMT_FOUND_H
#define SPMT_FOUND_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Zeros at first. The lock is held while one is found, for which the others wait. */
struct plan_found {
	pthread_mutex_t lock;
	int n;
	struct plan_found_one {
		uint64_t key; /* of the plan and its kind */
		bool either;
	} at[16];
};

#endif

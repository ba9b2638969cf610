/* SPDX-License-Identifier: MIT */
/* Waiting for any of many words: who is served where several hold, whatever else is waited for. */
#include <criterion/criterion.h>

#include "spmt_device.h"
#include "tests/lib/ranks.h"

TestSuite(wait_any);

/* Who asks: a comm's thread, or a kernel; by waits or by tests. */
struct asker {
	spmt_comm *comm;
	struct spmt_view view;
	bool kernel, tests;
	int calls;
	uint64_t *words;
	const uint64_t *copy; /* of the words, for the CPU */
	const char *wrong;
};

/* Where the words are that are asked for. */
enum {
	ZEROS = 0,
	MIXED = 64,   /* 1, 0, 0, 0 */
	RISING = 100, /* 10, 11, .. */
	LONG = 300,   /* 0, but two neighbours are 7 */
	MANY = 1000,
	NEIGHBOUR = 500,
	WORDS = LONG + MANY
};

/* One of n words that are `val`, n: a call failed. */
static size_t ask(struct asker *a, size_t from, size_t n, const int *status, uint64_t val)
{
	const uint64_t *w = a->words + from;
	size_t index = n;
	int rc;

	if (!a->kernel)
		rc = (a->tests ? spmt_test_any : spmt_wait_until_any)(
			a->comm, SPMT_TYPE_U64, w, n, status, SPMT_CMP_EQ, &val, &index);
	else if (a->tests)
		rc = !spmtd_uint64_test_any(&a->view, w, n, status, SPMT_CMP_EQ, val, &index);
	else
		rc = spmtd_uint64_wait_until_any(&a->view, w, n, status, SPMT_CMP_EQ, val, &index);
	if (rc || index >= n || a->copy[from + index] != val || (status && status[index]))
		a->wrong = "a call failed, or found what does not hold";
	return a->wrong ? n : index;
}

/* Of `holding` words whose counts these are each has a fifth of an equal share at least. */
static void shared(struct asker *a, const char *what, const long *counts, int holding)
{
	for (int i = 0; i < holding; i++)
		if (counts[i] < a->calls / holding / 5 && !a->wrong)
			a->wrong = what;
}

/* A wait for two words, then `others` waits for other arrays. */
static void interleaved(struct asker *a, size_t others)
{
	long counts[3] = { 0 };

	for (int i = 0; i < a->calls; i++) {
		counts[ask(a, ZEROS, 2, NULL, 0)]++;
		for (size_t k = 1; k <= others; k++)
			ask(a, ZEROS + 2 * k, k, NULL, 0);
	}
	shared(a, "two words that hold, with waits for other arrays in between", counts, 2);
}

static void two_conditions(struct asker *a)
{
	long counts[5] = { 0 };

	for (int i = 0; i < a->calls; i++) {
		counts[ask(a, MIXED, 4, NULL, 0)]++;
		ask(a, MIXED, 4, NULL, 1);
	}
	shared(a, "three words of four, with a wait for the other one in between", counts + 1, 3);
}

static void two_masks(struct asker *a)
{
	static const int first_alone[] = { 0, 1, 1 };
	long counts[4] = { 0 };

	for (int i = 0; i < a->calls; i++) {
		counts[ask(a, ZEROS, 3, NULL, 0)]++;
		ask(a, ZEROS, 3, first_alone, 0);
	}
	shared(a, "three words, with a wait for the first alone in between", counts, 3);
}

/* If a look began at random and went on in line, the second would be served once in a thousand calls. */
static void neighbours(struct asker *a)
{
	long counts[MANY + 1] = { 0 };

	for (int i = 0; i < a->calls; i++)
		counts[ask(a, LONG, MANY, NULL, 7)]++;
	shared(a, "two neighbours of a thousand", counts + NEIGHBOUR, 2);
}

/* Any number of words, where all hold, and where one does. */
static void all_counts(struct asker *a)
{
	for (size_t n = 1; n <= 130; n++) {
		long counts[21] = { 0 };

		for (int i = 0; n <= 20 && i < a->calls; i++)
			counts[ask(a, ZEROS, n, NULL, 0)]++;
		shared(a, "words that all hold", counts, n <= 20 ? (int)n : 0);
		for (size_t i = 0; i < n; i++)
			ask(a, RISING, n, NULL, 10 + i);
	}
}

static void all_served(void *args)
{
	struct asker *a = *(struct asker **)args;

	for (size_t others = 0; others <= 8; others++)
		interleaved(a, others);
	two_conditions(a);
	two_masks(a);
	neighbours(a);
	all_counts(a);
}

static int served_by(spmt_comm *comm, void *arg)
{
	struct asker a = *(const struct asker *)arg, *p = &a;
	uint64_t words[WORDS] = { [MIXED] = 1, [LONG + NEIGHBOUR] = 7, 7 };

	for (size_t i = 0; i < 130; i++)
		words[RISING + i] = 10 + i;
	a.comm = comm;
	a.copy = words;
	a.calls = on_host() ? 4000 : 400;
	a.view.size = sizeof(a.view);
	REQUIRE_OK(spmt_calloc(comm, WORDS, sizeof(*a.words), (void **)&a.words));
	REQUIRE_OK(spmt_copy_in(comm, a.words, words, sizeof(words)));
	if (a.kernel) {
		REQUIRE_OK(spmt_view_get(comm, &a.view));
		REQUIRE_OK(spmt_host_launch(comm, NULL, all_served, &p, sizeof(p)));
		REQUIRE_OK(spmt_quiet(comm));
	} else {
		all_served(&p);
	}
	return a.wrong ? ranks_fail("%s", a.wrong) : 0;
}

Test(wait_any, serves_all)
{
	struct asker a = { .tests = false };

	RANKS_OK(ranks_run(1, NULL, served_by, &a));
	a.tests = true;
	RANKS_OK(ranks_run(1, NULL, served_by, &a));
}

Test(wait_any, serves_all_in_kernels)
{
	struct asker a = { .kernel = true };

	NEEDS_HOST("kernels are C functions");
	RANKS_OK(ranks_run(1, NULL, served_by, &a));
	a.tests = true;
	RANKS_OK(ranks_run(1, NULL, served_by, &a));
}

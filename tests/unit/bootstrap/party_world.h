/* SPDX-License-Identifier: MIT */
/* Several parties joined to a world. */
#ifndef TESTS_PARTY_WORLD_H
#define TESTS_PARTY_WORLD_H

#include "party.h"
#include "src/base/base.h"
#include "tests/lib/transports/device_links.h"

static inline bool says(const char *end)
{
	const char *have = status_sentence();
	size_t n = strlen(have), m = strlen(end);

	return n >= m && !strcmp(have + n - m, end);
}

/* Waits up to a second for somebody to be told. */
static inline bool hears(struct party *p)
{
	for (int i = 0; i < 1000 && !atomic_load(&p->heard.times); i++)
		usleep(1000);
	return atomic_load(&p->heard.times) == 1;
}

/* `ranks[i]`: how many ranks party i has; they are dealt in turn. */
static inline void join(
	const struct uid *uid, struct party *parties, const int *ranks, int n, int nranks)
{
	int left[8];

	memcpy(left, ranks, (size_t)n * sizeof(*ranks));
	for (int i = 0; i < n; i++)
		open_ok(&parties[i], uid, nranks);
	for (int r = 0, i = 0; r < nranks; i = (i + 1) % n) {
		if (!left[i])
			continue;
		left[i]--;
		add_ok(&parties[i], r++);
	}
	for (int i = 0; i < n; i++)
		cr_assert_eq(wait_for(&parties[i], 5000), 0, "%s", status_sentence());
}

static inline void leave(struct party *parties, int n)
{
	for (int i = 0; i < n; i++)
		bootstrap_close(parties[i].b);
	for (int i = 0; i < n; i++)
		cr_expect_eq(parties[i].heard.times, 0, "%s", parties[i].heard.sentence);
}

static inline void check_world(const struct party *parties, int n, int nranks)
{
	bool seen[8] = { false };

	for (int i = 0; i < n; i++) {
		const struct party *p = &parties[i];
		int mine = 0;

		check_blobs(p, nranks);
		cr_assert_eq(p->processes, n);
		cr_assert(p->self >= 0 && p->self < n && !seen[p->self]);
		seen[p->self] = true;
		for (int r = 0; r < nranks; r++) {
			cr_assert_eq(p->process[r], parties[0].process[r]);
			mine += p->process[r] == p->self;
		}
		cr_assert_gt(mine, 0);
	}
}

#endif

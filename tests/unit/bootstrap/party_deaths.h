/* SPDX-License-Identifier: MIT */
/* What becomes of parties in processes of their own, of which one dies or stops. */
#ifndef TESTS_PARTY_DEATHS_H
#define TESTS_PARTY_DEATHS_H

#include "party_child.h"
#include "tests/lib/clocks.h"

/* On return it has stopped, not merely been told to. */
static inline void stop(const struct child *c)
{
	int status;

	kill(c->pid, SIGSTOP);
	cr_assert_eq(waitpid(c->pid, &status, WUNTRACED), c->pid);
	cr_assert(WIFSTOPPED(status));
}

static inline void all(struct child *c, int n, char command)
{
	for (int i = 0; i < n; i++)
		if (c[i].pid)
			tell(&c[i], command);
	for (int i = 0; i < n; i++)
		if (c[i].pid)
			cr_expect_eq(answer_of(&c[i]).rc, 0, "%d: %c", i, command);
}

static const char *const death_of[] = { "1 of 4 ranks died: 0", "1 of 4 ranks died: 1",
	"2 of 4 ranks died: 2, 3" };

static inline void expect_told(struct child *c, int n, const char *sentence)
{
	int64_t begin = calm_ns();

	for (int i = 0; i < n; i++) {
		struct answer answer = { 0 };

		if (!c[i].pid)
			continue;
		answer = ask(&c[i], 'h');
		cr_expect_eq(answer.rc, SPMT_ERR_PEER_DEAD, "%d: %d", i, answer.rc);
		cr_expect_str_eq(answer.sentence, sentence);
	}
	cr_expect_lt(calm_ns() - begin, 1000 * MS);
}

#endif

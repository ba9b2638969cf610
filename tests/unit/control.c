/* SPDX-License-Identifier: MIT */
/* Who breaks a control block, where several do, or one is stopped in between. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "spmt/control/control.h"

/* A cause in a page that cannot be read until the test says so: whoever writes it down stands still after it has claimed to. */
static struct {
	struct cause *cause;
	sem_t claimed, go_on;
} slow;

static void stand_still(int number)
{
	(void)number;
	sem_post(&slow.claimed);
	while (sem_wait(&slow.go_on))
		;
	mprotect(slow.cause, (size_t)sysconf(_SC_PAGESIZE), PROT_READ);
}

static void slow_cause(int code, const char *sentence)
{
	const struct sigaction still = { .sa_handler = stand_still };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	sem_init(&slow.claimed, 0, 0);
	sem_init(&slow.go_on, 0, 0);
	slow.cause = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(slow.cause, MAP_FAILED);
	cause_set(slow.cause, code, NULL, sentence);
	mprotect(slow.cause, page, PROT_NONE);
	sigaction(SIGSEGV, &still, NULL);
}

static bool slow_first;

static void *break_slowly(void *control)
{
	slow_first = control_break(control, slow.cause);
	return NULL;
}

static struct control *block(void)
{
	struct control *control = aligned_alloc(CACHE_LINE, control_size(1));

	cr_assert(control);
	memset(control, 0, control_size(1));
	return control;
}

static void expect_cause(struct control *control, int code, const char *sentence)
{
	struct cause cause;

	cr_assert_eq(control_state(control, &cause), CONTROL_BROKEN);
	cr_expect_eq(cause.code, code);
	cr_expect_str_eq(cause.sentence, sentence);
}

Test(control, has_the_first_cause)
{
	struct control *control = block();
	struct cause cause;

	cr_expect_eq(control_state(control, &cause), CONTROL_WHOLE);
	cause_set(&cause, -44, NULL, "the first");
	cr_expect(control_break(control, &cause));
	cause_set(&cause, -45, NULL, "the second");
	cr_expect_not(control_break(control, &cause));
	expect_cause(control, -44, "the first");
	free(control);
}

/* One is stopped before it has written why, and another does: what the one writes when it goes on is nobody's cause any more. */
Test(control, keeps_the_cause_that_it_has, .timeout = 20)
{
	struct control *control = block();
	struct cause cause;
	pthread_t thread;

	slow_cause(-44, "the slow");
	cr_assert_eq(pthread_create(&thread, NULL, break_slowly, control), 0);
	sem_wait(&slow.claimed);
	cr_expect_eq(control_state(control, &cause), CONTROL_WHOLE);
	cause_set(&cause, -45, NULL, "the second");
	cr_expect(control_break(control, &cause));
	expect_cause(control, -45, "the second");
	sem_post(&slow.go_on);
	pthread_join(thread, NULL);
	cr_expect_not(slow_first);
	expect_cause(control, -45, "the second");
	free(control);
}

enum { BREAKERS = 8 };

static struct {
	struct control *control;
	pthread_barrier_t together;
	_Atomic int firsts, code;
} many;

static void *break_together(void *arg)
{
	struct cause cause;

	cause_set(&cause, *(const int *)arg, NULL, "one of them");
	pthread_barrier_wait(&many.together);
	if (control_break(many.control, &cause)) {
		atomic_fetch_add(&many.firsts, 1);
		atomic_store(&many.code, cause.code);
	}
	return NULL;
}

/* Whoever claimed it has died: of those who outwait that, one follows. */
Test(control, has_one_cause_of_many, .timeout = 20)
{
	pthread_t threads[BREAKERS];
	int codes[BREAKERS];

	many.control = block();
	atomic_store(&many.control->claimed, 1);
	pthread_barrier_init(&many.together, NULL, BREAKERS);
	for (int i = 0; i < BREAKERS; i++) {
		codes[i] = -50 - i;
		cr_assert_eq(pthread_create(&threads[i], NULL, break_together, &codes[i]), 0);
	}
	for (int i = 0; i < BREAKERS; i++)
		pthread_join(threads[i], NULL);
	cr_expect_eq(atomic_load(&many.firsts), 1);
	expect_cause(many.control, atomic_load(&many.code), "one of them");
	free(many.control);
}

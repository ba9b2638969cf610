/* SPDX-License-Identifier: MIT */
/* The thread that serves fifos, with fifos that are nothing but this: who leaves it, in which order, and who ends it. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include "spmt/proxy/proxy.h"
#include "tests/lib/clocks.h"

static struct {
	const struct fifo *_Atomic held;
	_Atomic int rounds;
	sem_t inside, leave;  /* of `held` */
	sem_t *_Atomic lasts; /* the thread ends once this has been posted */
} proxy;

static pthread_key_t at_end;

static void last(void *until)
{
	sem_wait(until);
}

/* In place of the library's. */
bool fifo_serve(struct fifo *fifo)
{
	atomic_fetch_add(&proxy.rounds, 1);
	if (atomic_load(&proxy.lasts))
		pthread_setspecific(at_end, atomic_load(&proxy.lasts));
	if (fifo == atomic_load(&proxy.held)) {
		atomic_store(&proxy.held, NULL);
		sem_post(&proxy.inside);
		sem_wait(&proxy.leave);
	}
	return false;
}

void *_Atomic *world_proxy(void)
{
	static void *_Atomic slot;

	return &slot;
}

static void hold(struct fifo *fifo)
{
	sem_init(&proxy.inside, 0, 0);
	sem_init(&proxy.leave, 0, 0);
	atomic_store(&proxy.held, fifo);
	proxy_wake(fifo->proxy);
	sem_wait(&proxy.inside);
}

static _Atomic bool removed;

static void *remove_main(void *fifo)
{
	proxy_remove(fifo);
	atomic_store(&removed, true);
	return NULL;
}

Test(proxy, is_left_by_a_fifo_only_after_the_thread, .timeout = 20)
{
	struct fifo fifos[2] = { 0 };
	pthread_t thread;
	int rounds;

	cr_assert_eq(proxy_add(&fifos[0]), 0);
	cr_assert_eq(proxy_add(&fifos[1]), 0);
	hold(&fifos[0]);
	cr_assert_eq(pthread_create(&thread, NULL, remove_main, &fifos[0]), 0);
	sleep_ms(50);
	cr_expect_not(atomic_load(&removed));
	sem_post(&proxy.leave);
	pthread_join(thread, NULL);
	/* the other is served as before */
	rounds = atomic_load(&proxy.rounds);
	proxy_wake(fifos[1].proxy);
	while (atomic_load(&proxy.rounds) == rounds)
		sleep_ms(1);
	proxy_remove(&fifos[1]);
	rounds = atomic_load(&proxy.rounds);
	sleep_ms(5);
	cr_expect_eq(atomic_load(&proxy.rounds), rounds);
}

static sem_t go_on;

static void stand_still(int number)
{
	(void)number;
	while (sem_wait(&go_on))
		;
}

static void *wait_main(void *leave)
{
	sem_wait(leave);
	return NULL;
}

/* Who waits for the thread to leave its fifo may come to the lock when another has removed the last one and ended the thread. */
Test(proxy, is_ended_once, .timeout = 20)
{
	const struct sigaction still = { .sa_handler = stand_still };
	struct fifo fifos[2] = { 0 };
	pthread_t late, other, strangers[2];
	sem_t leave;

	sem_init(&go_on, 0, 0);
	sem_init(&leave, 0, 0);
	sigaction(SIGUSR1, &still, NULL);
	cr_assert_eq(proxy_add(&fifos[0]), 0);
	cr_assert_eq(proxy_add(&fifos[1]), 0);
	hold(&fifos[0]);
	cr_assert_eq(pthread_create(&late, NULL, remove_main, &fifos[0]), 0);
	sleep_ms(50); /* it waits */
	pthread_kill(late, SIGUSR1);
	cr_assert_eq(pthread_create(&other, NULL, remove_main, &fifos[1]), 0);
	sleep_ms(50);
	sem_post(&proxy.leave);
	pthread_join(other, NULL);
	/* threads of somebody else, one of which the C library knows by the number of the proxy's */
	for (int i = 0; i < 2; i++)
		cr_assert_eq(pthread_create(&strangers[i], NULL, wait_main, &leave), 0);
	sem_post(&go_on);
	sleep_ms(50);
	for (int i = 0; i < 2; i++)
		sem_post(&leave);
	for (int i = 0; i < 2; i++)
		cr_expect_eq(pthread_join(strangers[i], NULL), 0, "the proxy has joined it");
	pthread_join(late, NULL);
	/* and it begins again */
	cr_assert_eq(proxy_add(&fifos[0]), 0);
	proxy_remove(&fifos[0]);
}

static void *add_main(void *fifo)
{
	int rc;

	pthread_cancel(pthread_self());
	rc = proxy_add(fifo);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return rc ? NULL : fifo;
}

/* Who comes while the thread is being ended waits for that, under the lock. */
Test(proxy, waits_are_no_cancellation_points, .timeout = 20)
{
	struct fifo fifos[2] = { 0 };
	pthread_t ends, comes;
	void *added = NULL;
	sem_t until;

	sem_init(&until, 0, 0);
	pthread_key_create(&at_end, last);
	atomic_store(&proxy.lasts, &until);
	cr_assert_eq(proxy_add(&fifos[0]), 0);
	while (atomic_load(&proxy.rounds) < 2)
		sleep_ms(1);
	atomic_store(&proxy.lasts, NULL);
	cr_assert_eq(pthread_create(&ends, NULL, remove_main, &fifos[0]), 0);
	sleep_ms(50);
	cr_assert_eq(pthread_create(&comes, NULL, add_main, &fifos[1]), 0);
	sleep_ms(50);
	sem_post(&until);
	pthread_join(comes, &added);
	cr_assert_eq(added, &fifos[1], "it was cancelled");
	pthread_join(ends, NULL);
	proxy_remove(&fifos[1]);
}

/* SPDX-License-Identifier: MIT */
/* A thread a GPU, where the library brings none. */
#ifndef COMPARE_THREADS_CUH
#define COMPARE_THREADS_CUH

#include <pthread.h>

static struct options options;
static struct shared shared;

struct thread {
	pthread_t id;
	struct rank rank;
	void (*fn)(struct rank *r);
};

static void *thread_main(void *arg)
{
	struct thread *t = (struct thread *)arg;

	CHECK(cudaSetDevice(t->rank.pe));
	CHECK(cudaFree(NULL));
	meet(&t->rank); /* all contexts are there */
	t->fn(&t->rank);
	return NULL;
}

static int run_threads(int argc, char **argv, void (*fn)(struct rank *r))
{
	static struct thread threads[COMPARE_MAX_PES];

	parse(&options, argc, argv);
	for (int pe = 0; pe < options.npes; pe++) {
		struct thread *t = &threads[pe];

		t->fn = fn;
		t->rank.shared = &shared;
		t->rank.options = &options;
		t->rank.pe = pe;
		t->rank.npes = options.npes;
		t->rank.window = window_of(&options);
		if (pthread_create(&t->id, NULL, thread_main, t))
			die("no thread %d", pe);
	}
	for (int pe = 0; pe < options.npes; pe++)
		pthread_join(threads[pe].id, NULL);
	return 0;
}

#endif

/* SPDX-License-Identifier: MIT */
#include "caller.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

struct caller {
	int rank;
	pthread_t thread;
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t posted;
	struct errand *first, **end;
	bool idle, stop;
};

/* NULL: there is nothing left, and no more will come. */
static struct errand *caller_next(struct caller *caller)
{
	struct errand *errand;

	pthread_mutex_lock(&caller->lock);
	while (!caller->first && !caller->stop) {
		caller->idle = true;
		pthread_cond_wait(&caller->posted, &caller->lock);
		caller->idle = false;
	}
	errand = caller->first;
	if (errand)
		caller->first = errand->next;
	if (!caller->first)
		caller->end = &caller->first;
	pthread_mutex_unlock(&caller->lock);
	return errand;
}

static void *caller_main(void *arg)
{
	struct caller *caller = arg;
	struct errand *errand;
	char name[24];

	snprintf(name, sizeof(name), "spmt-fn-%d", caller->rank);
	pthread_setname_np(pthread_self(), name);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	while ((errand = caller_next(caller)))
		errand->run(errand);
	return NULL;
}

int caller_open(struct caller **out, int rank)
{
	struct caller *caller = mem_calloc(1, sizeof(*caller));
	int err;

	if (!caller)
		return fail(-ENOMEM, "out of memory for a thread that calls functions");
	caller->rank = rank;
	caller->end = &caller->first;
	pthread_mutex_init(&caller->lock, NULL);
	pthread_cond_init(&caller->posted, NULL);
	err = fault_here(FAULT_THREAD) ? fault_errno(FAULT_THREAD)
				       : process_thread(&caller->thread, 0, caller_main, caller);
	if (!err) {
		*out = caller;
		return 0;
	}
	pthread_cond_destroy(&caller->posted);
	pthread_mutex_destroy(&caller->lock);
	mem_free(caller);
	return fail_errno(err, "no thread that calls functions");
}

void caller_post(struct caller *caller, struct errand *errand)
{
	errand->next = NULL;
	pthread_mutex_lock(&caller->lock);
	*caller->end = errand;
	caller->end = &errand->next;
	if (caller->idle)
		pthread_cond_signal(&caller->posted);
	pthread_mutex_unlock(&caller->lock);
}

bool caller_is_me(const struct caller *caller)
{
	return caller && pthread_equal(caller->thread, pthread_self());
}

void caller_close(struct caller *caller)
{
	UNCANCELLED;

	if (!caller)
		return;
	pthread_mutex_lock(&caller->lock);
	caller->stop = true;
	pthread_cond_signal(&caller->posted);
	pthread_mutex_unlock(&caller->lock);
	pthread_join(caller->thread, NULL);
	pthread_cond_destroy(&caller->posted);
	pthread_mutex_destroy(&caller->lock);
	mem_free(caller);
}

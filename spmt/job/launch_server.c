/* SPDX-License-Identifier: MIT */
/*
 * Asks the launcher's server. libpmix may block without limit, so a thread of its own asks, and
 * each rank waits for that thread until its deadline. A late answer serves the next rank that
 * asks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch_state.h"
#include "src/base/env.h"
#include "src/base/fault.h"
#include "src/base/process.h"

#define END_MS 2000 /* longest that the end of the process waits for the server */

static int thread_start(void *(*fn)(void *arg), void *arg)
{
	pthread_t thread;
	int err = fault_here(FAULT_THREAD) ? fault_errno(FAULT_THREAD)
					   : process_thread(&thread, 0, fn, arg);

	if (!err)
		pthread_detach(thread);
	return err ? fail_call_errno(err, "spmt_init", "a thread to ask the launcher's PMIx server")
		   : 0;
}

/* ---- the end of the process ---------------------------------------------------------------- */

static void *leave_server(void *arg)
{
	struct launch_state *s = arg;

	pmix_close(&s->server.pmix);
	pthread_mutex_lock(&s->lock);
	s->server.state = SERVER_LEFT;
	pthread_mutex_unlock(&s->lock);
	launch_changed(s);
	return NULL;
}

/* A launcher treats a client that ends without PMIx_Finalize as failed. */
static void at_exit(void)
{
	struct launch_state *s = launch_state();
	int64_t begin = process_now();
	bool idle;

	if (!s || atomic_load(launch_client()) != getpid())
		return;
	pthread_mutex_lock(&s->lock);
	idle = s->server.state != SERVER_ASKING && s->server.pmix.connected;
	s->server.state = SERVER_ASKING;
	if (idle && !thread_start(leave_server, s))
		while (s->server.state != SERVER_LEFT && launch_sleep(s, begin, END_MS))
			;
	pthread_mutex_unlock(&s->lock);
}

/* ---- asking -------------------------------------------------------------------------------- */

static int connect_server(struct server *v)
{
	_Atomic(pid_t) *client = launch_client();
	pid_t was = atomic_load(client);
	int rc;

	if (was && was != getpid())
		return fail_call(SPMT_ERR_FORKED, "spmt_init",
			"attr.uid is NULL, but this process was forked by process %d of the launcher's job and is none of it: pass a uid",
			(int)was);
	rc = pmix_open(&v->pmix, v->path);
	if (rc)
		return rc;
	if (!was)
		atexit(at_exit);
	atomic_store(client, getpid());
	return 0;
}

static int ask(struct server *v)
{
	int rc = v->pmix.connected ? 0 : connect_server(v);

	if (!rc && v->pmix.process == 0 && !v->made) {
		rc = uid_create("spmt_init", &v->bytes);
		v->made = !rc;
	}
	if (!rc)
		rc = pmix_spread(&v->pmix, &v->bytes, sizeof(v->bytes), v->timeout_ms);
	return rc;
}

static void *ask_main(void *arg)
{
	struct launch_state *s = arg;
	struct server *v = &s->server;
	struct uid seed;
	int rc = ask(v);

	if (!rc)
		rc = uid_read("spmt_init: what the launcher's PMIx server gave", &v->bytes, &seed);
	pthread_mutex_lock(&s->lock);
	v->code = rc;
	if (rc)
		memcpy(v->sentence, status_sentence(), sizeof(v->sentence));
	else
		v->seed = seed;
	v->state = rc ? SERVER_IDLE : SERVER_KNOWN;
	pthread_mutex_unlock(&s->lock);
	launch_changed(s);
	return NULL;
}

static int ask_begin(struct launch_state *s, int64_t timeout_ms)
{
	struct server *v = &s->server;
	const struct env *env;
	int rc = env_get(&env);

	if (rc)
		return rc;
	v->path = env->pmix_lib;
	v->timeout_ms = timeout_ms;
	v->begun++;
	v->state = SERVER_ASKING;
	rc = thread_start(ask_main, s);
	if (rc)
		v->state = SERVER_IDLE;
	return rc;
}

static int late(const struct server *v, int64_t begin)
{
	const char *call = atomic_load_explicit(&v->pmix.doing, memory_order_acquire);
	double waited = (double)(process_now() - begin) / 1e9;

	if (call && !strcmp(call, "PMIx_Fence"))
		return fail_call(SPMT_ERR_TIMEOUT, "spmt_init",
			"process %d of %d of the launcher's job: PMIx_Fence has not returned after %.*f s: a process has not called spmt_init, or the launcher is gone",
			v->pmix.process, v->pmix.processes, SECONDS(waited));
	return fail_call(SPMT_ERR_TIMEOUT, "spmt_init",
		"%s has not returned after %.*f s: the launcher's PMIx server is silent",
		call ? call : "libpmix", SECONDS(waited));
}

int server_ask(
	struct launch_state *s, int64_t timeout_ms, struct uid *seed, struct job_info *launch)
{
	struct server *v = &s->server;
	int64_t begin = process_now();
	uint64_t came = v->begun;
	int rc = 0;

	while (!rc && v->state != SERVER_KNOWN) {
		/* A failure counts only if its request began after this rank came. */
		if (v->state == SERVER_IDLE && v->begun > came)
			rc = fail_with_call(v->code, "spmt_init", v->sentence);
		else if (v->state == SERVER_IDLE)
			rc = ask_begin(s, timeout_ms);
		else if (!launch_sleep(s, begin, timeout_ms))
			rc = late(v, begin);
	}
	if (rc)
		return rc;
	*seed = v->seed;
	*launch = (struct job_info){ v->pmix.process, v->pmix.processes, v->pmix.local };
	return 0;
}

/* SPDX-License-Identifier: MIT */
#include "fake_pmix.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "spmt/job/abi_pmix.h"

enum { ERR_INIT = -31, ERR_NOT_FOUND = -46 };

#define EXPORT __attribute__((visibility("default")))
#define X(field, symbol, result, args) EXPORT result symbol args;
PMIX_CALLS(X)
#undef X

static struct fake_pmix *job(void)
{
	const char *at = getenv("FAKE_PMIX");

	return (struct fake_pmix *)(at ? strtoull(at, NULL, 16) : 0);
}

static int self(void)
{
	return atoi(getenv("PMIX_RANK"));
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* What every call does first: its status if it is to fail. */
static int enter(enum fake_pmix_call call)
{
	struct fake_pmix *j = job();

	atomic_fetch_add(&j->calls[call], 1);
	if (!(j->whom >> self() & 1))
		return 0;
	while (atomic_load(&j->hang[call]))
		nap();
	return j->status[call];
}

/* ---- a client's life ------------------------------------------------------------------------ */

/* As the real one: who has left cannot come back. */
int PMIx_Init(pmix_proc_t *proc, pmix_info_t *info, size_t ninfo)
{
	struct fake_pmix *j = job();
	int status = enter(FAKE_INIT);

	(void)info;
	(void)ninfo;
	if (status || atomic_load(&j->finals[self()]))
		return status ? status : ERR_INIT;
	atomic_fetch_add(&j->inits[self()], 1);
	memset(proc, 0, sizeof(*proc));
	snprintf(proc->nspace, sizeof(proc->nspace), "%s", getenv("PMIX_NAMESPACE"));
	proc->rank = (uint32_t)self();
	return 0;
}

int PMIx_Finalize(const pmix_info_t *info, size_t ninfo)
{
	(void)info;
	(void)ninfo;
	atomic_fetch_add(&job()->finals[self()], 1);
	return enter(FAKE_FINALIZE);
}

const char *PMIx_Error_string(int status)
{
	return status == PMIX_TIMED_OUT ? "TIMEOUT" : "A-FAKE-FAILURE";
}

const char *PMIx_Get_version(void)
{
	return job()->version ? job()->version : "OpenPMIx 4.2.2, a stand-in";
}

/* ---- keys ----------------------------------------------------------------------------------- */

int PMIx_Put(uint8_t scope, const char *key, pmix_value_t *value)
{
	struct fake_pmix *j = job();
	int status = enter(FAKE_PUT);

	if (status)
		return status;
	if (scope != PMIX_SCOPE_GLOBAL || strcmp(key, "spmt.uid") || self() ||
		value->type != PMIX_TYPE_BYTES || value->data.bo.size > sizeof(j->put))
		return ERR_NOT_FOUND;
	memcpy(j->put, value->data.bo.bytes, value->data.bo.size);
	j->put_size = value->data.bo.size;
	return 0;
}

int PMIx_Commit(void)
{
	struct fake_pmix *j = job();
	int status = enter(FAKE_COMMIT);

	if (status || self())
		return status;
	memcpy(j->committed, j->put, sizeof(j->put));
	j->committed_size = j->put_size;
	return 0;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t timeout_of(const pmix_info_t *info, size_t ninfo)
{
	for (size_t i = 0; i < ninfo; i++)
		if (!strcmp(info[i].key, PMIX_KEY_TIMEOUT))
			return info[i].value.data.integer * (int64_t)1000;
	return -1;
}

/* With the lock; -1: the bound has passed. */
static int fence_wait(struct fake_pmix *j, uint64_t fence, int64_t timeout)
{
	int64_t end = now_ms() + timeout;

	while (j->fences == fence) {
		if (timeout >= 0 && !atomic_load(&j->ignore_timeout) && now_ms() > end) {
			j->at_fence--;
			return -1;
		}
		pthread_mutex_unlock(&j->lock);
		nap();
		pthread_mutex_lock(&j->lock);
	}
	return 0;
}

int PMIx_Fence(const pmix_proc_t *procs, size_t nprocs, const pmix_info_t *info, size_t ninfo)
{
	struct fake_pmix *j = job();
	int status = enter(FAKE_FENCE);

	if (status || procs || nprocs)
		return status;
	pthread_mutex_lock(&j->lock);
	if (++j->at_fence == j->processes) {
		j->at_fence = 0;
		j->fences++;
	} else if (fence_wait(j, j->fences, timeout_of(info, ninfo))) {
		status = PMIX_TIMED_OUT;
	}
	pthread_mutex_unlock(&j->lock);
	return status;
}

/* ---- getting -------------------------------------------------------------------------------- */

static int get_job(const char *key, pmix_value_t *value)
{
	struct fake_pmix *j = job();
	int status = enter(FAKE_GET_JOB), nodes = j->nodes ? j->nodes : 1;

	if (status)
		return status;
	if (!strcmp(key, PMIX_KEY_JOB_SIZE)) {
		value->type = PMIX_TYPE_UINT32;
		value->data.uint32 = j->job_size ? j->job_size : (uint32_t)j->processes;
	} else if (!strcmp(key, PMIX_KEY_LOCAL_RANK) && !atomic_load(&j->no_local_rank)) {
		value->type = PMIX_TYPE_UINT16;
		value->data.uint16 = (uint16_t)(self() / nodes);
	} else {
		status = ERR_NOT_FOUND;
	}
	return status;
}

static void bend(enum fake_pmix_lie lie, pmix_value_t *value)
{
	char *bytes = value->data.bo.bytes;

	if (lie == FAKE_SHORTER)
		value->data.bo.size--;
	if (lie == FAKE_LONGER)
		value->data.bo.size++;
	if (lie == FAKE_FLIPPED)
		bytes[60] ^= 1;
	if (lie == FAKE_ZEROS)
		memset(bytes, 0, value->data.bo.size);
	if (lie == FAKE_NO_BYTES || lie == FAKE_OTHER_TYPE) {
		free(bytes);
		value->data.bo.bytes = NULL;
	}
	if (lie == FAKE_OTHER_TYPE)
		value->type = PMIX_TYPE_UINT32;
}

static int get_put(pmix_value_t *value)
{
	struct fake_pmix *j = job();
	int status = enter(FAKE_GET);

	if (status || !j->committed_size)
		return status ? status : ERR_NOT_FOUND;
	value->type = PMIX_TYPE_BYTES;
	value->data.bo.size = j->committed_size;
	value->data.bo.bytes = malloc(sizeof(j->committed));
	memcpy(value->data.bo.bytes, j->committed, sizeof(j->committed));
	if (j->whom >> self() & 1)
		bend(j->lie, value);
	return 0;
}

int PMIx_Get(const pmix_proc_t *proc, const char *key, const pmix_info_t *info, size_t ninfo,
	pmix_value_t **out)
{
	struct fake_pmix *j = job();
	pmix_value_t *value = calloc(1, sizeof(*value));
	bool own = !strcmp(key, "spmt.uid");
	int status;

	(void)info;
	(void)ninfo;
	status = !own ? get_job(key, value) : proc->rank ? ERR_NOT_FOUND : get_put(value);
	if (status || (own && j->lie == FAKE_NO_VALUE && j->whom >> self() & 1)) {
		free(value->type == PMIX_TYPE_BYTES ? value->data.bo.bytes : NULL);
		free(value);
		value = NULL;
	}
	*out = value;
	return status;
}

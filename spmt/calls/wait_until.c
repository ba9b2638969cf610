/* SPDX-License-Identifier: MIT */
/* wait_until and test, for one word and for many. A look reads the words once; waits look,
   pause, and look again. */
#include <errno.h>
#include <string.h>

#include "atomics.h"
#include "rma.h"
#include "spmt/comm/stream.h"
#include "spmt/comm/waits.h"
#include "spmt/control/exclusive.h"
#include "src/base/names.h"
#include "src/base/status.h"
#include "wait.h"

/* What a call is about: which words, and what has to hold of them. */
struct words {
	enum spmt_type type;
	const void *ivars;
	size_t count;
	const int *status;
	enum spmt_cmp cmp;
	const void *val;
};

struct watch {
	spmt_comm *comm;
	const struct call *call;
	enum spmt_type type;
	enum spmt_cmp cmp;
	uint64_t val;
	const char *ivars; /* symmetric */
	size_t count, size;
	const int *status; /* not 0: left out */
	const char *words; /* where the CPU reads them: ivars, or a snapshot */
	bool snapshot;
	struct spmtd_walk_ walk; /* the order in which a look that takes one word tries them */
	uint64_t seen;		 /* of the last word whose condition did not hold */
	size_t at;		 /* its index */
};

static int watch_check(const struct watch *w, const struct words *words)
{
	enum spmt_type type = words->type;

	if (!type_size(type))
		return fail_call(-EINVAL, w->call->name, "rank %d: unknown type %d", w->comm->rank,
			(int)type);
	if (!type_comparable(type))
		return fail_call(-EINVAL, w->call->name,
			"rank %d: type %s cannot be waited for (integers, f32, f64)", w->comm->rank,
			type_name(type));
	if ((unsigned)words->cmp > SPMT_CMP_LE)
		return fail_call(-EINVAL, w->call->name, "rank %d: unknown compare %d",
			w->comm->rank, (int)words->cmp);
	if (!words->val)
		return fail_call(-EINVAL, w->call->name, "rank %d: val is NULL", w->comm->rank);
	return 0;
}

static int watch_range(const struct watch *w)
{
	size_t bytes;

	if (!w->count)
		return 0;
	if (__builtin_mul_overflow(w->count, w->size, &bytes))
		return fail_call(-EINVAL, w->call->name,
			"rank %d: %s %p: %zu words of %zu bytes wrap the address space",
			w->comm->rank, w->call->remote, (const void *)w->ivars, w->count, w->size);
	if (!w->ivars || !heap_clear(w->comm->heap, w->ivars, bytes)) {
		int rc = rma_judge(w->comm, w->call, w->ivars, w->ivars, bytes);

		if (rc)
			return rc;
	}
	if ((uintptr_t)w->ivars % w->size)
		return fail_call(-EINVAL, w->call->name, "rank %d: %s %p is not %zu-byte aligned",
			w->comm->rank, w->call->remote, (const void *)w->ivars, w->size);
	return 0;
}

/* From open on the comm stays: who waits in a loop sees its end by -EBADF, wherever in the loop it is. */
#define WATCH(w) struct watch w __attribute__((cleanup(watch_close))) = { .comm = NULL }

static void watch_close(struct watch *w)
{
	if (w->comm)
		comm_left(w->comm);
}

static int watch_open(
	struct watch *w, spmt_comm *comm, const struct call *call, const struct words *words)
{
	int rc = comm_visit(comm, call->name);

	if (rc)
		return rc;
	w->comm = comm;
	rc = comm_enter(comm, call->name);
	if (rc)
		return rc;
	*w = (struct watch){ .comm = comm,
		.call = call,
		.type = words->type,
		.cmp = words->cmp,
		.ivars = words->ivars,
		.count = words->count,
		.size = type_size(words->type),
		.status = words->status,
		.words = words->ivars };
	rc = watch_check(w, words);
	if (!rc)
		rc = watch_range(w);
	if (rc)
		return rc;
	memcpy(&w->val, words->val, w->size);
	if (comm_cpu_access(comm) || !w->count)
		return 0;
	rc = scratch_room(comm, w->count * w->size);
	if (rc)
		return comm_failed(comm, call->name, rc);
	w->snapshot = true;
	w->words = scratch_host(comm);
	return 0;
}

/* Reads the words as they are now. */
static int watch_read(struct watch *w)
{
	spmt_comm *comm = w->comm;
	int rc;

	if (!w->snapshot)
		return 0;
	rc = comm->backend->copy(
		comm->dev, scratch_dev(comm), w->ivars, w->count * w->size, comm->stream);
	return comm_failed(comm, w->call->name, rc ? rc : stream_drain(comm, w->call->name));
}

static bool watch_in(const struct watch *w, size_t i)
{
	return !w->status || !w->status[i];
}

static bool watch_holds(struct watch *w, size_t i)
{
	uint64_t seen = word_load(w->type, w->words + i * w->size);

	if (word_compare(w->type, w->cmp, seen, w->val))
		return true;
	w->seen = seen;
	w->at = i;
	return false;
}

static bool watch_empty(const struct watch *w)
{
	for (size_t i = 0; i < w->count; i++)
		if (watch_in(w, i))
			return false;
	return true;
}

/* ---- looks: 1 the condition holds, 0 it does not, negative: the words cannot be read ------- */

struct found {
	size_t index, *indices, count;
	uint64_t value; /* of the word, where there is one */
};

static int look_any(struct watch *w, struct found *f)
{
	uint64_t at = w->walk.at;
	int rc = watch_read(w);

	for (uint64_t k = 0; !rc && w->count && k <= w->walk.mask; k++, at += w->walk.step) {
		size_t i = (size_t)(at & w->walk.mask);

		if (i >= w->count || !watch_in(w, i) || !watch_holds(w, i))
			continue;
		f->index = i;
		return 1;
	}
	return rc;
}

static int look_some(struct watch *w, struct found *f)
{
	int rc = watch_read(w);

	f->count = 0;
	for (size_t i = 0; !rc && i < w->count; i++)
		if (watch_in(w, i) && watch_holds(w, i))
			f->indices[f->count++] = i;
	return rc ? rc : f->count > 0;
}

static int look_all(struct watch *w, struct found *f)
{
	int rc = watch_read(w);

	(void)f;
	for (size_t i = 0; !rc && i < w->count; i++)
		if (watch_in(w, i) && !watch_holds(w, i))
			return 0;
	return rc ? rc : 1;
}

static int timed_out(const struct watch *w)
{
	int64_t ms = comm_timeout(w->comm);

	return fail_call(SPMT_ERR_TIMEOUT, w->call->name,
		"rank %d: after %lld.%03lld s the word at offset %#llx is %s, waited for %s %s",
		w->comm->rank, (long long)(ms / 1000), (long long)(ms % 1000),
		(unsigned long long)heap_offset(w->comm->heap, w->ivars + w->at * w->size),
		word_text(w->type, w->seen).text, cmp_name(w->cmp),
		word_text(w->type, w->val).text);
}

/* Shows the word whose condition did not hold. Another thread may have begun to finalize the comm: that waits for this call, and
   nobody else would end it. */
static int watch_pause(const struct watch *w, struct spmtd_pause *pause)
{
	const struct wait_for wait = { .name = w->call->name,
		.word = true,
		.type = w->type,
		.cmp = w->cmp,
		.offset = heap_offset(w->comm->heap, w->ivars + w->at * w->size),
		.value = w->val,
		.seen = w->seen };

	return LIKELY(object_is_open(&w->comm->head)) ? wait_pause(w->comm, pause, &wait)
						      : comm_enter_any(w->comm, w->call->name);
}

static int watch_wait(struct watch *w, int (*look)(struct watch *, struct found *), struct found *f)
{
	struct spmtd_pause pause = { .n = 0 };
	int done = look(w, f), rc = 0;

	if (done)
		return done < 0 ? done : 0;
	do
		rc = watch_pause(w, &pause);
	while (!rc && !(done = look(w, f)));
	wait_end(w->comm, &pause);
	if (rc == SPMT_ERR_TIMEOUT && done == 0 && atomic_load(&w->comm->control->stop) == 0)
		rc = timed_out(w);
	return done < 0 ? done : rc;
}

/* ---- the calls ----------------------------------------------------------------------------- */

static int need_output(const struct watch *w, const char *name, const void *output)
{
	return output
		? 0
		: fail_call(-EINVAL, w->call->name, "rank %d: %s is NULL", w->comm->rank, name);
}

static int wait_all(spmt_comm *comm, const struct call *call, const struct words *words)
{
	WATCH(w);
	int rc = watch_open(&w, comm, call, words);

	return rc ? rc : watch_wait(&w, look_all, NULL);
}

static int test_all(
	spmt_comm *comm, const struct call *call, const struct words *words, int *result)
{
	WATCH(w);
	int rc = watch_open(&w, comm, call, words);

	if (!rc)
		rc = need_output(&w, "result", result);
	if (rc)
		return rc;
	rc = look_all(&w, NULL);
	if (rc >= 0)
		*result = rc;
	return MIN_OF(rc, 0);
}

/* waits: until one holds; else one look. */
static int find_any(spmt_comm *comm, const struct call *call, const struct words *words,
	size_t *index, bool waits)
{
	WATCH(w);
	struct found f = { .index = SIZE_MAX };
	int rc = watch_open(&w, comm, call, words);

	if (!rc)
		rc = need_output(&w, "index", index);
	if (rc)
		return rc;
	w.walk = spmtd_any_walk_(w.count, comm->looks++);
	if (!watch_empty(&w))
		rc = waits ? watch_wait(&w, look_any, &f) : look_any(&w, &f);
	if (rc >= 0)
		*index = f.index;
	return MIN_OF(rc, 0);
}

static int find_some(spmt_comm *comm, const struct call *call, const struct words *words,
	struct found *f, size_t *found, bool waits)
{
	WATCH(w);
	int rc = watch_open(&w, comm, call, words);

	if (!rc)
		rc = need_output(&w, "indices", f->indices);
	if (!rc)
		rc = need_output(&w, "found", found);
	if (rc)
		return rc;
	if (!watch_empty(&w))
		rc = waits ? watch_wait(&w, look_some, f) : look_some(&w, f);
	if (rc >= 0)
		*found = f->count;
	return MIN_OF(rc, 0);
}

int spmt_wait_until(
	spmt_comm *comm, enum spmt_type type, const void *ivar, enum spmt_cmp cmp, const void *val)
{
	static const struct call call = { "spmt_wait_until", "ivar", NULL };
	EXCLUSIVE(comm, __func__);

	return wait_all(comm, &call, &(struct words){ type, ivar, 1, NULL, cmp, val });
}

int spmt_wait_until_all(spmt_comm *comm, enum spmt_type type, const void *ivars, size_t count,
	const int *status, enum spmt_cmp cmp, const void *val)
{
	static const struct call call = { "spmt_wait_until_all", "ivars", NULL };
	EXCLUSIVE(comm, __func__);

	return wait_all(comm, &call, &(struct words){ type, ivars, count, status, cmp, val });
}

int spmt_wait_until_any(spmt_comm *comm, enum spmt_type type, const void *ivars, size_t count,
	const int *status, enum spmt_cmp cmp, const void *val, size_t *index)
{
	static const struct call call = { "spmt_wait_until_any", "ivars", NULL };
	EXCLUSIVE(comm, __func__);

	return find_any(
		comm, &call, &(struct words){ type, ivars, count, status, cmp, val }, index, true);
}

int spmt_wait_until_some(spmt_comm *comm, enum spmt_type type, const void *ivars, size_t count,
	const int *status, enum spmt_cmp cmp, const void *val, size_t *indices, size_t *found)
{
	static const struct call call = { "spmt_wait_until_some", "ivars", NULL };
	EXCLUSIVE(comm, __func__);

	return find_some(comm, &call, &(struct words){ type, ivars, count, status, cmp, val },
		&(struct found){ .indices = indices }, found, true);
}

int spmt_test(spmt_comm *comm, enum spmt_type type, const void *ivar, enum spmt_cmp cmp,
	const void *val, int *result)
{
	static const struct call call = { "spmt_test", "ivar", NULL };
	EXCLUSIVE(comm, __func__);

	return test_all(comm, &call, &(struct words){ type, ivar, 1, NULL, cmp, val }, result);
}

int spmt_test_all(spmt_comm *comm, enum spmt_type type, const void *ivars, size_t count,
	const int *status, enum spmt_cmp cmp, const void *val, int *result)
{
	static const struct call call = { "spmt_test_all", "ivars", NULL };
	EXCLUSIVE(comm, __func__);

	return test_all(
		comm, &call, &(struct words){ type, ivars, count, status, cmp, val }, result);
}

int spmt_test_any(spmt_comm *comm, enum spmt_type type, const void *ivars, size_t count,
	const int *status, enum spmt_cmp cmp, const void *val, size_t *index)
{
	static const struct call call = { "spmt_test_any", "ivars", NULL };
	EXCLUSIVE(comm, __func__);

	return find_any(
		comm, &call, &(struct words){ type, ivars, count, status, cmp, val }, index, false);
}

int spmt_test_some(spmt_comm *comm, enum spmt_type type, const void *ivars, size_t count,
	const int *status, enum spmt_cmp cmp, const void *val, size_t *indices, size_t *found)
{
	static const struct call call = { "spmt_test_some", "ivars", NULL };
	EXCLUSIVE(comm, __func__);

	return find_some(comm, &call, &(struct words){ type, ivars, count, status, cmp, val },
		&(struct found){ .indices = indices }, found, false);
}

/* ---- signals are u64 words ----------------------------------------------------------------- */

int spmt_signal_fetch(spmt_comm *comm, const uint64_t *sig, uint64_t *val)
{
	static const struct call call = { "spmt_signal_fetch", "sig", NULL };
	EXCLUSIVE(comm, __func__);
	WATCH(w);
	uint64_t zero = 0;
	const struct words words = { SPMT_TYPE_U64, sig, 1, NULL, SPMT_CMP_EQ, &zero };
	int rc = watch_open(&w, comm, &call, &words);

	if (!rc)
		rc = need_output(&w, "val", val);
	if (rc)
		return rc;
	rc = watch_read(&w);
	if (!rc)
		*val = word_load(SPMT_TYPE_U64, w.words);
	return rc;
}

static int look_signal(struct watch *w, struct found *f)
{
	int rc = watch_read(w);

	if (rc)
		return rc;
	w->seen = word_load(SPMT_TYPE_U64, w->words);
	f->value = w->seen;
	return word_compare(SPMT_TYPE_U64, w->cmp, w->seen, w->val);
}

int spmt_signal_wait(
	spmt_comm *comm, const uint64_t *sig, enum spmt_cmp cmp, uint64_t val, uint64_t *seen)
{
	static const struct call call = { "spmt_signal_wait", "sig", NULL };
	EXCLUSIVE(comm, __func__);
	WATCH(w);
	struct found f = { .value = 0 };
	const struct words words = { SPMT_TYPE_U64, sig, 1, NULL, cmp, &val };
	int rc = watch_open(&w, comm, &call, &words);

	if (rc)
		return rc;
	rc = watch_wait(&w, look_signal, &f);
	if (!rc && seen)
		*seen = f.value;
	return rc;
}

/* SPDX-License-Identifier: MIT */
/*
 * One uid for ranks that were not given one. The ranks of a process that join the same world are
 * a party: the first to come finds the uid for all of them, from the user's bootstrap, or derives
 * it from what the job shares, by the launcher or by SPMT_UID. A rank that comes again begins the next world, or joins
 * those who have begun it. All calls that a process makes for a world go through one party, failing ones too, since other
 * processes count the world once.
 */
#include "launch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch_state.h"
#include "named.h"
#include "src/base/env.h"
#include "src/base/futex.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "user.h"

#define ATTR_FIRST offsetof(struct spmt_attr, bootstrap) /* as large as the first one was */
#define FILE_LOOK_MS 10					 /* for the file that SPMT_UID names */

static struct {
	void *_Atomic pages;
	_Atomic(pid_t) client;
} launched;

struct launch_state *launch_state(void)
{
	return process_state(&launched.pages, sizeof(struct launch_state));
}

_Atomic(pid_t) *launch_client(void)
{
	return &launched.client;
}

void launch_changed(struct launch_state *s)
{
	atomic_fetch_add(&s->turns, 1);
	futex_wake_all(&s->turns);
}

bool launch_sleep(struct launch_state *s, int64_t begin, int64_t timeout_ms)
{
	uint32_t seen = atomic_load(&s->turns);
	int64_t left = timeout_ms < 0 ? -1 : begin + timeout_ms * 1000000 - process_now();

	if (timeout_ms >= 0 && left <= 0)
		return false;
	pthread_mutex_unlock(&s->lock);
	futex_sleep(&s->turns, seen, left);
	pthread_mutex_lock(&s->lock);
	return true;
}

/* ---- attributes ---------------------------------------------------------------------------- */

int attr_take(
	const char *what, const char *name, const struct spmt_attr *given, struct spmt_attr *attr)
{
	const unsigned char *bytes = (const unsigned char *)given;

	if (given->size < sizeof(*attr) && given->size != ATTR_FIRST)
		return fail_call(-EINVAL, what,
			"%s.size %zu is below %zu: begin with SPMT_ATTR_INIT", name, given->size,
			(size_t)ATTR_FIRST);
	if (given->size > STRUCT_MOST)
		return fail_call(-EINVAL, what,
			"%s.size %zu is above %d: begin with SPMT_ATTR_INIT", name, given->size,
			STRUCT_MOST);
	memset(attr, 0, sizeof(*attr));
	memcpy(attr, given, MIN_OF(given->size, sizeof(*attr)));
	attr->size = sizeof(*attr);
	for (size_t i = sizeof(*attr); i < given->size; i++)
		if (bytes[i])
			return fail_call(-EINVAL, what,
				"%s.size %zu: byte %zu asks for something this library (%s) does not know",
				name, given->size, i, spmt_version());
	return 0;
}

int launch_ranks(const struct job_info *launch, struct spmt_attr *attr)
{
	int share, first;

	if (!launch->processes || attr->nranks < 0)
		return 0;
	if (!attr->nranks && attr->rank)
		return fail_call(-EINVAL, "spmt_init",
			"attr.rank %d with nranks 0: the job gives both or neither", attr->rank);
	if (!attr->nranks) {
		attr->rank = launch->process;
		attr->nranks = launch->processes;
		return 0;
	}
	if (attr->nranks % launch->processes)
		return fail_call(-EINVAL, "spmt_init",
			"rank %d: attr.nranks %d is no multiple of the job's %d processes; other worlds need a uid",
			attr->rank, attr->nranks, launch->processes);
	share = attr->nranks / launch->processes;
	first = launch->process * share;
	if (attr->rank < first || attr->rank >= first + share)
		return fail_call(-EINVAL, "spmt_init",
			"attr.rank %d of %d: process %d of %d has the ranks %d .. %d", attr->rank,
			attr->nranks, launch->process, launch->processes, first, first + share - 1);
	return 0;
}

int launch_device(const struct job_info *launch, int rank, int nranks, int count)
{
	int share = nranks / launch->processes, position = rank - launch->process * share;

	return count == share ? position : launch->local * share + position;
}

/* ---- parties ------------------------------------------------------------------------------- */

/* A call that has come to a party. */
struct joiner {
	struct joiner *next;
	int process, rank; /* rank -1: none that can be */
	int share;	   /* ranks a process by its nranks; 0: that tells no number */
	pid_t thread;
};

struct party {
	struct party *next;
	const void *key; /* the user's struct; NULL: the launcher */
	struct joiner *joined;
	int members; /* the smallest share that a call has told; 0: none has yet */
	int came, inside;
	bool listed; /* somebody is still to come */
	/* what the first has found for all */
	bool found;
	int code;
	char sentence[STATUS_SENTENCE];
	uint64_t number; /* of the world in the launcher's job */
	struct uid uid;
	struct job_info launch;
};

static struct joiner joiner_of(const struct spmt_attr *attr, const struct job_info *launch)
{
	struct joiner j = {
		.process = launch->process, .rank = -1, .thread = (pid_t)syscall(SYS_gettid)
	};
	int nranks = attr->nranks;

	if (nranks) {
		j.rank = MAX_OF(attr->rank, -1);
		if (nranks > 0 && nranks <= RANKS_MOST && nranks % launch->processes == 0)
			j.share = nranks / launch->processes;
	} else if (!attr->rank) {
		j.rank = launch->process;
		j.share = 1;
	}
	return j;
}

/* Its number among the ranks of its process, of which there are `members` where its own nranks does not tell; -1: it is none of
   them. While nobody has told, all that is known is its number in the world. */
static int joiner_place(const struct joiner *j, int members)
{
	int64_t share = j->share ? j->share : members, place = j->rank - j->process * share;

	return place >= 0 && (!share || place < share) ? (int)place : -1;
}

/* A rank that is none of its process's comes in the stead of one that is, and is told so once the world is known. Of calls whose
   arguments do not fit, those from one thread are one rank's as well. */
static bool same_rank(const struct joiner *a, const struct joiner *b, int members)
{
	int of_a = joiner_place(a, members), of_b = joiner_place(b, members);
	bool fit = a->share && b->share && of_a >= 0 && of_b >= 0;

	return (of_a >= 0 && of_a == of_b) || (!fit && a->thread == b->thread);
}

static bool party_awaits(const struct party *p, const struct joiner *j)
{
	const struct joiner *other = p->joined;

	if (p->members && joiner_place(j, p->members) >= p->members)
		return false;
	while (other && !same_rank(other, j, p->members))
		other = other->next;
	return !other;
}

static void party_free(struct party *p)
{
	while (p->joined) {
		struct joiner *j = p->joined;

		p->joined = j->next;
		mem_free(j);
	}
	mem_free(p);
}

/* Takes it off the list if nobody is still to come. */
static bool party_unlist_full(struct party **at)
{
	struct party *p = *at;

	if (!p->members || p->came < p->members)
		return false;
	*at = p->next;
	p->listed = false;
	if (!p->inside)
		party_free(p);
	return true;
}

static void party_leave(struct party *p)
{
	p->inside--;
	if (!p->inside && !p->listed)
		party_free(p);
}

/* The oldest party that this rank has not joined; else the end of the list. This call tells the size of those of which it is
   unknown. */
static struct party **party_find(struct launch_state *s, const void *key, const struct joiner *j)
{
	struct party **at = &s->parties;

	while (*at) {
		struct party *p = *at;

		if (p->key == key && !p->members) {
			p->members = j->share;
			if (party_unlist_full(at))
				continue;
		}
		if (p->key == key && party_awaits(p, j))
			break;
		at = &p->next;
	}
	return at;
}

/* A rank's nth call is for the nth world, also where another rank, whose call has failed, has begun the next before this one
   comes to the first. Keeps j unless it gives NULL: out of memory. */
static struct party *party_join(
	struct launch_state *s, const void *key, struct joiner *j, bool *first)
{
	struct party **at = party_find(s, key, j), *p = *at;

	*first = !p;
	if (!p) {
		p = mem_calloc(1, sizeof(*p));
		if (!p)
			return NULL;
		p->key = key;
		p->members = j->share;
		p->listed = true;
		*at = p;
	}
	if (j->share && j->share < p->members)
		p->members = j->share; /* one has passed too many, and that many may never come */
	j->next = p->joined;
	p->joined = j;
	p->inside++;
	p->came++;
	party_unlist_full(at);
	return p;
}

static struct party *party_of(struct launch_state *s, const struct spmt_attr *attr,
	const struct job_info *launch, bool *first)
{
	struct joiner *j = mem_alloc(sizeof(*j));
	struct party *p = NULL;

	if (j) {
		*j = joiner_of(attr, launch);
		p = party_join(s, attr->bootstrap, j, first);
	}
	if (!p) {
		mem_free(j);
		fail_call(-ENOMEM, "spmt_init", "rank %d: out of memory for the world's name",
			attr->rank);
	}
	return p;
}

/* ---- the sources --------------------------------------------------------------------------- */

/* All are called with the lock held and release it while they wait. */
static int environment_process(const struct env *env, struct job_info *launch)
{
	if (!env->process)
		return fail_call(-EINVAL, "spmt_init",
			"SPMT_UID is set and SPMT_PROCESS is not, which says what process this is and of how many (0/2)");
	return named_process(env->process, launch);
}

static int environment_uid(
	struct launch_state *s, const struct env *env, int64_t timeout_ms, struct uid *seed)
{
	int64_t begin = process_now();
	int rc;

	if (!strchr(env->uid, '/'))
		return named_uid("spmt_init: SPMT_UID, which is no path without a / (./FILE)",
			env->uid, strlen(env->uid), seed);
	while ((rc = named_file(env->uid, seed)) == -EAGAIN) {
		int64_t now = process_now();

		if (timeout_ms >= 0 && now - begin >= timeout_ms * 1000000)
			return fail_call(SPMT_ERR_TIMEOUT, "spmt_init",
				"SPMT_UID=%s: there is no such file, or no whole uid in it, after %.*f s",
				env->uid, SECONDS((double)(now - begin) / 1e9));
		launch_sleep(s, now, FILE_LOOK_MS);
	}
	return rc;
}

/* The call counts from when it is known which process this is, though the uid may not come in time: the other processes count theirs. */
static int from_launcher(struct launch_state *s, const struct spmt_attr *attr, int64_t timeout_ms,
	struct uid *uid, struct job_info *launch)
{
	const struct env *env = env_loaded();
	struct uid seed;
	struct party *p;
	bool first;
	int rc = env->uid ? environment_process(env, launch)
			  : server_ask(s, timeout_ms, &seed, launch);

	if (rc)
		return rc;
	p = party_of(s, attr, launch, &first);
	if (!p)
		return -ENOMEM;
	if (first)
		p->number = ++s->worlds;
	if (env->uid)
		rc = environment_uid(s, env, timeout_ms, &seed);
	if (!rc)
		uid_derive(&seed, &p->number, sizeof(p->number), uid);
	explicit_bzero(&seed, sizeof(seed));
	party_leave(p);
	return rc;
}

static void user_ask(
	struct launch_state *s, struct party *p, const struct spmt_bootstrap *user, int nranks)
{
	struct uid uid = { 0 };
	struct job_info launch = { 0 };
	int code;

	pthread_mutex_unlock(&s->lock);
	code = user_spread(user, nranks ? nranks : user->processes, &uid, &launch);
	pthread_mutex_lock(&s->lock);
	p->code = code;
	if (code)
		memcpy(p->sentence, status_sentence(), sizeof(p->sentence));
	p->uid = uid;
	p->launch = launch;
	p->found = true;
	launch_changed(s);
}

static int from_user(struct launch_state *s, const struct spmt_attr *attr, int64_t timeout_ms,
	struct uid *uid, struct job_info *launch)
{
	struct spmt_bootstrap user;
	int64_t begin = process_now();
	struct party *p;
	bool first;
	int rc = user_check(attr->bootstrap, attr->rank, &user);

	if (rc)
		return rc;
	*launch = (struct job_info){ user.process, user.processes, 0 };
	p = party_of(s, attr, launch, &first);
	if (!p)
		return -ENOMEM;
	if (first)
		user_ask(s, p, &user, attr->nranks);
	while (!rc && !p->found)
		if (!launch_sleep(s, begin, timeout_ms))
			rc = fail_call(SPMT_ERR_TIMEOUT, "spmt_init",
				"rank %d: attr.bootstrap's all_gather, called by another rank of process %d, has not returned after %.*f s",
				attr->rank, user.process,
				SECONDS((double)(process_now() - begin) / 1e9));
	if (!rc && p->code)
		rc = fail_with(p->code, p->sentence);
	if (!rc) {
		*uid = p->uid;
		*launch = p->launch;
	}
	party_leave(p);
	return rc;
}

static int from_job(const struct spmt_attr *attr, struct uid *uid, struct job_info *launch)
{
	struct launch_state *s = launch_state();
	const struct env *env;
	int64_t timeout;
	int rc = env_get(&env);

	if (rc)
		return fail_call(rc, "spmt_init", "%s", status_sentence());
	if (!s)
		return fail_call(-ENOMEM, "spmt_init", "no memory for what is known of the job");
	timeout = MIN_OF(attr->timeout_ms ? attr->timeout_ms : env->timeout, TIMEOUT_MOST);
	pthread_mutex_lock(&s->lock);
	rc = (attr->bootstrap ? from_user : from_launcher)(s, attr, timeout, uid, launch);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

bool launch_in_job(void)
{
	const struct env *env;

	return env_launched() || env_get(&env) || env->uid;
}

int launch_uid(const struct spmt_attr *attr, struct uid *uid, struct job_info *launch)
{
	char what[32];
	spmt_uid own;
	int rc;

	snprintf(what, sizeof(what), "spmt_init: rank %d", attr->rank);
	*launch = (struct job_info){ 0 };
	if (attr->uid)
		return uid_read(what, attr->uid, uid);
	if (attr->bootstrap || (attr->nranks != 1 && launch_in_job()))
		return from_job(attr, uid, launch);
	if (attr->nranks < 0)
		return fail_call(-EINVAL, "spmt_init",
			"attr.nranks %d: a world has at least one rank", attr->nranks);
	if (attr->nranks != 1)
		return fail_call(-EINVAL, "spmt_init",
			"rank %d: attr.uid is NULL with nranks %d: all ranks pass one uid from spmt_uid_create, or mpirun or srun --mpi=pmix start the processes, or SPMT_UID and SPMT_PROCESS name a job",
			attr->rank, attr->nranks);
	rc = uid_create(what, &own);
	return rc ? rc : uid_read("spmt_init", &own, uid);
}

/* SPDX-License-Identifier: MIT */
#include "bindings/jax/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- crews */

static void crew_free(struct crew *crew, int nranks)
{
	for (int i = 0; crew->locks && i < nranks; i++)
		pthread_mutex_destroy(&crew->locks[i]);
	free(crew->locks);
	free(crew->comms);
	free(crew);
}

void crew_leave(struct crew *crew, int nranks)
{
	while (crew) {
		struct crew *older = crew->older;

		spmt_finalize_all(nranks, crew->comms);
		crew_free(crew, nranks);
		crew = older;
	}
}

static int crew_make(struct world *world, int group, struct crew **out)
{
	size_t n = (size_t)world->nranks;
	struct crew *crew = calloc(1, sizeof(*crew));
	int rc = -ENOMEM;

	if (!crew)
		return rc;
	crew->locks = calloc(n, sizeof(pthread_mutex_t));
	crew->comms = calloc(n, sizeof(*crew->comms));
	for (size_t i = 0; crew->locks && i < n; i++)
		pthread_mutex_init(&crew->locks[i], NULL);
	if (crew->locks && crew->comms)
		rc = xla_world_join(world, group, crew->comms);
	if (rc)
		crew_free(crew, world->nranks);
	else
		*out = crew;
	return rc;
}

int crew_join(struct world *world, int group)
{
	struct group *g = &world->groups[group];

	g->turns = calloc(1, sizeof(*g->turns) + (size_t)world->nranks * sizeof(g->turns->of[0]));
	return !g->turns ? -ENOMEM : crew_make(world, group, &world->groups[group].crew);
}

/* Under the group's lock. A rank is never behind its latest turn: a run that it has been through and comes to again is another one. */
static int64_t turn_of(const struct visit *visit)
{
	struct turns *turns = visit->world->groups[visit->group].turns;
	int64_t *latest = &turns->of[visit->rank], turn = *latest ? *latest : 1;

	if (turn <= turns->last - TURNS)
		turn = turns->last - TURNS + 1;
	while (turn <= turns->last && turns->runs[turn % TURNS] != visit->run)
		turn++;
	if (turn > turns->last) {
		turns->last = turn;
		turns->runs[turn % TURNS] = visit->run;
	}
	*latest = turn;
	return turn;
}

/* Under the group's lock. The first failure counts, for all turns that have come so far. */
static void crew_fail(struct crew *crew, int64_t turn, enum ffi_code code, const char *why)
{
	if (turn > crew->last)
		crew->last = turn;
	if (crew->code == FFI_OK) {
		crew->code = code;
		snprintf(crew->why, sizeof(crew->why), "%s", why);
	}
}

/* Under the group's lock, which is given up meanwhile: comms that work, for `turn` and what follows. */
static void crew_renew(struct world *world, int index, int64_t turn)
{
	struct group *group = &world->groups[index];
	struct crew *crew = NULL;
	int rc;

	group->renewing = true;
	pthread_mutex_unlock(&group->issue);
	rc = crew_make(world, index, &crew);
	pthread_mutex_lock(&group->issue);
	group->renewing = false;
	pthread_cond_broadcast(&group->renewed);
	if (rc) {
		group->crew->code = code_of(rc);
		snprintf(group->crew->why, sizeof(group->crew->why), "spmt: %s", spmt_last_error());
		group->crew->last = turn;
		return;
	}
	crew->older = group->crew;
	crew->first = turn;
	group->crew = crew;
}

/* The crew that this run has, the same on all devices; or NULL, and why it has none. */
static struct crew *crew_enter(
	const struct visit *visit, enum ffi_code *code, char *why, size_t size)
{
	struct group *group = &visit->world->groups[visit->group];
	struct crew *crew, *failed = NULL;
	int64_t turn;

	pthread_mutex_lock(&group->issue);
	turn = turn_of(visit);
	while (!failed) {
		crew = group->crew;
		if (turn < crew->first)
			failed = crew->older;
		else if (crew->code == FFI_OK)
			break;
		else if (turn <= crew->last)
			failed = crew;
		else if (group->renewing)
			pthread_cond_wait(&group->renewed, &group->issue);
		else
			crew_renew(visit->world, visit->group, turn);
	}
	if (failed) {
		*code = failed->code;
		snprintf(why, size, "%s", failed->why);
		crew = NULL;
	} else if (turn > crew->last) {
		crew->last = turn;
	}
	pthread_mutex_unlock(&group->issue);
	return crew;
}

/* ---- what went wrong */

/* Sentences of the library's have ranks; a mesh may count its devices otherwise. */
static void say_devices(const struct visit *visit, char *text, size_t size)
{
	const struct world *world = visit->world;
	size_t n = strlen(text);
	int same = 0;

	while (same < world->nranks && xla_world_device(world, visit->group, same) == same)
		same++;
	for (int i = 0; same < world->nranks && i < world->nranks && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%d", i ? ", " : "; ranks are devices ",
			xla_world_device(world, visit->group, i));
}

static struct ffi_error *device_failed(struct ffi_frame *frame, const struct visit *visit,
	struct crew *crew, int rc, const char *why)
{
	struct group *group = &visit->world->groups[visit->group];

	pthread_mutex_lock(&group->issue);
	crew_fail(crew, turn_of(visit), code_of(rc), why);
	pthread_mutex_unlock(&group->issue);
	spmt_abort(crew->comms[visit->rank], rc); /* nobody waits for this rank */
	return error_make(frame->api, code_of(rc), "%s", why);
}

void device_refuse(const struct visit *visit, enum kind kind, const char *why)
{
	struct group *group = &visit->world->groups[visit->group];
	struct crew *crew;
	char text[512];
	int64_t turn;

	snprintf(text, sizeof(text), "spmt %s: device %d did not take part: %s", kind_names[kind],
		xla_world_device(visit->world, visit->group, visit->rank), why);
	pthread_mutex_lock(&group->issue);
	turn = turn_of(visit);
	crew = turn < group->crew->first ? NULL : group->crew;
	if (crew)
		crew_fail(crew, turn, FFI_ABORTED, text);
	pthread_mutex_unlock(&group->issue);
	if (crew)
		spmt_abort(crew->comms[visit->rank], 0);
}

int device_status(struct world *world, int group, char *why, size_t size)
{
	struct group *g = &world->groups[group];
	struct crew *crew;
	bool told;

	pthread_mutex_lock(&g->issue);
	crew = g->crew;
	told = crew->code != FFI_OK;
	pthread_mutex_unlock(&g->issue);
	for (int i = 0; !told && i < world->nranks; i++) {
		int rc = spmt_status(crew->comms[i]);

		if (rc) {
			snprintf(why, size, "spmt: %s", spmt_last_error());
			return rc;
		}
	}
	return 0;
}

/* ---- calls */

struct ffi_error *device_check(struct ffi_frame *frame, enum kind kind, const struct call *call)
{
	if (kind == KIND_RAGGED)
		return error_make(frame->api, FFI_UNIMPLEMENTED,
			"spmt ragged_all_to_all: its tables are in the GPU's memory");
	if (!call->before || call->before == call->dst || !call->bytes)
		return NULL;
	return error_make(frame->api, FFI_INVALID_ARGUMENT,
		"spmt %s: on a GPU what the result holds before is a buffer that the result takes over (operand_output_aliases)",
		kind_names[kind]);
}

struct ffi_error *device_queue(
	struct ffi_frame *frame, const struct visit *visit, const struct call *call)
{
	struct ffi_stream_get get = { { sizeof(get), NULL }, frame->ctx, NULL };
	struct ffi_error *error = frame->api->stream_get(&get);
	struct crew *crew;
	enum ffi_code code;
	char why[512];
	int rc;

	if (error)
		return error;
	crew = crew_enter(visit, &code, why, sizeof(why));
	if (!crew)
		return error_make(frame->api, code, "%s", why);
	pthread_mutex_lock(&crew->locks[visit->rank]);
	rc = spmt_status(crew->comms[visit->rank]); /* of calls before this one */
	if (!rc)
		rc = call_issue(call, visit->site, crew->comms[visit->rank],
			get.stream ? get.stream : SPMT_STREAM_LEGACY);
	if (rc) {
		snprintf(
			why, sizeof(why), "spmt %s: %s", kind_names[call->kind], spmt_last_error());
		say_devices(visit, why, sizeof(why));
	}
	pthread_mutex_unlock(&crew->locks[visit->rank]);
	return rc ? device_failed(frame, visit, crew, rc, why) : NULL;
}

/* SPDX-License-Identifier: MIT */
/*
 * What XLA calls. At registration it asks for the version with neither context nor arguments. When a program is compiled it
 * calls instantiate once a call in it, and keeps what that leaves: so one number names the call on all devices, whatever order
 * they come in. Then it executes, on any thread.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/jax/device.h"
#include "bindings/jax/room.h"
#include "bindings/jax/spmt_xla.h"

enum { APIS_MAX = 8 };

/* XLA numbers types, in every plugin anew: the number of our state by the table of functions that a plugin passes. */
static struct {
	pthread_mutex_t lock; /* guards all of it */
	int n;
	struct {
		const struct ffi_api *api;
		struct ffi_type_id type;
	} known[APIS_MAX];
	uint64_t sites;
} states = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const struct ffi_type_info state_info = { { sizeof(state_info), NULL }, site_free };

static struct ffi_error *state_register(const struct ffi_api *api, struct ffi_type_id *type)
{
	struct ffi_type_register args = { { sizeof(args), NULL },
		{ "spmt_site", sizeof("spmt_site") - 1 }, type, &state_info };

	*type = (struct ffi_type_id){ 0 };
	if (!FFI_HAS(api, ordinal_get)) /* the last of those used */
		return error_make(api, FFI_UNIMPLEMENTED, "spmt: this XLA's FFI is older than 0.3");
	return api->type_register(&args);
}

static struct ffi_error *state_type(const struct ffi_api *api, struct ffi_type_id *type)
{
	struct ffi_error *error = NULL;
	int i;

	pthread_mutex_lock(&states.lock);
	for (i = 0; i < states.n && states.known[i].api != api; i++)
		;
	if (i == states.n && i == APIS_MAX)
		error = error_make(
			api, FFI_RESOURCE_EXHAUSTED, "spmt: more than %d plugins of XLA", APIS_MAX);
	else if (i == states.n)
		error = state_register(api, &states.known[i].type);
	if (!error) {
		states.known[i].api = api;
		*type = states.known[i].type;
		states.n += i == states.n;
	}
	pthread_mutex_unlock(&states.lock);
	return error;
}

/* Whether XLA only asks what this is. */
static bool metadata(const struct ffi_frame *frame, uint32_t traits, struct ffi_error **error)
{
	struct ffi_extension *extension = frame->head.extension_start;
	struct ffi_metadata *about;

	*error = NULL;
	if (!extension || extension->type != FFI_EXTENSION_METADATA)
		return false;
	about = ((struct ffi_metadata_extension *)extension)->metadata;
	about->version.major = FFI_VERSION_MAJOR;
	about->version.minor = FFI_VERSION_MINOR;
	about->traits = traits;
	if (frame->api &&
		about->struct_size >=
			offsetof(struct ffi_metadata, state_type) + sizeof(about->state_type))
		*error = state_type(frame->api, &about->state_type);
	return true;
}

SPMT_XLA_API struct ffi_error *spmt_xla_instantiate(struct ffi_frame *frame);

struct ffi_error *spmt_xla_instantiate(struct ffi_frame *frame)
{
	struct ffi_type_id type;
	struct ffi_error *error;
	struct site *site;
	struct ffi_state args = { { sizeof(args), NULL }, frame->ctx, FFI_INSTANTIATE, &type,
		NULL };

	if (metadata(frame, 0, &error))
		return error;
	error = state_type(frame->api, &type);
	if (error)
		return error;
	site = calloc(1, sizeof(*site));
	if (!site)
		return error_make(frame->api, FFI_RESOURCE_EXHAUSTED, "spmt: no memory for a call");
	pthread_mutex_lock(&states.lock);
	site->id = ++states.sites;
	pthread_mutex_unlock(&states.lock);
	error = site_read(frame, site);
	if (!error) {
		args.state = site;
		error = frame->api->state_set(&args);
	}
	if (error)
		site_free(site);
	return error;
}

/* ---- execution */

/* Which call on which device in which run this is. world is held if it is set, whatever is returned. */
static struct ffi_error *visit_read(struct ffi_frame *frame, enum kind kind, struct visit *visit)
{
	const struct ffi_api *api = frame->api;
	struct ffi_type_id type;
	struct ffi_state state = { { sizeof(state), NULL }, frame->ctx, FFI_INSTANTIATE, &type,
		NULL };
	struct ffi_run_id run = { { sizeof(run), NULL }, frame->ctx, 0 };
	struct ffi_ordinal device = { { sizeof(device), NULL }, frame->ctx, 0 };
	struct ffi_error *error = state_type(api, &type);

	if (!error)
		error = api->state_get(&state);
	if (!error)
		error = api->run_id_get(&run);
	if (!error)
		error = api->ordinal_get(&device);
	if (error)
		return error;
	visit->site = state.state;
	visit->run = run.run_id;
	visit->world = xla_world_get(visit->site->world);
	if (!visit->world)
		return error_make(api, FFI_FAILED_PRECONDITION,
			"spmt %s: no world %lld is open; was it closed?", kind_names[kind],
			(long long)visit->site->world);
	visit->group = xla_world_place(visit->world, device.ordinal, &visit->rank);
	if (visit->group < 0)
		return error_make(api, FFI_FAILED_PRECONDITION,
			"spmt %s: device %d is in no group of the world", kind_names[kind],
			device.ordinal);
	return NULL;
}

/* The sentence of an error, which stays whole. */
static const char *sentence(const struct ffi_api *api, struct ffi_error *error)
{
	struct ffi_error_message args = { { sizeof(args), NULL }, error, NULL };

	api->error_message(&args);
	return args.message ? args.message : "";
}

static struct ffi_error *execute(struct ffi_frame *frame, enum kind kind, uint32_t traits)
{
	struct visit visit = { 0 };
	struct call call = { 0 };
	struct ffi_error *error;

	if (metadata(frame, traits, &error))
		return error;
	error = visit_read(frame, kind, &visit);
	if (!error) {
		bool streams = visit.world->streams;

		if (streams)
			error = device_check(frame, kind, &call);
		if (!error)
			error = call_read(frame, kind, visit.site, visit.world->nranks, &call);
		if (!error && streams)
			error = device_check(frame, kind, &call);
		if (error && streams)
			device_refuse(&visit, kind, sentence(frame->api, error));
		else if (error)
			room_refuse(&visit, kind, FFI_ABORTED, sentence(frame->api, error));
		else if (streams)
			error = device_queue(frame, &visit, &call);
		else
			error = room_enter(frame, &visit, &call);
	}
	if (visit.world)
		xla_world_put(visit.world);
	return error;
}

#define DEFINE_HANDLER_OF(name, kind, traits)                         \
	SPMT_XLA_API struct ffi_error *name(struct ffi_frame *frame); \
	struct ffi_error *name(struct ffi_frame *frame)               \
	{                                                             \
		return execute(frame, kind, traits);                  \
	}
#define DEFINE_HANDLER(name, kind)                  \
	DEFINE_HANDLER_OF(spmt_xla_##name, kind, 0) \
	DEFINE_HANDLER_OF(spmt_xla_##name##_graph, kind, FFI_IN_COMMAND_BUFFERS)

DEFINE_HANDLER(all_reduce, KIND_ALL_REDUCE)
DEFINE_HANDLER(permute, KIND_PERMUTE)
DEFINE_HANDLER(broadcast, KIND_BROADCAST)
DEFINE_HANDLER(all_gather, KIND_ALL_GATHER)
DEFINE_HANDLER(all_to_all, KIND_ALL_TO_ALL)
DEFINE_HANDLER(reduce_scatter, KIND_REDUCE_SCATTER)
DEFINE_HANDLER(barrier, KIND_BARRIER)
DEFINE_HANDLER(ragged_all_to_all, KIND_RAGGED)
DEFINE_HANDLER(put, KIND_PUT)
DEFINE_HANDLER(get, KIND_GET)

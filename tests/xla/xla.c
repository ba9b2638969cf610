/* SPDX-License-Identifier: MIT */
#include "tests/xla/xla.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ffi_error {
	int code;
	char message[512];
};

struct ffi_context {
	const struct xla_call *call;
	struct xla_site *site; /* while it is instantiated */
};

struct ffi_future {
	pthread_mutex_t lock;
	bool ended, told; /* told: done is set */
	struct ffi_error *error;
	void (*done)(void *arg, int code, const char *sentence);
	void *arg;
};

static _Thread_local char told[512];

const char *xla_sentence(void)
{
	return told;
}

/* The code of an error, which ends here. */
static int tell(struct ffi_error *error)
{
	int code = error ? error->code : 0;

	snprintf(told, sizeof(told), "%s", error ? error->message : "");
	free(error);
	return code;
}

/* ---- functions that are lent */

static struct ffi_error *error_create(struct ffi_error_create *args)
{
	struct ffi_error *error = calloc(1, sizeof(*error));

	error->code = args->code;
	snprintf(error->message, sizeof(error->message), "%s", args->message);
	return error;
}

static void error_message(struct ffi_error_message *args)
{
	args->message = args->error->message;
}

static void error_destroy(struct ffi_error_destroy *args)
{
	free(args->error);
}

static struct ffi_error *stream_get(struct ffi_stream_get *args)
{
	args->stream = args->ctx->call->stream; /* on cpu nobody may ask */
	return NULL;
}

static void (*site_deleter)(void *state);

static struct ffi_error *type_register(struct ffi_type_register *args)
{
	static _Atomic int64_t types;

	args->type_id->id = ++types;
	site_deleter = args->info->deleter;
	return NULL;
}

static struct ffi_error *state_set(struct ffi_state *args)
{
	args->ctx->site->state = args->state;
	return NULL;
}

static struct ffi_error *state_get(struct ffi_state *args)
{
	args->state = args->ctx->call->site->state;
	return NULL;
}

static struct ffi_error *future_create(struct ffi_future_create *args)
{
	args->future = calloc(1, sizeof(*args->future));
	pthread_mutex_init(&args->future->lock, NULL);
	return NULL;
}

static void future_tell(struct ffi_future *future)
{
	void (*done)(void *, int, const char *) = future->done;
	void *arg = future->arg;
	int code = tell(future->error);

	pthread_mutex_destroy(&future->lock);
	free(future);
	done(arg, code, told);
}

static void future_end(struct ffi_future *future, struct ffi_error *error)
{
	bool now;

	pthread_mutex_lock(&future->lock);
	future->ended = true;
	future->error = error;
	now = future->told;
	pthread_mutex_unlock(&future->lock);
	if (now)
		future_tell(future);
}

static struct ffi_error *future_available(struct ffi_future_available *args)
{
	future_end(args->future, NULL);
	return NULL;
}

static struct ffi_error *future_error(struct ffi_future_error *args)
{
	future_end(args->future, args->error);
	return NULL;
}

static struct ffi_error *run_id_get(struct ffi_run_id *args)
{
	args->run_id = args->ctx->call->run;
	return NULL;
}

static struct ffi_error *ordinal_get(struct ffi_ordinal *args)
{
	args->ordinal = args->ctx->call->device;
	return NULL;
}

static const struct ffi_api api = {
	.head = { sizeof(api), NULL },
	.version = { { sizeof(struct ffi_version), NULL }, FFI_VERSION_MAJOR, FFI_VERSION_MINOR },
	.error_create = error_create,
	.error_message = error_message,
	.error_destroy = error_destroy,
	.stream_get = stream_get,
	.type_register = type_register,
	.state_set = state_set,
	.state_get = state_get,
	.future_create = future_create,
	.future_available = future_available,
	.future_error = future_error,
	.run_id_get = run_id_get,
	.ordinal_get = ordinal_get,
};

/* ---- calls */

int xla_metadata(ffi_handler *handler, uint32_t traits)
{
	struct ffi_metadata about = { .struct_size = sizeof(about),
		.traits = ~traits,
		.version = { { sizeof(about.version), NULL }, -1, -1 } };
	struct ffi_metadata_extension extension = {
		{ sizeof(extension), FFI_EXTENSION_METADATA, NULL }, &about
	};
	struct ffi_frame frame = { .head = { offsetof(struct ffi_frame, future), &extension.base },
		.api = &api };
	int code = tell(handler(&frame));

	return code ? code
		: about.version.major == FFI_VERSION_MAJOR &&
			about.version.minor == FFI_VERSION_MINOR && about.traits == traits
		? 0
		: -1;
}

/* What a call site has, NULL and 0 being none. */
struct attrs {
	int n, types[XLA_ATTRS];
	struct ffi_span names[XLA_ATTRS], *name_list[XLA_ATTRS];
	struct ffi_scalar scalars[XLA_ATTRS];
	struct ffi_array arrays[XLA_ATTRS];
	void *values[XLA_ATTRS];
};

static void attr_add(struct attrs *attrs, const char *name, int type, void *value)
{
	int n = attrs->n++;

	attrs->names[n] = (struct ffi_span){ name, strlen(name) };
	attrs->name_list[n] = &attrs->names[n];
	attrs->types[n] = type;
	attrs->values[n] = value;
}

static void attr_i64(struct attrs *attrs, const char *name, int64_t *value)
{
	attrs->scalars[attrs->n] = (struct ffi_scalar){ FFI_S64, value };
	attr_add(attrs, name, FFI_ATTR_SCALAR, &attrs->scalars[attrs->n]);
}

/* A copy, which is gone with the call. */
static void attr_array(struct attrs *attrs, const char *name, const int64_t *values, size_t n)
{
	int64_t *copy = malloc((n + 1) * sizeof(*copy));

	if (!copy)
		abort();
	memcpy(copy, values, n * sizeof(*copy));
	attrs->arrays[attrs->n] = (struct ffi_array){ FFI_S64, n, copy };
	attr_add(attrs, name, FFI_ATTR_ARRAY, &attrs->arrays[attrs->n]);
}

static int instantiate(struct xla_site *site, ffi_handler *handler, struct attrs *attrs)
{
	struct ffi_context ctx = { NULL, site };
	struct ffi_frame frame = { .head = { offsetof(struct ffi_frame, future), NULL },
		.api = &api,
		.ctx = &ctx,
		.stage = FFI_INSTANTIATE };
	int code;

	frame.attrs = (struct ffi_attrs){ { sizeof(frame.attrs), NULL }, attrs->n, attrs->types,
		attrs->name_list, attrs->values };
	*site = (struct xla_site){ handler, NULL };
	code = tell(spmt_xla_instantiate(&frame));
	for (int i = 0; i < attrs->n; i++)
		free(attrs->arrays[i].data);
	return code;
}

int xla_instantiate(struct xla_site *site, ffi_handler *handler, int64_t world, int64_t op,
	int64_t root, const int64_t *to, size_t nto)
{
	struct attrs attrs = { 0 };

	if (op >= 0)
		attr_i64(&attrs, "op", &op);
	if (root >= 0)
		attr_i64(&attrs, "root", &root);
	if (to)
		attr_array(&attrs, "to", to, nto);
	if (world)
		attr_i64(&attrs, "world", &world);
	return instantiate(site, handler, &attrs);
}

int xla_instantiate_slice(struct xla_site *site, ffi_handler *handler, int64_t world,
	const char *name, const int64_t *ranks, const int64_t *start, size_t n)
{
	struct attrs attrs = { 0 };

	if (ranks)
		attr_array(&attrs, name, ranks, n);
	if (start)
		attr_array(&attrs, "start", start, n);
	attr_i64(&attrs, "world", &world);
	return instantiate(site, handler, &attrs);
}

void xla_forget(struct xla_site *site)
{
	site_deleter(site->state);
	site->state = NULL;
}

bool xla_execute(const struct xla_call *call,
	void (*done)(void *arg, int code, const char *sentence), void *arg)
{
	struct ffi_context ctx = { call, NULL };
	struct ffi_buffer buffers[XLA_BUFFERS];
	int64_t dims[XLA_BUFFERS][2];
	void *args[XLA_BUFFERS], *ret = &buffers[XLA_BUFFERS - 1];
	int types[XLA_BUFFERS];
	struct ffi_frame frame = { .head = { offsetof(struct ffi_frame, future), NULL },
		.api = &api,
		.ctx = &ctx,
		.stage = FFI_EXECUTE };
	struct ffi_error *error;
	bool ended;

	for (int i = 0; i < XLA_BUFFERS; i++) {
		const struct xla_array *array = i < XLA_BUFFERS - 1 ? &call->args[i] : &call->ret;

		dims[i][0] = array->n;
		dims[i][1] = array->cols;
		buffers[i] = (struct ffi_buffer){ { sizeof(buffers[i]), NULL }, array->dtype,
			array->data, array->cols ? 2 : 1, dims[i] };
		args[i] = &buffers[i];
		types[i] = FFI_BUFFER;
	}
	frame.args = (struct ffi_args){ { sizeof(frame.args), NULL }, call->nargs, types, args };
	frame.rets = (struct ffi_args){ { sizeof(frame.rets), NULL }, 1, types, &ret };
	error = call->site->handler(&frame);
	memset(&ctx, 0x5a, sizeof(ctx)); /* gone with the call, as what it said is */
	memset(buffers, 0x5a, sizeof(buffers));
	if (error || !frame.future) {
		int code = tell(error);

		done(arg, code, told);
		return true;
	}
	pthread_mutex_lock(&frame.future->lock);
	frame.future->done = done;
	frame.future->arg = arg;
	frame.future->told = true;
	ended = frame.future->ended;
	pthread_mutex_unlock(&frame.future->lock);
	if (ended)
		future_tell(frame.future);
	return ended;
}

struct waited {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool over;
	int code;
	char sentence[512];
};

static void wake(void *arg, int code, const char *sentence)
{
	struct waited *waited = arg;

	pthread_mutex_lock(&waited->lock);
	waited->over = true;
	waited->code = code;
	snprintf(waited->sentence, sizeof(waited->sentence), "%s", sentence);
	pthread_cond_signal(&waited->ended);
	pthread_mutex_unlock(&waited->lock);
}

int xla_wait(const struct xla_call *call)
{
	struct waited waited = { .lock = PTHREAD_MUTEX_INITIALIZER,
		.ended = PTHREAD_COND_INITIALIZER };

	xla_execute(call, wake, &waited);
	pthread_mutex_lock(&waited.lock);
	while (!waited.over)
		pthread_cond_wait(&waited.ended, &waited.lock);
	pthread_mutex_unlock(&waited.lock);
	snprintf(told, sizeof(told), "%s", waited.sentence);
	return waited.code;
}

/* ---- the pool */

enum { POOL_MAX = 64 };

struct task {
	struct task *next;
	void (*fn)(void *arg);
	void *arg;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t came;
	struct task *first, **last;
	pthread_t threads[POOL_MAX];
	int n;
	bool over;
} pool = {
	.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER, .last = &pool.first
};

static void *pool_main(void *unused)
{
	pthread_mutex_lock(&pool.lock);
	for (;;) {
		struct task *task = pool.first;

		if (!task && pool.over)
			break;
		if (!task) {
			pthread_cond_wait(&pool.came, &pool.lock);
			continue;
		}
		pool.first = task->next;
		if (!pool.first)
			pool.last = &pool.first;
		pthread_mutex_unlock(&pool.lock);
		task->fn(task->arg);
		free(task);
		pthread_mutex_lock(&pool.lock);
	}
	pthread_mutex_unlock(&pool.lock);
	return unused;
}

void xla_pool(int n)
{
	pool.over = false;
	for (pool.n = 0; pool.n < n; pool.n++)
		if (pthread_create(&pool.threads[pool.n], NULL, pool_main, NULL))
			abort();
}

void xla_pool_run(void (*fn)(void *arg), void *arg)
{
	struct task *task = malloc(sizeof(*task));

	*task = (struct task){ NULL, fn, arg };
	pthread_mutex_lock(&pool.lock);
	*pool.last = task;
	pool.last = &task->next;
	pthread_cond_signal(&pool.came);
	pthread_mutex_unlock(&pool.lock);
}

void xla_pool_end(void)
{
	pthread_mutex_lock(&pool.lock);
	pool.over = true;
	pthread_cond_broadcast(&pool.came);
	pthread_mutex_unlock(&pool.lock);
	for (int i = 0; i < pool.n; i++)
		pthread_join(pool.threads[i], NULL);
}

/* SPDX-License-Identifier: MIT */
/* Streams of the user: order against a comm's work, waits in a stream, and calls of the host
   backend only. */
#include <errno.h>
#include <string.h>

#include "atomics.h"
#include "keyed.h"
#include "rma.h"
#include "spmt/comm/stream.h"
#include "spmt/control/exclusive.h"
#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/host/graph.h"
#include "src/device/host/host.h"
#include "src/kernels/kernels.h"
#include "sync.h"
#include "view.h"

/* ---- quiet in a stream --------------------------------------------------------------------- */

/* `stream` waits for what the comm's own stream holds now. */
static int own_stream_join(spmt_comm *comm, device_stream stream)
{
	device_event event;
	int rc = comm->backend->event_create(comm->dev, &event);

	if (rc)
		return rc;
	rc = comm->backend->event_record(comm->dev, event, comm->stream);
	if (!rc)
		rc = comm->backend->stream_wait_event(comm->dev, stream, event);
	comm->backend->event_destroy(
		comm->dev, event); /* as with the vendors, a pending wait keeps what it needs */
	return rc;
}

/*
 * Events order the work of other streams; for a graph that is being captured, whoever launches it
 * orders it. Moves that are not in a stream have no event, so they are completed here, the only
 * case in which this call blocks.
 */
int stream_quiet(spmt_comm *comm, const char *what, const struct reserved *reserved)
{
	bool join = comm->streamed && !reserved->captured;
	device_stream s = reserved->at.stream;
	int rc = comm->pending ? movers_quiet(comm, what) : 0;

	if (!rc && join && comm->streamed_own && s != comm->stream)
		rc = own_stream_join(comm, s);
	if (!rc && join)
		rc = streams_join(comm, reserved);
	return rc;
}

static int quiet_queue(spmt_comm *comm, const char *what, device_stream stream)
{
	HOLD_FOR_COPIES(
		stream == comm->stream ? NULL : comm, stream); /* nothing is asked of it there */
	struct reserved reserved;
	int rc = stream_reserve(comm, stream, &reserved);

	if (!rc)
		rc = stream_quiet(comm, what, &reserved);
	return rc ? rc : stream_note_order(comm, &reserved);
}

int spmt_quiet_on_stream(spmt_comm *comm, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	static const char what[] = "spmt_quiet_on_stream";
	int rc = comm_enter(comm, what);

	if (rc)
		return rc;
	rc = quiet_queue(comm, what, stream_of(comm, stream));
	return comm_failed(comm, what, rc);
}

/* ---- streams that stay --------------------------------------------------------------------- */

/* A thread's own is another stream in each thread; and an event in the default one is an error while any other stream is captured that
   waits for it. */
static int stream_refuse(const spmt_comm *comm, const char *what, spmt_stream stream)
{
	if (stream && stream != SPMT_STREAM_PER_THREAD && stream != SPMT_STREAM_LEGACY)
		return 0;
	return fail_call(-EINVAL, what, "rank %d: %s", comm->rank,
		!stream ? "NULL is the comm's own stream, which stays as it is"
			: "a default stream is nobody's to keep: SPMT_STREAM_LEGACY, SPMT_STREAM_PER_THREAD");
}

static int stream_change(spmt_comm *comm, const char *what, spmt_stream stream,
	int (*change)(spmt_comm *comm, device_stream stream))
{
	LANE_HOLD_ANY(comm);
	int rc = stream_refuse(comm, what, stream);

	return rc ? rc : comm_failed(comm, what, change(comm, stream));
}

int spmt_stream_register(spmt_comm *comm, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	static const char what[] = "spmt_stream_register";
	int rc = comm_enter_lane(comm, what);

	if (rc)
		return rc;
	rc = stream_change(comm, what, stream, stream_keep);
	comm_left_lane(comm);
	return rc;
}

int spmt_stream_deregister(spmt_comm *comm, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	static const char what[] = "spmt_stream_deregister";
	int rc = comm_visit(comm, what);

	if (rc)
		return rc;
	rc = stream_change(comm, what, stream, stream_keep_end);
	comm_left(comm);
	return rc;
}

/* ---- a wait in a stream -------------------------------------------------------------------- */

int spmt_signal_wait_on_stream(
	spmt_comm *comm, const uint64_t *sig, enum spmt_cmp cmp, uint64_t val, spmt_stream stream)
{
	static const struct call call = { "spmt_signal_wait_on_stream", "sig", "sig" };
	EXCLUSIVE(comm, __func__);
	struct kernel_wait_args args = {
		.sig = (uint64_t)(uintptr_t)sig, .value = val, .cmp = (int)cmp
	};
	int rc = rma_open(comm, &call, sig, sig, sizeof(*sig), comm ? comm->rank : 0);

	if (!rc)
		rc = signal_check(comm, call.name, sig, SPMT_SIGNAL_SET);
	if (rc)
		return rc;
	if ((unsigned)cmp > SPMT_CMP_LE)
		return fail_call(-EINVAL, "spmt_signal_wait_on_stream",
			"rank %d: unknown compare %d", comm->rank, (int)cmp);
	view_fill(comm, &args.view);
	rc = kernel_run(comm, &kernel_wait, &args, sizeof(args), stream_of(comm, stream));
	return comm_failed(comm, call.name, rc);
}

/* ---- host backend only --------------------------------------------------------------------- */

static int host_only(const spmt_comm *comm, const char *what)
{
	int rc = comm_enter(comm, what);

	if (rc || comm->backend == &backend_host)
		return rc;
	return fail_call(SPMT_ERR_UNSUPPORTED, what, "rank %d: backend %s has launches of its own",
		comm->rank, comm->backend->name);
}

/* A user's kernel takes its own copy of args to write to, behind the pointer that says what to run. */
struct host_launch {
	_Alignas(16) void (*kernel)(void *args);
	_Alignas(16) unsigned char args[];
};

static void launch_run(const void *arg)
{
	struct host_launch *launch = (struct host_launch *)(uintptr_t)arg;

	launch->kernel(launch->args);
}

static const struct kernel kernel_user = { "user", launch_run };

int spmt_host_launch(spmt_comm *comm, spmt_stream stream, void (*kernel)(void *args),
	const void *args, size_t args_size)
{
	UNCANCELLED;
	EXCLUSIVE(comm, __func__);
	struct host_launch *launch;
	struct reserved reserved;
	device_stream s;
	int rc = host_only(comm, "spmt_host_launch");

	if (rc)
		return rc;
	if (!kernel || (args_size && !args) || args_size > SIZE_MAX / 2)
		return fail_call(-EINVAL, "spmt_host_launch", "rank %d: %s", comm->rank,
			!kernel		? "kernel is NULL"
				: !args ? "args is NULL and args_size is not 0"
					: "args_size is beyond any address space");
	launch = mem_aligned(_Alignof(struct host_launch), sizeof(*launch) + args_size);
	if (!launch)
		return fail_call(-ENOMEM, "spmt_host_launch",
			"rank %d: out of memory for %zu bytes of args", comm->rank, args_size);
	launch->kernel = kernel;
	if (args_size)
		memcpy(launch->args, args, args_size);
	s = stream_of(comm, stream);
	rc = stream_reserve_users(comm, s, &reserved);
	if (!rc)
		rc = comm->backend->launch(
			comm->dev, s, &kernel_user, 1, 1, launch, sizeof(*launch) + args_size);
	mem_free(launch);
	if (!rc)
		stream_note(comm, &reserved);
	return comm_failed(comm, "spmt_host_launch", rc);
}

int spmt_host_stream_create(spmt_comm *comm, spmt_stream *stream)
{
	UNCANCELLED;
	EXCLUSIVE(comm, __func__);
	int rc = host_only(comm, "spmt_host_stream_create");

	if (rc)
		return rc;
	if (!stream)
		return fail_call(
			-EINVAL, "spmt_host_stream_create", "rank %d: stream is NULL", comm->rank);
	rc = backend_host.stream_create(comm->dev, stream);
	return comm_failed(comm, "spmt_host_stream_create", rc);
}

static bool is_default_stream(spmt_stream stream)
{
	return stream == SPMT_STREAM_LEGACY || stream == SPMT_STREAM_PER_THREAD;
}

/* The device of a stream made by spmt_host_stream_create. */
static int stream_device(const char *what, spmt_stream stream, int *dev)
{
	if (!stream || is_default_stream(stream))
		return fail_call(
			-EINVAL, what, "stream %p was not made by spmt_host_stream_create", stream);
	*dev = host_stream_device(stream);
	return *dev < 0 ? fail_call(-EBADF, what, "stream %p is destroyed or never was one", stream)
			: 0;
}

/* The call has no comm, so it means the default streams of every open device. */
static int defaults_sync(spmt_stream stream, int64_t ns)
{
	int64_t begin = process_now();
	struct status_saved saved;
	int n = 0, rc;

	status_save(&saved);
	rc = backend_host.count(&n);
	if (rc == -ENODEV) { /* no world has been here: none is open */
		status_restore(&saved);
		return 0;
	}
	for (int dev = 0; dev < n && !rc; dev++) {
		int64_t left = ns < 0 ? ns : process_left(begin + ns);

		rc = backend_host.stream_sync(dev, stream, left, NULL);
		if (!rc)
			rc = host_stream_blamed(dev, stream);
		if (rc == -ENODEV) {
			status_restore(&saved);
			rc = 0;
		}
	}
	return rc;
}

int spmt_host_stream_synchronize(spmt_stream stream)
{
	UNCANCELLED;
	static const char what[] = "spmt_host_stream_synchronize";
	const struct env *env;
	int64_t ns;
	int dev = -1, rc = env_get(&env);

	if (rc)
		return fail_call(rc, what, "%s", status_sentence());
	if (!is_default_stream(stream))
		rc = stream_device(what, stream, &dev);
	if (rc)
		return rc;
	ns = env->timeout < 0 ? -1 : MIN_OF(env->timeout, TIMEOUT_MOST) * 1000000;
	rc = is_default_stream(stream) ? defaults_sync(stream, ns)
				       : backend_host.stream_sync(dev, stream, ns, NULL);
	if (!rc && !is_default_stream(stream))
		rc = host_stream_blamed(dev, stream);
	if (rc == -ETIMEDOUT)
		return fail_call(SPMT_ERR_TIMEOUT, what,
			"stream %p: work is still queued after %lld ms (SPMT_TIMEOUT_MS)", stream,
			(long long)env->timeout);
	return rc ? fail_call(rc, what, "stream %p: %s", stream, status_sentence()) : 0;
}

int spmt_host_stream_destroy(spmt_stream stream)
{
	UNCANCELLED;
	int dev = -1, rc = stream_device("spmt_host_stream_destroy", stream, &dev);

	return rc ? rc : backend_host.stream_destroy(dev, stream);
}

/* ---- graphs */

int spmt_host_graph_begin(spmt_stream stream)
{
	UNCANCELLED;
	static const char what[] = "spmt_host_graph_begin";
	int dev = -1, rc = stream_device(what, stream, &dev);

	if (rc)
		return rc;
	rc = host_graph_begin(dev, stream);
	return rc ? fail_call(rc, what, "stream %p: %s", stream, status_sentence()) : 0;
}

int spmt_host_graph_end(spmt_stream stream, spmt_host_graph **graph)
{
	UNCANCELLED;
	static const char what[] = "spmt_host_graph_end";
	struct host_graph *made;
	int dev = -1, rc = stream_device(what, stream, &dev);

	if (rc)
		return rc;
	rc = graph ? host_graph_end(dev, stream, &made) : fail(-EINVAL, "graph is NULL");
	if (rc)
		return fail_call(rc, what, "stream %p: %s", stream, status_sentence());
	*graph = (spmt_host_graph *)made;
	return 0;
}

int spmt_host_graph_launch(spmt_host_graph *graph, spmt_stream stream)
{
	UNCANCELLED;
	static const char what[] = "spmt_host_graph_launch";
	int dev = -1, rc = stream_device(what, stream, &dev);

	if (rc)
		return rc;
	rc = host_graph_launch(dev, (struct host_graph *)graph, stream);
	return rc ? fail_call(rc, what, "stream %p: %s", stream, status_sentence()) : 0;
}

int spmt_host_graph_destroy(spmt_host_graph *graph)
{
	UNCANCELLED;
	int rc = host_graph_destroy((struct host_graph *)graph);

	return rc ? fail_call(rc, "spmt_host_graph_destroy", "%s", status_sentence()) : 0;
}

int spmt_host_get_device(void)
{
	return host_get_device();
}

int spmt_host_set_device(int device)
{
	UNCANCELLED;
	int rc = host_set_device(device);

	return rc ? fail_call(rc, "spmt_host_set_device", "%s", status_sentence()) : 0;
}

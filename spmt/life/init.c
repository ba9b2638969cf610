/* SPDX-License-Identifier: MIT */
/* A rank's life: attributes checked, world joined, slot opened, peers linked. The way back is in
   finalize.c. */
#include <errno.h>
#include <string.h>

#include "finalize.h"
#include "lane.h"
#include "peer.h"
#include "rdma.h"
#include "routes.h"
#include "spmt/collective/collective.h"
#include "spmt/collective/far.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/report.h"
#include "spmt/control/trace.h"
#include "spmt/job/launch.h"
#include "spmt/nodes/nodes.h"
#include "spmt/plan/rows/row.h"
#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/kernels/area.h"

/* Where plans of SPMT_COLL lie, behind counters, an inbox a peer, and slots, and the same of lanes. */
static uint64_t own_plans(spmt_comm *comm)
{
	uint64_t words = area_size(comm->nranks, comm->slot_room);

	return align_up(words + lane_areas(comm, words), PLAN_ROWS_ALIGN);
}

/* Bytes of a rank's heap that the library keeps for itself: these, and where ranks live in several
   processes, room through which collectives reach buffers outside the heap. */
static uint64_t own_size(spmt_comm *comm)
{
	uint64_t words = own_plans(comm) + plan_rows_size(comm), stage = coll_stage_room(comm);

	if (stage) {
		words = align_up(words, PLAN_ROWS_ALIGN);
		if (words <= UINT32_MAX) {
			comm->push_at = (uint32_t)words;
			words += stage;
		}
	}
	return far_possible(comm)
		? words + nodes_notes_room() + far_head(comm->nranks) + 2 * COLL_STAGE
		: words;
}

/* ---- attributes ---------------------------------------------------------------------------- */

static int attr_check(const struct spmt_attr *attr)
{
	if (attr->nranks < 1)
		return fail_call(-EINVAL, "spmt_init",
			"attr.nranks %d: a world has at least one rank", attr->nranks);
	if (attr->nranks > RANKS_MOST)
		return fail_call(-EINVAL, "spmt_init",
			"attr.nranks %d: a world has at most %d ranks", attr->nranks, RANKS_MOST);
	if (attr->rank < 0 || attr->rank >= attr->nranks)
		return fail_call(-EINVAL, "spmt_init", "attr.rank %d is not in 0 .. %d", attr->rank,
			attr->nranks - 1);
	if (attr->device < -1)
		return fail_call(-EINVAL, "spmt_init",
			"rank %d: attr.device %d is neither an ordinal nor -1", attr->rank,
			attr->device);
	if (attr->heap_size > SIZE_MAX / 4)
		return fail_call(-EINVAL, "spmt_init",
			"rank %d: attr.heap_size %zu is beyond any address space", attr->rank,
			attr->heap_size);
	return 0;
}

/* ---- what a rank tells the others ---------------------------------------------------------- */

static struct rank_info *own_info(const spmt_comm *comm)
{
	return &comm->world->infos[comm->rank];
}

static int device_missing(const spmt_comm *comm, int rank, int dev, int count)
{
	const char *hint = comm->backend == &backend_host ? " (SPMT_HOST_DEVICES)" : "";

	if (comm->world->infos[rank].device >= 0)
		return fail_call(-ENODEV, "spmt_init",
			"rank %d: device %d does not exist, backend %s has %d%s", rank, dev,
			comm->backend->name, count, hint);
	return fail_call(-ENODEV, "spmt_init",
		"rank %d is number %d of its process, backend %s has %d devices%s", rank, dev,
		comm->backend->name, count, hint);
}

/* An ordinal that the user gave can be checked without the other ranks. */
static int named_device(const spmt_comm *comm)
{
	int dev = own_info(comm)->device, count, rc = comm->backend->count(&count);

	if (rc)
		return rc;
	return dev < count ? 0 : device_missing(comm, comm->rank, dev, count);
}

/* The device of every rank of this process, once the others are known: the same word from all of them. */
static int settle_devices(spmt_comm *comm)
{
	int count, position = 0, rc = comm->backend->count(&count);

	for (int i = 0; i < comm->nranks && !rc; i++) {
		int dev = comm->world->infos[i].device;

		if (!comm_is_local(comm, i))
			continue;
		if (dev < 0)
			dev = position;
		position++;
		if (i == comm->rank)
			comm->dev = dev;
		if (dev >= count)
			rc = device_missing(comm, i, dev, count);
	}
	return rc;
}

/* Device -1 in a job: processes of one node do not all begin at the first. */
static int job_device(const spmt_comm *comm, const struct job_info *launch, int *dev)
{
	int count, at, rc = comm->backend->count(&count);

	if (rc)
		return rc;
	at = launch_device(launch, comm->rank, comm->nranks, count);
	if (at >= count)
		return fail_call(-ENODEV, "spmt_init",
			"rank %d is number %d of its node, backend %s has %d devices%s", comm->rank,
			at, comm->backend->name, count,
			comm->backend == &backend_host ? " (SPMT_HOST_DEVICES)" : "");
	*dev = at;
	return 0;
}

static int info_begin(spmt_comm *comm, const struct spmt_attr *attr, const struct job_info *launch)
{
	struct rank_info *info = own_info(comm);
	struct status_saved saved;
	int rc;

	status_save(&saved);
	rc = device_select(attr->backend, &comm->backend);
	if (rc)
		return fail_call(rc, "spmt_init", "rank %d: %s: %s", comm->rank,
			attr->backend ? "attr.backend"
				      : "backend (SPMT_BACKEND, else the first with devices)",
			status_sentence());
	status_restore(&saved); /* backends without devices were passed over */
	info->rank = comm->rank;
	info->device = attr->device;
	info->traits = comm->backend->traits;
	info->caps =
		(comm->backend->ipc ? RANK_CAP_IPC : 0u) | (rdma_likely(info) ? RANK_CAP_RDMA : 0u);
	strncpy(info->backend, comm->backend->name, sizeof(info->backend) - 1);
	if (info->device < 0 && launch->processes)
		rc = job_device(comm, launch, &info->device);
	if (!rc)
		rc = named_device(comm);
	if (!rc)
		rc = process_host(info->host);
	process_network(info->host);
	return rc ? rc : process_nonce(info->process);
}

static uint64_t backend_index(const struct backend *backend)
{
	uint64_t i = 0;

	while (device_backend(i) && device_backend(i) != backend)
		i++;
	return i;
}

/* ---- the slot ------------------------------------------------------------------------------ */

static int open_device(spmt_comm *comm)
{
	struct slot *slot = comm->slot;
	struct device_desc desc;
	int rc = settle_devices(comm);

	if (!rc)
		rc = comm->backend->open(comm->dev);
	if (rc)
		return rc;
	own_info(comm)->settled = comm->dev;
	slot->backend = comm->backend; /* from here on the world closes the device */
	slot->dev = comm->dev;
	rc = signals_open(comm);
	if (!rc)
		rc = comm->backend->describe(comm->dev, &desc);
	if (rc)
		return rc;
	comm->units = desc.units;
	memcpy(own_info(comm)->uuid, desc.uuid, sizeof(desc.uuid));
	memcpy(own_info(comm)->pci, desc.pci, sizeof(desc.pci));
	/* To pin memory waits for the device, whose kernels may wait for a peer: now no kernel of
	   ours runs. */
	if (!comm_cpu_access(comm)) {
		rc = scratch_room(comm, 1);
		if (!rc)
			rc = lane_signals_open(comm);
		if (rc)
			return rc;
	}
	return comm->backend->stream_create(comm->dev, &comm->stream);
}

/* False: a backend that backs ranges on demand, but one of these devices does not. */
static bool devices_back(const struct backend *b, const int *devs, int n)
{
	size_t bytes;

	for (int i = 0; b->vmm && i < n; i++)
		if (b->vmm->granularity(devs[i], &bytes) == SPMT_ERR_UNSUPPORTED)
			return false;
	return true;
}

/* One range for the ranks of this process, opened by the first to need it. devs: devices that must all back it; without devs, a
   rank whose device cannot is told so. */
static const struct heap_range *world_range(
	spmt_comm *comm, uint64_t size, const int *devs, int ndevs)
{
	struct world *w = comm->world;
	KEEPS_SENTENCE;

	pthread_mutex_lock(&w->lock);
	if (!w->range_state) {
		bool open = devices_back(comm->backend, devs, ndevs) &&
			!heap_range_open(comm->backend, w->nranks, size, &w->range);

		w->range_state = open ? 1 : -1;
	}
	pthread_mutex_unlock(&w->lock);
	return w->range_state > 0 ? &w->range : NULL;
}

/* Devices of this process's ranks: those that may reach this rank's memory by address. */
static int *local_devices(const spmt_comm *comm, int *n)
{
	const struct rank_info *infos = comm->world->infos;
	int *devs = mem_calloc((size_t)comm->nranks, sizeof(*devs));

	*n = 0;
	for (int i = 0, position = 0; devs && i < comm->nranks; i++) {
		int dev = infos[i].device >= 0 ? infos[i].device : position, k = 0;

		if (!comm_is_local(comm, i))
			continue;
		position++;
		while (k < *n && devs[k] != dev)
			k++;
		devs[k] = dev;
		*n = MAX_OF(*n, k + 1);
	}
	return devs;
}

/* knob: what the user lowers. A limit on memory, addresses or files does not say which of the library's wants it refused. */
static int heap_refused(const spmt_comm *comm, uint64_t size, const char *knob, int rc)
{
	if (rc != -ENOMEM && rc != -EFBIG)
		return rc;
	return fail_call(rc, "spmt_init",
		"rank %d: no heap of %llu bytes can be had (a lower %s may fit): %.300s",
		comm->rank, (unsigned long long)size, knob, status_sentence());
}

static bool checks(const struct env *env)
{
	return env->check == ENV_CHECK_ON || (env->check == ENV_CHECK_AUTO && SANITIZE_ADDRESS);
}

static int open_heap(spmt_comm *comm, uint64_t size, const char *knob, const struct env *env)
{
	struct heap_config config = { .backend = comm->backend,
		.dev = comm->dev,
		.slice = comm->rank,
		.size = size,
		.own_room = SPLITS_ROOM,
		.knob = knob };
	struct rank_info *info = own_info(comm);
	int *devs = local_devices(comm, &config.npeers);
	bool asked = env->heap_mode == ENV_HEAP_VMM;
	int rc;

	if (!devs)
		return fail_call(-ENOMEM, "spmt_init",
			"rank %d: out of memory for a list of devices", comm->rank);
	/* Red zones are extra room, so that a user can still take the whole heap in a few blocks. */
	config.check = checks(env);
	config.size += config.check ? CHECK_ROOM : 0;
	config.peers = devs;
	comm->slot_room = coll_room(comm, COLL_SLOTS);
	config.own_size = own_size(comm);
	/* A heap that other processes map or a NIC knows is in one piece: there is nothing to gain then by backing
	   it on demand. */
	config.whole = comm_spans_processes(comm) || rdma_wanted(comm, env);
	if (asked || (env->heap_mode == ENV_HEAP_AUTO && !config.whole))
		config.range = world_range(comm,
			align_up(config.size, HEAP_ROUND) +
				align_up(config.own_size + SPLITS_ROOM, HEAP_ROUND),
			devs, asked ? 0 : config.npeers);
	if (asked && !config.range)
		rc = fail_call(SPMT_ERR_UNSUPPORTED, "spmt_init",
			"rank %d: SPMT_HEAP_MODE=vmm, but backend %s cannot reserve %d heaps of %llu bytes%s%s%s",
			comm->rank, comm->backend->name, comm->nranks, (unsigned long long)size,
			comm->backend->vmm ? " (a lower " : "", comm->backend->vmm ? knob : "",
			comm->backend->vmm ? " may fit)" : "");
	else
		rc = heap_refused(comm, size, knob, heap_open(&config, &comm->slot->heap));
	mem_free(devs);
	if (rc)
		return rc;
	comm->heap = &comm->slot->heap;
	if (far_possible(comm)) {
		comm->stage_size = COLL_STAGE;
		comm->stage = comm->heap->own + config.own_size - 2 * COLL_STAGE;
	}
	info->heap_base = (uint64_t)(uintptr_t)comm->heap->base;
	info->heap_size = comm->heap->size;
	info->own_base = (uint64_t)(uintptr_t)comm->heap->own;
	info->own_size = comm->heap->own_size;
	rdma_open(comm, env);
	return plan_rows_open(comm, comm->heap->own, own_plans(comm));
}

/* Once all have told theirs. Kernels of ranks that share a device wait for each other: all have to run at once. */
static int share_units(spmt_comm *comm)
{
	const struct rank_info *infos = comm->world->infos;

	for (int rank = 0; rank < comm->nranks; rank++)
		comm->sharers += coll_device_is_shared(own_info(comm), &infos[rank]);
	comm->units = MAX_OF(comm->units / comm->sharers, 1);
	return plan_rows_fit(comm);
}

/* ---- init ---------------------------------------------------------------------------------- */

/* This rank failed a step: breaks the world, so that nobody waits for this rank. */
static int init_failed(spmt_comm *comm, int rc)
{
	if (rc == -ECANCELED) /* a move waited in vain: somebody else was first */
		rc = comm_broken(comm, "spmt_init");
	rc = comm_failed(comm, "spmt_init", rc);
	if (rc)
		comm_break_last(comm, rc);
	return rc;
}

static int comm_open(spmt_comm *comm, const struct spmt_attr *attr, const struct job_info *launch,
	const struct env *env)
{
	uint64_t size = attr->heap_size ? attr->heap_size : env->heap_size;
	const char *knob = attr->heap_size ? "attr.heap_size" : "SPMT_HEAP_SIZE";
	struct meet_record record = { .op = MEET_INIT, .key = { size, 0, checks(env) } };
	int rc;

	comm->default_timeout_ms =
		MIN_OF(attr->timeout_ms ? attr->timeout_ms : env->timeout, TIMEOUT_MOST);
	atomic_store(&comm->timeout_ms, comm->default_timeout_ms);
	rc = gather_begin(comm);
	if (rc)
		return rc;
	rc = plan_rows_read(comm, env->coll);
	if (!rc)
		rc = trace_open(env->trace, comm->rank, comm->default_timeout_ms);
	rc = init_failed(comm, rc ? rc : info_begin(comm, attr, launch));
	if (rc) {
		gather_give_up(comm);
		return rc;
	}
	record.key[1] = backend_index(comm->backend);
	rc = gather(comm);
	if (!rc)
		rc = nodes_settle(comm);
	if (!rc)
		rc = gather_meet(comm);
	if (!rc)
		rc = meet(comm, &record);
	if (!rc) {
		atomic_store(&comm->world->made, true);
		rc = init_failed(comm, open_device(comm));
	}
	if (!rc)
		rc = init_failed(comm, open_heap(comm, size, knob, env));
	if (!rc)
		rc = meet(comm,
			&(struct meet_record){ .op = MEET_OPENED,
				.key = {
					(uint64_t)(comm->coll_wanted + 1), plan_rows_key(comm) } });
	if (!rc && comm_spans_processes(comm)) {
		rc = init_failed(comm, gather_memory(comm));
		if (!rc)
			rc = meet(comm, &(struct meet_record){ .op = MEET_SHARED });
	}
	if (!rc)
		rc = init_failed(comm, share_units(comm));
	if (!rc)
		rc = init_failed(comm, peers_link(comm));
	if (!rc && comm_spans_processes(comm)) {
		rc = peers_publish(comm);
		if (rc && rc != -ECANCELED)
			rc = nodes_move_failed(comm, "spmt_init", rc);
		rc = init_failed(comm, rc);
		if (!rc)
			rc = meet(comm, &(struct meet_record){ .op = MEET_SEEN });
		if (!rc)
			rc = init_failed(comm, peers_collect(comm));
	}
	if (!rc)
		rc = init_failed(comm, lane_tables_open(comm));
	return rc;
}

/* A rank could not join: tells those who wait for it, wherever they are. */
static void init_refused(const struct uid *uid, int nranks, int rc)
{
	world_post_failure(uid, rc);
	gather_post(uid, nranks, rc);
}

/* Settles what the user passed before any world is touched; what fails is posted to the world
   that the uid names. */
static int attr_read(const struct spmt_attr *given, struct spmt_attr *attr, struct uid *uid,
	struct job_info *launch, const struct env **env)
{
	struct status_saved saved;
	int rc, named;

	attr->size = 0;
	rc = given ? attr_take("spmt_init", "attr", given, attr)
		   : fail_call(-EINVAL, "spmt_init", "attr is NULL");
	if (rc && !attr->size)
		return rc;
	status_save(&saved);
	named = launch_uid(attr, uid, launch);
	if (!rc && named)
		return named;
	if (rc)
		status_restore(&saved);
	else
		rc = launch_ranks(launch, attr);
	if (rc && launch->processes && (attr->nranks < 1 || attr->nranks % launch->processes))
		attr->nranks = launch->processes; /* of those who are to hear of it, most likely */
	if (!rc)
		rc = attr_check(attr);
	if (!rc && (rc = env_get(env)))
		rc = fail_call(rc, "spmt_init", "rank %d: %s", attr->rank, status_sentence());
	if (rc && !named)
		init_refused(uid, attr->nranks, rc);
	return rc;
}

int spmt_init(const struct spmt_attr *attr, spmt_comm **comm)
{
	UNCANCELLED;
	struct spmt_attr a;
	struct uid uid;
	struct job_info launch;
	const struct env *env;
	struct meet_record linked = { .op = MEET_LINKED };
	spmt_comm *c = NULL;
	int64_t begin = process_now();
	int rc;

	rc = attr_read(attr, &a, &uid, &launch, &env);
	if (rc)
		return rc;
	if (!comm) {
		rc = fail_call(-EINVAL, "spmt_init", "rank %d: comm is NULL", a.rank);
		init_refused(&uid, a.nranks, rc);
		return rc;
	}
	comms_release();
	rc = world_join(&uid, a.rank, a.nranks, &c);
	if (rc == -ENOMEM)
		init_refused(&uid, a.nranks, rc);
	if (rc)
		return rc;
	rc = comm_open(c, &a, &launch, env);
	if (rc)
		goto err;
	linked.status = routes_write(c);
	peers_reach(c, &linked);
	/* Published before the last agreement, because nothing that can fail may follow it. The first to return from it makes all
	   others visible to look-ups, even one still returning. */
	world_publish(c);
	rc = meet(c, &linked);
	if (rc)
		goto err;
	peers_reached(c, c, NULL);
	atomic_store_explicit(&c->world->found, true, memory_order_release);
	*comm = c;
	trace_span(&(struct trace_event){ .name = "spmt_init",
		.begin = begin,
		.end = process_now(),
		.rank = a.rank,
		.of = a.rank,
		.nranks = a.nranks,
		.peer = -1,
		.init = true });
	report_world(c, begin);
	comm_unclaim(c); /* from here on who has found it may end it */
	return 0;
err:
	world_unpublish(c);
	comm_destroy(c);
	return rc;
}

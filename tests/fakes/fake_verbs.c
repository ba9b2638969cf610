/* SPDX-License-Identifier: MIT */
#include "fake_verbs.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_wire.h"

struct fake_wire wire = {
	.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .inline_most = 256
};

static struct verbs_device {
	const char *name;
	uint8_t address;
	int down; /* its second port */
} devices[FAKE_DEVICES] = { { "fake0", 1, 0 }, { "fake1", 2, 0 } };

/* ---- for tests ------------------------------------------------------------------------------ */

static uint64_t arm(struct fake_fault *fault, uint64_t n)
{
	uint64_t seen;

	pthread_mutex_lock(&wire.lock);
	seen = fault->seen;
	fault->seen = 0;
	fault->at = n;
	pthread_mutex_unlock(&wire.lock);
	return seen;
}

uint64_t fake_verbs_fail(uint64_t n)
{
	return arm(&wire.calls, n);
}

uint64_t fake_verbs_break(uint64_t n, uint32_t status)
{
	wire.status = status;
	return arm(&wire.works, n);
}

uint64_t fake_verbs_fail_named(const char *name, uint64_t n)
{
	pthread_mutex_lock(&wire.lock);
	snprintf(wire.name, sizeof(wire.name), "%s", name);
	pthread_mutex_unlock(&wire.lock);
	return arm(&wire.named, n);
}

uint64_t fake_registered(void)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&wire.lock);
	for (int i = 0; i < FAKE_REGIONS; i++)
		bytes += wire.regions[i] ? wire.regions[i]->pub.length : 0;
	pthread_mutex_unlock(&wire.lock);
	return bytes;
}

uint64_t fake_verbs_limit(uint64_t more)
{
	uint64_t keys;

	wire.most = more ? fake_registered() + more : 0;
	pthread_mutex_lock(&wire.lock);
	keys = wire.keys;
	pthread_mutex_unlock(&wire.lock);
	return keys;
}

void fake_verbs_lose(int n)
{
	pthread_mutex_lock(&wire.lock);
	wire.lose = n;
	pthread_mutex_unlock(&wire.lock);
}

void fake_verbs_inline(uint32_t most)
{
	pthread_mutex_lock(&wire.lock);
	wire.inline_most = most;
	pthread_mutex_unlock(&wire.lock);
}

void fake_verbs_prompt(int prompt)
{
	pthread_mutex_lock(&wire.lock);
	wire.prompt = prompt;
	pthread_mutex_unlock(&wire.lock);
}

void fake_verbs_hold(int hold)
{
	pthread_mutex_lock(&wire.lock);
	wire.held = hold;
	pthread_cond_broadcast(&wire.changed);
	pthread_mutex_unlock(&wire.lock);
}

void fake_verbs_tell(int device, uint32_t type)
{
	pthread_mutex_lock(&wire.lock);
	wire.event = type;
	for (int i = 0; i < FAKE_CONTEXTS; i++)
		if (wire.contexts[i] &&
			(device < 0 || wire.contexts[i]->pub.device == &devices[device]))
			fake_wake(&wire.contexts[i]->waker);
	pthread_mutex_unlock(&wire.lock);
}

void fake_verbs_event(uint32_t type)
{
	fake_verbs_tell(-1, type);
}

void fake_verbs_port(int device, int down)
{
	pthread_mutex_lock(&wire.lock);
	devices[device].down = down;
	pthread_mutex_unlock(&wire.lock);
}

int fake_verbs_shout(const void *data, uint32_t n)
{
	int heard = 0;

	pthread_mutex_lock(&wire.lock);
	for (uint32_t i = 0; i < FAKE_PAIRS; i++)
		if (wire.pairs[i] && wire.pairs[i]->pub.qp_type == VERBS_QPT_UD)
			heard += pair_hear(wire.pairs[i], data, n);
	pthread_mutex_unlock(&wire.lock);
	return heard;
}

uint32_t fake_verbs_overheard(void *data, uint32_t most)
{
	uint32_t n;

	pthread_mutex_lock(&wire.lock);
	n = wire.overheard_n;
	memcpy(data, wire.overheard, n < most ? n : most);
	pthread_mutex_unlock(&wire.lock);
	return n;
}

int fake_verbs_joined(void)
{
	int joined = 0;

	pthread_mutex_lock(&wire.lock);
	for (uint32_t i = 0; i < FAKE_PAIRS; i++)
		joined += wire.pairs[i] && wire.pairs[i]->pub.qp_type == VERBS_QPT_RC &&
			wire.pairs[i]->pub.state == VERBS_QPS_RTS;
	pthread_mutex_unlock(&wire.lock);
	return joined;
}

int fake_verbs_live(void)
{
	int live;

	pthread_mutex_lock(&wire.lock);
	live = wire.live;
	pthread_mutex_unlock(&wire.lock);
	return live;
}

/* ---- what fails, what lives ----------------------------------------------------------------- */

bool fake_fires(struct fake_fault *fault)
{
	return ++fault->seen == fault->at;
}

static bool is_named(const char *call)
{
	return wire.name[0] && !strcmp(call, wire.name) && fake_fires(&wire.named);
}

/* Libraries for devices write to a file, where a thread may be cancelled; for what is in a context's table they do not. */
static void cancel_point(const char *call)
{
	if (strncmp(call, "checked_", 8))
		pthread_testcancel();
}

/* errno is EIO then. */
bool fake_refused_at(const char *call)
{
	bool fires;

	cancel_point(call);
	pthread_mutex_lock(&wire.lock);
	fires = fake_fires(&wire.calls);
	fires |= is_named(call);
	pthread_mutex_unlock(&wire.lock);
	if (fires)
		errno = EIO;
	return fires;
}

void *fake_make(size_t size)
{
	void *made = calloc(1, size);

	if (!made)
		abort();
	pthread_mutex_lock(&wire.lock);
	wire.live++;
	pthread_mutex_unlock(&wire.lock);
	return made;
}

/* Under the lock. */
void fake_unmake(void *made)
{
	wire.live--;
	free(made);
}

/* What is given back is gone, whatever the call says. */
int fake_dropped(const char *call)
{
	int rc;

	cancel_point(call);
	pthread_mutex_lock(&wire.lock);
	rc = is_named(call) ? EIO : 0;
	pthread_mutex_unlock(&wire.lock);
	return rc;
}

int fake_drop_at(const char *call, void *made)
{
	pthread_mutex_lock(&wire.lock);
	fake_unmake(made);
	pthread_mutex_unlock(&wire.lock);
	return fake_dropped(call);
}

/* ---- devices -------------------------------------------------------------------------------- */

struct verbs_device **ibv_get_device_list(int *n)
{
	struct verbs_device **list;

	if (refused())
		return NULL;
	list = fake_make((FAKE_DEVICES + 1) * sizeof(struct verbs_device *));
	for (int i = 0; i < FAKE_DEVICES; i++)
		list[i] = &devices[i];
	*n = FAKE_DEVICES;
	return list;
}

void ibv_free_device_list(struct verbs_device **list)
{
	drop(list);
}

const char *ibv_get_device_name(struct verbs_device *device)
{
	return device->name;
}

static int checked_poll(struct verbs_cq *cq, int n, struct verbs_wc *wc)
{
	return refused() ? -1 : wire_poll(cq, n, wc);
}

static int checked_notify(struct verbs_cq *cq, int solicited)
{
	int rc = call_refused();

	return rc ? rc : wire_notify(cq, solicited);
}

static int checked_send(struct verbs_qp *qp, struct verbs_send *wr, struct verbs_send **bad)
{
	int rc = 0;

	for (; wr && !rc; wr = wr->next) { /* what fails amid a chain leaves those before it */
		*bad = wr;
		rc = call_refused();
		if (!rc)
			rc = wire_send(qp, wr);
	}
	return rc;
}

static int checked_recv(struct verbs_qp *qp, struct verbs_recv *wr, struct verbs_recv **bad)
{
	int rc = call_refused();

	*bad = wr;
	return rc ? rc : wire_recv(qp, wr);
}

struct verbs_ctx *ibv_open_device(struct verbs_device *device)
{
	struct fake_ctx *made;
	struct verbs_ctx *ctx;
	int i = 0;

	if (refused())
		return NULL;
	made = fake_make(sizeof(*made));
	ctx = &made->pub;
	ctx->device = device;
	ctx->ops.poll_cq = checked_poll;
	ctx->ops.req_notify_cq = checked_notify;
	ctx->ops.post_send = checked_send;
	ctx->ops.post_recv = checked_recv;
	ctx->async_fd = fake_waker_open(&made->waker);
	pthread_mutex_lock(&wire.lock);
	while (wire.contexts[i])
		i++;
	wire.contexts[i] = made;
	pthread_mutex_unlock(&wire.lock);
	wire_start();
	return ctx;
}

int ibv_close_device(struct verbs_ctx *ctx)
{
	struct fake_ctx *made = (struct fake_ctx *)ctx;
	int i = 0;

	wire_stop();
	pthread_mutex_lock(&wire.lock);
	fake_waker_close(&made->waker, ctx->async_fd);
	while (wire.contexts[i] != made)
		i++;
	wire.contexts[i] = NULL;
	fake_unmake(ctx);
	pthread_mutex_unlock(&wire.lock);
	return fake_dropped(__func__);
}

int ibv_query_device(struct verbs_ctx *ctx, struct verbs_device_attr *attr)
{
	(void)ctx;
	memset(attr, 0, sizeof(*attr));
	attr->max_cqe = 1 << 16;
	attr->max_qp_wr = 1 << 12;
	attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 16;
	attr->atomic_cap = fake_atomics();
	attr->phys_port_cnt = 2;
	return call_refused();
}

/* The first port of each is down. */
int ibv_query_port(struct verbs_ctx *ctx, uint8_t port, struct verbs_port_old *old)
{
	struct verbs_port *attr = (struct verbs_port *)old;

	pthread_mutex_lock(&wire.lock);
	attr->state = port == 2 && !ctx->device->down ? VERBS_PORT_ACTIVE : 1;
	pthread_mutex_unlock(&wire.lock);
	attr->max_mtu = attr->active_mtu = 5;
	attr->gid_tbl_len = 3;
	attr->max_msg_sz = FAKE_MESSAGE;
	attr->link_layer = VERBS_LINK_LAYER_ETHERNET;
	return call_refused();
}

static int fake_gid(const struct verbs_ctx *ctx, int index, union verbs_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (index == 0)
		memcpy(gid->raw, "\xfe\x80", 2);
	else if (index == 1)
		memcpy(gid->raw + 10, "\xff\xff\x0a", 3);
	else
		return 0;
	gid->raw[15] = ctx->device->address;
	return 0;
}

int ibv_query_gid(struct verbs_ctx *ctx, uint8_t port, int index, union verbs_gid *gid)
{
	(void)port;
	return refused() ? -1 : fake_gid(ctx, index, gid);
}

int _ibv_query_gid_ex(struct verbs_ctx *ctx, uint32_t port, uint32_t index,
	struct verbs_gid_entry *entry, uint32_t flags, size_t size)
{
	(void)port;
	(void)flags;
	(void)size;
	entry->gid_type = VERBS_GID_TYPE_ROCE_V2;
	return refused() ? EIO : index > 1 ? ENODATA : fake_gid(ctx, (int)index, &entry->gid);
}

/* ---- queues --------------------------------------------------------------------------------- */

struct verbs_channel *ibv_create_comp_channel(struct verbs_ctx *ctx)
{
	struct fake_channel *channel = refused() ? NULL : fake_make(sizeof(*channel));

	if (!channel)
		return NULL;
	channel->pub.context = ctx;
	channel->pub.fd = fake_waker_open(&channel->waker);
	pthread_mutex_lock(&wire.lock);
	((struct fake_ctx *)ctx)->channel = channel;
	pthread_mutex_unlock(&wire.lock);
	return &channel->pub;
}

int ibv_destroy_comp_channel(struct verbs_channel *channel)
{
	pthread_mutex_lock(&wire.lock);
	((struct fake_ctx *)channel->context)->channel = NULL;
	fake_waker_close(&((struct fake_channel *)channel)->waker, channel->fd);
	pthread_mutex_unlock(&wire.lock);
	return drop(channel);
}

struct verbs_cq *ibv_create_cq(
	struct verbs_ctx *ctx, int n, void *user, struct verbs_channel *channel, int vector)
{
	struct fake_cq *cq;

	(void)vector;
	if (refused())
		return NULL;
	cq = fake_make(sizeof(*cq));
	cq->pub = (struct verbs_cq){
		.context = ctx, .channel = channel, .cq_context = user, .cqe = n
	};
	cq->ring = calloc((size_t)n, sizeof(*cq->ring));
	return &cq->pub;
}

int ibv_resize_cq(struct verbs_cq *pub, int n)
{
	struct fake_cq *cq = (struct fake_cq *)pub;
	struct verbs_wc *ring;

	if (refused())
		return EIO;
	ring = calloc((size_t)n, sizeof(*ring));
	pthread_mutex_lock(&wire.lock);
	for (uint32_t i = cq->head; i != cq->tail; i++)
		ring[i % (uint32_t)n] = cq->ring[i % (uint32_t)pub->cqe];
	free(cq->ring);
	cq->ring = ring;
	pub->cqe = n;
	pthread_mutex_unlock(&wire.lock);
	return 0;
}

int ibv_destroy_cq(struct verbs_cq *cq)
{
	free(((struct fake_cq *)cq)->ring);
	return drop(cq);
}

int ibv_get_cq_event(struct verbs_channel *channel, struct verbs_cq **cq, void **user)
{
	uint64_t n;

	if (refused() || read(channel->fd, &n, sizeof(n)) != sizeof(n))
		return -1;
	*cq = NULL;
	*user = NULL;
	return 0;
}

void ibv_ack_cq_events(struct verbs_cq *cq, unsigned n)
{
	(void)cq;
	(void)n;
}

/* Any of the device's. */
static struct verbs_qp *connected_pair(const struct verbs_ctx *ctx)
{
	for (uint32_t i = 0; i < FAKE_PAIRS; i++)
		if (wire.pairs[i] && wire.pairs[i]->pub.context == ctx &&
			wire.pairs[i]->pub.qp_type == VERBS_QPT_RC)
			return &wire.pairs[i]->pub;
	return NULL;
}

int ibv_get_async_event(struct verbs_ctx *ctx, struct verbs_event *event)
{
	uint64_t n;

	if (refused() || read(ctx->async_fd, &n, sizeof(n)) != sizeof(n))
		return -1;
	pthread_mutex_lock(&wire.lock);
	event->event_type = wire.event;
	if (wire.event == VERBS_EVENT_PORT_ERR || wire.event == VERBS_EVENT_PORT_ACTIVE)
		event->element.port_num = 2;
	else
		event->element.qp = connected_pair(ctx);
	pthread_mutex_unlock(&wire.lock);
	return 0;
}

void ibv_ack_async_event(struct verbs_event *event)
{
	(void)event;
}

struct verbs_qp *ibv_create_qp(struct verbs_pd *pd, struct verbs_qp_init *init)
{
	struct fake_qp *qp;
	uint32_t i = 0;

	if (refused())
		return NULL;
	if (init->cap.max_inline_data > wire.inline_most) {
		errno = EINVAL;
		return NULL;
	}
	qp = fake_make(sizeof(*qp));
	qp->pub = (struct verbs_qp){ .context = pd->ctx,
		.qp_context = init->qp_context,
		.pd = pd,
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.qp_type = init->qp_type };
	qp->cap = init->cap;
	init->cap.max_inline_data = wire.inline_most;
	pthread_mutex_lock(&wire.lock);
	while (wire.pairs[i])
		i++;
	wire.pairs[i] = qp;
	qp->pub.qp_num = wire.base | (++wire.numbers % 127 + 1) * FAKE_PAIRS | i;
	pd->users++;
	pthread_mutex_unlock(&wire.lock);
	return &qp->pub;
}

int ibv_modify_qp(struct verbs_qp *pub, struct verbs_qp_attr *attr, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)pub;

	if (refused() || !(mask & VERBS_QP_STATE))
		return EIO;
	pthread_mutex_lock(&wire.lock);
	pub->state = attr->qp_state;
	if (mask & VERBS_QP_DEST_QPN)
		qp->dest = attr->dest_qp_num;
	if (mask & VERBS_QP_QKEY)
		qp->key = attr->qkey;
	if (pub->state == VERBS_QPS_ERR)
		pair_flush(qp);
	pthread_cond_broadcast(&wire.changed);
	pthread_mutex_unlock(&wire.lock);
	return 0;
}

int ibv_destroy_qp(struct verbs_qp *pub)
{
	struct fake_qp *qp = (struct fake_qp *)pub;

	pthread_mutex_lock(&wire.lock);
	while (qp->busy)
		pthread_cond_wait(&wire.changed, &wire.lock);
	wire.pairs[pub->qp_num % FAKE_PAIRS] = NULL;
	pub->pd->users--;
	pair_empty(qp);
	fake_unmake(qp);
	pthread_cond_broadcast(&wire.changed);
	pthread_mutex_unlock(&wire.lock);
	return fake_dropped(__func__);
}

const char *ibv_wc_status_str(unsigned status)
{
	return status == VERBS_WC_RETRY_EXC_ERR	  ? "transport retry counter exceeded"
		: status == VERBS_WC_WR_FLUSH_ERR ? "Work Request Flushed Error"
						  : "a status of the stand-in's";
}

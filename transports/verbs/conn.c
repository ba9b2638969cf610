/* SPDX-License-Identifier: MIT */
#include "conn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../include/spmt.h"
#include "ask.h"
#include "hello.h"
#include "memory.h"
#include "post.h"
#include "src/base/env.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "stage.h"
#include "transports/transport.h"

#define INLINE_WISH 192u
#define SUBNET_HOPS 64
#define RETRIES 6      /* 7 is for ever on Soft-RoCE */
#define RNR_TIMER 12   /* 0.64 ms */
#define RNR_FOR_EVER 7 /* a peer that does not listen is missed at the deadline */
#define READS_MOST 16u

/* ---- making --------------------------------------------------------------------------------- */

static int pairing_cannot(const struct pairing *c, const char *call, int err)
{
	char place[NIC_PLACE];

	return fail_errno(err, "%s: %s", nic_route_text(c->nic, &c->peer, place), call);
}

uint32_t nic_reads(const struct nic *nic)
{
	int most = MIN_OF(nic->place.device.max_qp_rd_atom, nic->place.device.max_qp_init_rd_atom);

	return MIN_OF((uint32_t)MAX_OF(most, 1), READS_MOST);
}

void nic_route(const struct nic *nic, const struct rank_nic *peer, struct verbs_ah_attr *attr)
{
	const struct env *env = env_loaded();

	memset(attr, 0, sizeof(*attr));
	attr->port_num = nic->place.port;
	attr->dlid = peer->lid;
	attr->is_global = nic->place.ethernet ||
		(nic->place.gid_index >= 0 &&
			memcmp(nic->place.gid.raw, peer->gid, sizeof(uint64_t)) != 0);
	if (!attr->is_global)
		return;
	memcpy(attr->grh.dgid.raw, peer->gid, sizeof(peer->gid));
	attr->grh.sgid_index = (uint8_t)MAX_OF(nic->place.gid_index, 0);
	attr->grh.hop_limit = SUBNET_HOPS;
	attr->grh.traffic_class = env ? (uint8_t)env->rdma_tc : 0;
}

/* Room in the completion queue for one connection more. */
static int queue_room(const struct pairing *c)
{
	struct nic *nic = c->nic;
	int want = nic->cq_used + (int)(CONN_SENDS + ASK_BUFFERS), room = nic->cq_room, rc;

	while (room < want)
		room *= 2;
	room = MIN_OF(room, nic->place.device.max_cqe);
	if (room < want)
		return fail(-ENOSPC, "%s: %d connections are all that its completion queue holds",
			nic->place.name, nic->nconns);
	rc = room == nic->cq_room ? 0 : nic->api->resize_cq(nic->cq, room);
	if (rc)
		return pairing_cannot(c, "ibv_resize_cq", rc);
	nic->cq_room = room;
	nic->cq_used = want;
	return 0;
}

static int pair_make(struct pairing *c)
{
	struct nic *nic = c->nic;
	struct verbs_qp_init init = { .qp_context = c,
		.send_cq = nic->cq,
		.recv_cq = nic->cq,
		.cap = { .max_send_wr = CONN_SENDS,
			.max_recv_wr = ASK_BUFFERS,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_WISH },
		.qp_type = VERBS_QPT_RC };
	struct verbs_qp_attr attr = { .qp_state = VERBS_QPS_INIT,
		.port_num = nic->place.port,
		.qp_access_flags = VERBS_ACCESS_REMOTE_WRITE | VERBS_ACCESS_REMOTE_READ |
			nic_atomic_access(nic) };
	struct verbs_qp_cap wish = init.cap;
	int rc;

	c->qp = nic->api->create_qp(nic->pd, &init);
	if (!c->qp && errno == EINVAL) { /* no device has to write inline */
		init.cap = wish;
		init.cap.max_inline_data = 0;
		c->qp = nic->api->create_qp(nic->pd, &init);
	}
	if (!c->qp)
		return pairing_cannot(c, "ibv_create_qp", errno);
	c->inline_most = MIN_OF(init.cap.max_inline_data, INLINE_WISH);
	rc = nic->api->modify_qp(c->qp, &attr,
		VERBS_QP_STATE | VERBS_QP_PKEY_INDEX | VERBS_QP_PORT | VERBS_QP_ACCESS_FLAGS);
	if (rc)
		return pairing_cannot(c, "ibv_modify_qp to INIT", rc);
	for (uint32_t i = 0; i < ASK_BUFFERS && !rc; i++)
		rc = pairing_listen(c, i);
	return rc;
}

static int messages_make(struct pairing *c)
{
	struct nic *nic = c->nic;

	c->messages = process_pages(ASK_ROOM); /* as own_open of memory.c */
	if (!c->messages)
		return fail(-ENOMEM, "%s: out of memory for messages", nic->place.name);
	c->mr = mr_make(nic, c->messages, ASK_ROOM, VERBS_ACCESS_LOCAL_WRITE);
	return c->mr ? 0 : pairing_cannot(c, "ibv_reg_mr of messages", errno);
}

static int pairing_fill(struct pairing *c)
{
	struct nic *nic = c->nic;
	struct verbs_ah_attr route;
	int rc = process_random(&c->psn, sizeof(c->psn));

	c->psn &= 0xffffff;
	if (!rc)
		rc = queue_room(c);
	if (!rc)
		rc = messages_make(c);
	if (!rc)
		rc = pair_make(c);
	if (rc || !memcmp(c->peer.endpoint, nic->endpoint, sizeof(nic->endpoint)))
		return rc ? rc
			  : pairing_join(c, c->qp->qp_num, c->psn, nic->place.attr.active_mtu,
				    nic_reads(nic));
	nic_route(nic, &c->peer, &route);
	c->ah = nic->api->create_ah(nic->pd, &route);
	return c->ah ? 0 : pairing_cannot(c, "ibv_create_ah", errno);
}

/* Takes any half-made one. */
static void pairing_free(struct pairing *c)
{
	struct nic *nic = c->nic;
	int rc = c->qp ? nic->api->destroy_qp(c->qp) : 0;

	if (c->ah)
		rc |= nic->api->destroy_ah(c->ah);
	if (c->mr)
		rc |= nic->api->dereg_mr(c->mr);
	if (rc)
		log_line(LOG_ERROR, "%s: a connection is not given back (%d)", nic->place.name, rc);
	process_pages_free(c->messages, ASK_ROOM);
	mem_free(c);
}

static int conns_grow(struct nic *nic)
{
	int room = nic->pairing_room ? 2 * nic->pairing_room : 8;
	struct pairing **more;

	if (nic->nconns < nic->pairing_room)
		return 0;
	more = mem_calloc((size_t)room, sizeof(struct pairing *));
	if (!more)
		return fail(-ENOMEM, "%s: out of memory for connections", nic->place.name);
	if (nic->conns)
		memcpy(more, nic->conns, (size_t)nic->nconns * sizeof(struct pairing *));
	mem_free(nic->conns);
	nic->conns = more;
	nic->pairing_room = room;
	return 0;
}

static bool pairing_is(const struct pairing *c, uint32_t own, const struct rank_nic *peer, int nth)
{
	return c->nth == nth && c->failures == own && c->peer.failures == peer->failures &&
		!memcmp(c->peer.endpoint, peer->endpoint, sizeof(peer->endpoint));
}

struct pairing *pairing_get(struct nic *nic, uint32_t own, const struct rank_nic *peer, int nth)
{
	struct pairing *c;

	for (int i = 0; i < nic->nconns; i++)
		if (pairing_is(nic->conns[i], own, peer, nth))
			return nic->conns[i];
	if (atomic_load(&nic->gone)) {
		fail(-EIO, "%s port %d: the device is gone", nic->place.name, nic->place.port);
		return NULL;
	}
	if (conns_grow(nic))
		return NULL;
	c = mem_calloc(1, sizeof(*c));
	if (!c) {
		fail(-ENOMEM, "%s: out of memory for a connection", nic->place.name);
		return NULL;
	}
	c->nic = nic;
	c->number = (uint32_t)nic->nconns;
	c->peer = *peer;
	c->failures = own;
	c->nth = nth;
	if (!pairing_fill(c)) {
		nic->conns[nic->nconns++] = c;
		return c;
	}
	KEEPS_SENTENCE;
	pairing_free(c);
	return NULL;
}

void conns_close(struct nic *nic)
{
	for (int i = 0; i < nic->nconns; i++) {
		lanes_forget(nic->conns[i]);
		pairing_free(nic->conns[i]);
	}
	mem_free(nic->conns);
}

int pairing_listen(struct pairing *c, uint32_t at)
{
	struct verbs_sge sge = {
		.addr = (uintptr_t)ask_buffer(c, at), .length = ASK_BUFFER, .lkey = c->mr->lkey
	};
	struct verbs_recv wr = {
		.wr_id = nic_number(NIC_HEARD, c->number, at), .sg_list = &sge, .num_sge = 1
	};
	struct verbs_recv *bad;
	int rc = c->nic->place.ctx->ops.post_recv(c->qp, &wr, &bad);

	return rc ? pairing_cannot(c, "ibv_post_recv", rc) : 0;
}

/* ---- joining -------------------------------------------------------------------------------- */

int pairing_join(struct pairing *c, uint32_t qpn, uint32_t psn, uint32_t mtu, uint32_t reads)
{
	const struct env *env = env_loaded();
	struct nic *nic = c->nic;
	struct verbs_qp_attr attr = { .qp_state = VERBS_QPS_RTR,
		.path_mtu = MIN_OF(mtu, nic->place.attr.active_mtu),
		.dest_qp_num = qpn,
		.rq_psn = psn,
		.max_dest_rd_atomic = (uint8_t)nic_reads(nic),
		.min_rnr_timer = RNR_TIMER };
	int rc;

	nic_route(nic, &c->peer, &attr.ah_attr);
	rc = nic->api->modify_qp(c->qp, &attr,
		VERBS_QP_STATE | VERBS_QP_AV | VERBS_QP_PATH_MTU | VERBS_QP_DEST_QPN |
			VERBS_QP_RQ_PSN | VERBS_QP_MAX_DEST_RD_ATOMIC | VERBS_QP_MIN_RNR_TIMER);
	if (rc)
		return pairing_fail_last(c, pairing_cannot(c, "ibv_modify_qp to RTR", rc));
	attr = (struct verbs_qp_attr){ .qp_state = VERBS_QPS_RTS,
		.sq_psn = c->psn,
		.timeout = env ? (uint8_t)env->rdma_timeout : 14,
		.retry_cnt = RETRIES,
		.rnr_retry = RNR_FOR_EVER,
		.max_rd_atomic = (uint8_t)MIN_OF(reads, nic_reads(nic)) };
	rc = nic->api->modify_qp(c->qp, &attr,
		VERBS_QP_STATE | VERBS_QP_SQ_PSN | VERBS_QP_TIMEOUT | VERBS_QP_RETRY_CNT |
			VERBS_QP_RNR_RETRY | VERBS_QP_MAX_QP_RD_ATOMIC);
	if (rc)
		return pairing_fail_last(c, pairing_cannot(c, "ibv_modify_qp to RTS", rc));
	c->peer_qpn = qpn;
	c->state = memcmp(c->peer.endpoint, nic->endpoint, sizeof(nic->endpoint)) ? CONN_MET
										  : CONN_READY;
	return 0;
}

/* ---- ending --------------------------------------------------------------------------------- */

static void pairing_end(struct pairing *c, int code, const char *sentence)
{
	UNCANCELLED; /* in libibverbs, by whoever polls */
	struct verbs_qp_attr attr = { .qp_state = VERBS_QPS_ERR };

	if (c->state == CONN_FAILED)
		return;
	c->state = CONN_FAILED;
	atomic_fetch_add(&verbs_state()->failures, 1);
	c->code = code;
	snprintf(c->why, sizeof(c->why), "%.*s", (int)sizeof(c->why) - 1, sentence);
	log_line(LOG_INFO, "%s", c->why);
	/* What is still in flight ends at once. Where the device refuses, it ends by itself, or the deadline comes. */
	if (c->nic->api->modify_qp(c->qp, &attr, VERBS_QP_STATE))
		log_line(LOG_ERROR, "%s: ibv_modify_qp to ERR failed", c->nic->place.name);
	pairing_unsent(c, c->chained);
	asks_fail(c);
	stage_wake(c->nic);
}

void pairing_fail(struct pairing *c, int code, const char *why)
{
	char place[NIC_PLACE], sentence[CONN_WHY];

	snprintf(sentence, sizeof(sentence), "%s: %.150s", nic_route_text(c->nic, &c->peer, place),
		why);
	pairing_end(c, code, sentence);
}

int pairing_fail_last(struct pairing *c, int code)
{
	struct status_saved why;

	status_save(&why);
	pairing_end(c, code, why.sentence);
	return fail_again(code, &why);
}

void conns_fail(struct nic *nic, int code, const char *why)
{
	for (int i = 0; i < nic->nconns; i++)
		pairing_fail(nic->conns[i], code, why);
}

void pairing_event(struct nic *nic, const struct verbs_qp *qp, const char *name)
{
	char why[80];

	snprintf(why, sizeof(why), "the device says that the queue pair has failed (%s)", name);
	for (int i = 0; i < nic->nconns; i++)
		if (nic->conns[i]->qp == qp)
			pairing_fail(nic->conns[i], -EIO, why);
}

/* A peer that does not answer a port which is down may be well. */
static int status_code(struct nic *nic, uint32_t status)
{
	if (nic_is_down(nic))
		return -ENETDOWN;
	switch (status) {
	case VERBS_WC_RETRY_EXC_ERR:
	case VERBS_WC_RNR_RETRY_EXC_ERR:
	case VERBS_WC_RESP_TIMEOUT_ERR:
		return SPMT_ERR_PEER_DEAD;
	default:
		return -EIO;
	}
}

void pairing_blame(struct pairing *c, const struct verbs_wc *wc)
{
	char why[CONN_WHY];
	int code;

	if (c->state == CONN_FAILED)
		return;
	code = status_code(c->nic, wc->status);
	snprintf(why, sizeof(why), "%.96s (verbs status %u, vendor's %u)",
		c->nic->api->wc_status_str(wc->status), wc->status, wc->vendor_err);
	pairing_fail(c, code, why);
}

void landing_end(struct pairing *c, const struct landing *land, int code, bool asked)
{
	bool lands = !code && land->dst && !(land->sender && land->sender->deaf);

	if (lands && land->stage) {
		stage_in(c, land, asked);
		return;
	}
	if (lands)
		store_bytes(land->dst, chunk_at(c->nic, land->chunk), land->n);
	if (land->chunk >= 0)
		chunk_give(c->nic, land->chunk);
	if (land->region) {
		land->sender->direct--;
		region_let_go(c->nic, land->region);
	}
	if (land->sender && asked)
		sender_answered(land->sender, code);
	else if (land->sender)
		sender_moved(land->sender, code);
}

static inline void native_end(struct pairing *c, const struct sent *s, bool whole)
{
	struct sender *sender = s->land.sender;

	c->natives--;
	if (s->asks && whole)
		sender->old = *native_word(c, (uint32_t)(s - c->sent));
	sender_answered(sender, whole ? 0 : c->code);
}

static inline void sent_end(struct pairing *c, const struct sent *s, bool whole)
{
	if (s->native) {
		native_end(c, s, whole);
		return;
	}
	if (s->answer)
		c->answering--;
	if (s->serve || s->lent)
		stage_moved(c, s, whole);
	landing_end(c, &s->land, whole ? 0 : c->code, false);
}

void pairing_unsent(struct pairing *c, uint32_t n)
{
	uint32_t end = c->tail;

	c->chained = 0;
	c->tail -= n;
	if ((int32_t)(c->signaled - c->tail) > 0)
		c->signaled = c->tail;
	for (uint32_t at = c->tail; at != end; at++)
		sent_end(c, &c->sent[at % CONN_RING], false);
}

void pairing_sent(struct pairing *c, uint32_t at, const struct verbs_wc *wc)
{
	bool whole = wc->status == VERBS_WC_SUCCESS;

	if (at - c->head >= c->tail - c->head) /* none that is in flight */
		return;
	if (!whole)
		pairing_blame(c, wc);
	while (c->head != at + 1) {
		struct sent *s = &c->sent[c->head % CONN_RING];

		c->head++;
		sent_end(c, s, whole || c->head != at + 1);
	}
}

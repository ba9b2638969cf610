/* SPDX-License-Identifier: MIT */
#include "hello.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "include/spmt.h"
#include "src/base/blake2s.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define HELLO_MAGIC 0x6c6c6568u
#define HELLO_VERSION 5u
#define HELLO_AGAIN_NS 20000000ll
#define NUMBER_MOST 0xffffffu /* of queue pairs and packets */
#define MTU_MOST 5u

/* Both ends are programs of one machine's byte order: the world's uid says so. */
struct hello {
	uint32_t magic, version;
	unsigned char nonce[16];
	unsigned char from[16], gid[16]; /* from: the endpoint, veiled */
	uint32_t from_qpn, from_qkey;
	uint32_t qpn, psn, reads;
	uint32_t failures, to_failures; /* as the sender said, and the other one */
	uint16_t lid;
	uint8_t mtu, ethernet;
	uint8_t joined, asks,
		failed; /* knows the other's queue pair; wants an answer; of no more use */
	uint8_t nth;	/* of the connections between the two */
	char device[RANK_NIC_DEVICE]; /* of the sender, for sentences */
	uint8_t port;
	unsigned char proof[32];
};
_Static_assert(sizeof(struct hello) <= HELLO_ROOM, "a hello fits its buffer");

static char *hello_at(const struct nic *nic, uint32_t at)
{
	return nic->hellos + (size_t)at * (HELLO_HEADER + HELLO_ROOM);
}

static int hello_listen(struct nic *nic, uint32_t at)
{
	struct verbs_sge sge = { .addr = (uintptr_t)hello_at(nic, at),
		.length = HELLO_HEADER + HELLO_ROOM,
		.lkey = nic->words->lkey };
	struct verbs_recv wr = {
		.wr_id = nic_number(NIC_HELLO, 0, at), .sg_list = &sge, .num_sge = 1
	};
	struct verbs_recv *bad;
	int rc = nic->place.ctx->ops.post_recv(nic->hello, &wr, &bad);

	return rc ? fail_errno(rc, "%s: ibv_post_recv of hellos", nic->place.name) : 0;
}

/* Endpoints are known to those of a port's worlds alone, so they serve as keys. */
static void hello_digest(const unsigned char endpoint[16], const char label[16], const void *said,
	size_t size, void *digest, size_t n)
{
	const struct blake2s_part parts[] = { { label, 16 }, { said, size } };

	blake2s(endpoint, 16, parts, ARRAY_SIZE(parts), digest, n);
}

/* Every datagram has it in clear. */
static uint32_t hello_key(const struct nic *nic)
{
	uint32_t key;

	hello_digest(nic->endpoint, "spmt hello qkey", NULL, 0, &key, sizeof(key));
	return key & 0x7fffffff; /* the upper half is for the kernel */
}

/* Covers who it is from, or uncovers it. */
static void hello_veil(struct hello *hello, const unsigned char to[16])
{
	unsigned char veil[sizeof(hello->from)];

	hello_digest(to, "spmt hello veil", hello->nonce, sizeof(hello->nonce), veil, sizeof(veil));
	for (size_t i = 0; i < sizeof(veil); i++)
		hello->from[i] ^= veil[i];
}

static void hello_prove(
	const struct hello *hello, const unsigned char to[16], unsigned char proof[32])
{
	hello_digest(to, "spmt hello said", hello, offsetof(struct hello, proof), proof, 32);
}

static int hello_modify(struct nic *nic, struct verbs_qp_attr *attr, int mask, const char *to)
{
	int rc = nic->api->modify_qp(nic->hello, attr, VERBS_QP_STATE | mask);

	return rc ? fail_errno(rc, "%s: ibv_modify_qp of hellos to %s", nic->place.name, to) : 0;
}

int hello_open(struct nic *nic)
{
	struct verbs_qp_init init = { .send_cq = nic->cq,
		.recv_cq = nic->cq,
		.cap = { .max_send_wr = NIC_GREETINGS,
			.max_recv_wr = NIC_HELLOS,
			.max_send_sge = 1,
			.max_recv_sge = 1 },
		.qp_type = VERBS_QPT_UD };
	struct verbs_qp_attr attr = {
		.qp_state = VERBS_QPS_INIT, .port_num = nic->place.port, .qkey = hello_key(nic)
	};
	int rc;

	nic->hello = nic->api->create_qp(nic->pd, &init);
	if (!nic->hello)
		return fail_errno(errno, "%s: ibv_create_qp of hellos", nic->place.name);
	rc = hello_modify(nic, &attr, VERBS_QP_PKEY_INDEX | VERBS_QP_PORT | VERBS_QP_QKEY, "INIT");
	for (uint32_t i = 0; i < NIC_HELLOS && !rc; i++)
		rc = hello_listen(nic, i);
	attr.qp_state = VERBS_QPS_RTR;
	if (!rc)
		rc = hello_modify(nic, &attr, 0, "RTR");
	attr.qp_state = VERBS_QPS_RTS;
	return rc ? rc : hello_modify(nic, &attr, VERBS_QP_SQ_PSN, "RTS");
}

void hello_address(const struct nic *nic, struct rank_nic *address)
{
	*address = (struct rank_nic){ .qpn = nic->hello->qp_num,
		.qkey = hello_key(nic),
		.failures = atomic_load(&verbs_state()->failures),
		.lid = nic->place.attr.lid,
		.mtu = (uint8_t)nic->place.attr.active_mtu,
		.ethernet = nic->place.ethernet,
		.port = nic->place.port };
	snprintf(address->device, sizeof(address->device), "%.*s", RANK_NIC_DEVICE - 1,
		nic->place.name);
	memcpy(address->endpoint, nic->endpoint, sizeof(address->endpoint));
	memcpy(address->gid, nic->place.gid.raw, sizeof(address->gid));
}

/* ---- sending -------------------------------------------------------------------------------- */

/* Where none may go now, the one who waits says it again. */
static void hello_send(struct pairing *c, bool asks)
{
	struct nic *nic = c->nic;
	char *at = hello_at(nic, NIC_HELLOS) + nic->greeting % NIC_GREETINGS * HELLO_ROOM;
	struct hello hello = { .magic = HELLO_MAGIC,
		.version = HELLO_VERSION,
		.gid = { 0 },
		.from_qpn = nic->hello->qp_num,
		.from_qkey = hello_key(nic),
		.qpn = c->qp->qp_num,
		.psn = c->psn,
		.reads = nic_reads(nic),
		.failures = c->failures,
		.to_failures = c->peer.failures,
		.lid = nic->place.attr.lid,
		.mtu = (uint8_t)nic->place.attr.active_mtu,
		.ethernet = nic->place.ethernet,
		.joined = c->state != CONN_NEW,
		.asks = asks,
		.failed = c->state == CONN_FAILED,
		.nth = (uint8_t)c->nth,
		.port = nic->place.port };
	struct verbs_sge sge = {
		.addr = (uintptr_t)at, .length = sizeof(hello), .lkey = nic->words->lkey
	};
	struct verbs_send wr = { .wr_id = nic_number(NIC_GREETED, 0, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = VERBS_WR_SEND,
		.send_flags = VERBS_SEND_SIGNALED | VERBS_SEND_SOLICITED,
		.wr.ud = { c->ah, c->peer.qpn, c->peer.qkey } };
	struct verbs_send *bad;
	char place[NIC_PLACE];
	int rc;

	if (!c->ah || nic->greeted == NIC_GREETINGS ||
		process_random(hello.nonce, sizeof(hello.nonce)))
		return;
	snprintf(hello.device, sizeof(hello.device), "%.*s", RANK_NIC_DEVICE - 1, nic->place.name);
	memcpy(hello.from, nic->endpoint, sizeof(hello.from));
	memcpy(hello.gid, nic->place.gid.raw, sizeof(hello.gid));
	hello_veil(&hello, c->peer.endpoint);
	hello_prove(&hello, c->peer.endpoint, hello.proof);
	memcpy(at, &hello, sizeof(hello));
	rc = nic->place.ctx->ops.post_send(nic->hello, &wr, &bad);
	if (rc) {
		pairing_fail_last(c,
			fail_errno(rc, "%s: ibv_post_send of a hello",
				nic_route_text(nic, &c->peer, place)));
		return;
	}
	nic->greeting++;
	nic->greeted++;
}

static bool has_met(void *ctx)
{
	const struct pairing *c = ctx;

	return c->state == CONN_READY || c->state == CONN_FAILED;
}

/* Who it is from is not known of one that is refused: it is told to all who wait for one. */
static int hello_missed(struct pairing *c, const struct verbs_wait *wait)
{
	const struct nic *nic = c->nic;
	char place[NIC_PLACE], refused[sizeof(nic->refusal) + 64] = "";
	int64_t ms = wait->ns / 1000000;

	pthread_mutex_lock(&c->nic->lock);
	nic_route_text(nic, &c->peer, place);
	if (nic->refused)
		snprintf(refused, sizeof(refused), "; refused since it was opened: %u, the last %s",
			nic->refused, nic->refusal);
	pthread_mutex_unlock(&c->nic->lock);
	return fail(SPMT_ERR_TIMEOUT,
		"%s: no hello has come in answer within %.*f s (SPMT_TIMEOUT_MS)%s", place,
		SECONDS((double)ms / 1e3), refused);
}

int hello_meet(struct pairing *c, struct verbs_wait *wait)
{
	for (;;) {
		int64_t end = verbs_wait_end(wait), soon = process_now() + HELLO_AGAIN_NS;
		struct verbs_wait again = { .end = MIN_OF(end, soon), .stop = wait->stop };
		int rc;

		pthread_mutex_lock(&c->nic->lock);
		if (!has_met(c))
			hello_send(c, true);
		rc = c->state == CONN_FAILED ? fail(c->code, "%s", c->why) : 0;
		pthread_mutex_unlock(&c->nic->lock);
		if (!rc)
			rc = nic_wait(c->nic, has_met, c, &again);
		if (rc == -ETIMEDOUT && process_now() < wait->end)
			continue;
		if (rc)
			return rc == -ETIMEDOUT ? hello_missed(c, wait) : rc;
		pthread_mutex_lock(&c->nic->lock);
		rc = c->state == CONN_FAILED ? fail(c->code, "%s", c->why) : 0;
		pthread_mutex_unlock(&c->nic->lock);
		return rc;
	}
}

/* ---- hearing -------------------------------------------------------------------------------- */

/* A name that may be part of a sentence. */
static bool is_name(const char *name, size_t room)
{
	size_t n = strnlen(name, room);

	for (size_t i = 0; i < n; i++)
		if (name[i] <= ' ' || name[i] > '~')
			return false;
	return n && n < room;
}

/* Whether it is one of ours, and says what can be; who it is from is uncovered. */
static bool hello_fits(const struct nic *nic, struct hello *hello)
{
	unsigned char proof[sizeof(hello->proof)];

	hello_prove(hello, nic->endpoint, proof);
	if (!equal_secrets(proof, hello->proof, sizeof(proof)))
		return false;
	hello_veil(hello, nic->endpoint);
	return hello->magic == HELLO_MAGIC && hello->version == HELLO_VERSION &&
		memcmp(hello->from, nic->endpoint, sizeof(hello->from)) != 0 &&
		hello->qpn <= NUMBER_MOST && hello->psn <= NUMBER_MOST && hello->reads >= 1 &&
		hello->reads <= UINT8_MAX && hello->mtu >= 1 && hello->mtu <= MTU_MOST &&
		hello->nth < CONN_PARALLEL && hello->ethernet == nic->place.ethernet &&
		hello->port && is_name(hello->device, sizeof(hello->device));
}

/* n bytes that are none of ours, from anybody. */
static void hello_refuse(struct nic *nic, const struct hello *hello, uint32_t n)
{
	bool other = n >= offsetof(struct hello, nonce) && hello->magic == HELLO_MAGIC &&
		hello->version != HELLO_VERSION;

	if (other)
		snprintf(nic->refusal, sizeof(nic->refusal), "a hello of version %u, not %u",
			hello->version, HELLO_VERSION);
	else
		snprintf(nic->refusal, sizeof(nic->refusal), "%u bytes that are no hello", n);
	nic->refused++;
	log_line(LOG_ERROR, "%s port %d: %s: refused", nic->place.name, nic->place.port,
		nic->refusal);
}

static void hello_sender(const struct hello *hello, struct rank_nic *from)
{
	*from = (struct rank_nic){ .qpn = hello->from_qpn,
		.qkey = hello->from_qkey,
		.failures = hello->failures,
		.lid = hello->lid,
		.mtu = hello->mtu,
		.ethernet = hello->ethernet,
		.port = hello->port };
	memcpy(from->device, hello->device, sizeof(from->device));
	memcpy(from->endpoint, hello->from, sizeof(from->endpoint));
	memcpy(from->gid, hello->gid, sizeof(from->gid));
}

static void hello_take(struct nic *nic, const struct hello *hello)
{
	char place[NIC_PLACE];
	struct rank_nic from;
	struct pairing *c;
	bool news;

	hello_sender(hello, &from);
	c = pairing_get(nic, hello->to_failures, &from, hello->nth);

	if (!c) {
		log_line(LOG_ERROR, "a hello is not answered: %s", status_sentence());
		return;
	}
	if (hello->failed)
		pairing_fail(c, -EIO, "its other end has failed");
	else if (c->state == CONN_NEW)
		pairing_join(c, hello->qpn, hello->psn, hello->mtu, hello->reads);
	if (c->state == CONN_FAILED) {
		if (hello->asks && !hello->failed)
			hello_send(c, false); /* or it would wait until its deadline */
		return;
	}
	if (c->peer_qpn != hello->qpn) {
		log_line(LOG_ERROR, "%s: a hello names another queue pair than before: refused",
			nic_route_text(nic, &from, place));
		return;
	}
	news = c->state == CONN_MET && hello->joined;
	if (news)
		c->state = CONN_READY;
	if (hello->asks || news)
		hello_send(c, false);
}

void hello_heard(struct nic *nic, uint32_t at, const struct verbs_wc *wc)
{
	UNCANCELLED; /* the queue pair that it may ask for is made here */
	struct hello hello;
	KEEPS_SENTENCE;

	if (at >= NIC_HELLOS || wc->status != VERBS_WC_SUCCESS)
		return;
	memcpy(&hello, hello_at(nic, at) + HELLO_HEADER, sizeof(hello));
	if (wc->byte_len == HELLO_HEADER + sizeof(hello) && hello_fits(nic, &hello))
		hello_take(nic, &hello);
	else
		hello_refuse(
			nic, &hello, wc->byte_len < HELLO_HEADER ? 0 : wc->byte_len - HELLO_HEADER);
	if (hello_listen(nic, at))
		log_line(LOG_ERROR, "%s", status_sentence());
}

/* SPDX-License-Identifier: MIT */
#include "fake_wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "transports/transport.h"

#define LATER_NS 1000000
#define MOVES_A_ROUND 8 /* of a queue pair, before the next one's turn */

/* ---- completions ---------------------------------------------------------------------------- */

static void complete(struct verbs_cq *pub, const struct verbs_wc *wc, bool solicited)
{
	struct fake_cq *cq = (struct fake_cq *)pub;

	if (cq->tail - cq->head >= (uint32_t)pub->cqe)
		abort(); /* a device would lose it, and the queue */
	cq->ring[cq->tail++ % (uint32_t)pub->cqe] = *wc;
	if (cq->armed == 2 || (cq->armed == 1 && (solicited || wc->status))) {
		cq->armed = 0;
		fake_wake(&((struct fake_channel *)pub->channel)->waker);
	}
}

int wire_poll(struct verbs_cq *pub, int n, struct verbs_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)pub;
	int i = 0;

	pthread_mutex_lock(&wire.lock);
	while (i < n && cq->head != cq->tail)
		wc[i++] = cq->ring[cq->head++ % (uint32_t)pub->cqe];
	pthread_mutex_unlock(&wire.lock);
	return i;
}

int wire_notify(struct verbs_cq *pub, int solicited)
{
	struct fake_cq *cq = (struct fake_cq *)pub;

	pthread_mutex_lock(&wire.lock);
	if (cq->armed < 2)
		cq->armed = solicited ? 1 : 2;
	pthread_mutex_unlock(&wire.lock);
	return 0;
}

/* ---- posting -------------------------------------------------------------------------------- */

static bool is_atomic(uint32_t opcode)
{
	return opcode == VERBS_WR_ATOMIC_FETCH_AND_ADD || opcode == VERBS_WR_ATOMIC_CMP_AND_SWP;
}

int wire_send(struct verbs_qp *pub, const struct verbs_send *wr)
{
	struct fake_qp *qp = (struct fake_qp *)pub;
	size_t n = wr->num_sge ? wr->sg_list->length : 0;
	bool kept = wr->send_flags & VERBS_SEND_INLINE && n;
	struct fake_work *work = calloc(1, sizeof(*work) + (kept ? n : 0));

	if (kept && n > wire.inline_most) {
		free(work);
		return EINVAL;
	}
	*work = (struct fake_work){ .wr_id = wr->wr_id,
		.far = wr->wr.rdma.remote_addr,
		.opcode = wr->opcode,
		.key = pub->qp_type == VERBS_QPT_UD ? wr->wr.ud.remote_qkey : wr->wr.rdma.rkey,
		.qpn = wr->wr.ud.remote_qpn,
		.flags = wr->send_flags };
	if (is_atomic(wr->opcode)) {
		work->far = wr->wr.atomic.remote_addr;
		work->key = wr->wr.atomic.rkey;
		work->compare_add = wr->wr.atomic.compare_add;
		work->swap = wr->wr.atomic.swap;
	}
	if (n)
		work->sge = *wr->sg_list;
	if (kept)
		memcpy(work->body, (const void *)(uintptr_t)wr->sg_list->addr, n);
	pthread_mutex_lock(&wire.lock);
	*(qp->work ? &qp->last->next : &qp->work) = work;
	qp->last = work;
	if (pub->state == VERBS_QPS_ERR)
		pair_flush(qp);
	else if (wire.prompt && !wire.held && !far_is(qp->dest))
		pair_round(qp);
	pthread_cond_broadcast(&wire.changed);
	pthread_mutex_unlock(&wire.lock);
	return 0;
}

int wire_recv(struct verbs_qp *pub, const struct verbs_recv *wr)
{
	struct fake_qp *qp = (struct fake_qp *)pub;
	struct fake_room *room = calloc(1, sizeof(*room));

	room->wr_id = wr->wr_id;
	room->sge = *wr->sg_list;
	pthread_mutex_lock(&wire.lock);
	if (qp->room)
		qp->last_room->next = room;
	else
		qp->room = room;
	qp->last_room = room;
	if (pub->state == VERBS_QPS_ERR)
		pair_flush(qp);
	pthread_cond_broadcast(&wire.changed);
	pthread_mutex_unlock(&wire.lock);
	return 0;
}

static void work_end(struct fake_qp *qp, uint32_t status)
{
	struct fake_work *work = qp->work;
	struct verbs_wc wc = { .wr_id = work->wr_id, .status = status, .qp_num = qp->pub.qp_num };

	qp->work = work->next;
	if (status || work->flags & VERBS_SEND_SIGNALED)
		complete(qp->pub.send_cq, &wc, false);
	free(work);
}

static void room_end(struct fake_qp *qp, uint32_t status, uint32_t n, bool solicited)
{
	struct fake_room *room = qp->room;
	struct verbs_wc wc = { .wr_id = room->wr_id,
		.status = status,
		.opcode = VERBS_WC_RECV,
		.byte_len = n,
		.qp_num = qp->pub.qp_num };

	qp->room = room->next;
	complete(qp->pub.recv_cq, &wc, solicited);
	free(room);
}

void pair_flush(struct fake_qp *qp)
{
	while (qp->work && !qp->busy)
		work_end(qp, VERBS_WC_WR_FLUSH_ERR);
	while (qp->room)
		room_end(qp, VERBS_WC_WR_FLUSH_ERR, 0, false);
}

void pair_empty(struct fake_qp *qp)
{
	while (qp->work) {
		struct fake_work *work = qp->work;

		qp->work = work->next;
		free(work);
	}
	while (qp->room) {
		struct fake_room *room = qp->room;

		qp->room = room->next;
		free(room);
	}
}

void fake_verbs_congest(int device)
{
	pthread_mutex_lock(&wire.lock);
	wire.congested = device + 1;
	pthread_cond_broadcast(&wire.changed);
	pthread_mutex_unlock(&wire.lock);
}

static bool congested(const struct fake_qp *qp)
{
	const char *name = ibv_get_device_name(qp->pub.context->device);

	return qp->pub.qp_type == VERBS_QPT_RC &&
		wire.congested == name[strlen(name) - 1] - '0' + 1;
}

/* ---- the wire ------------------------------------------------------------------------------- */

/* A range of a registration, NULL: there is none that allows it. */
static char *region(const struct verbs_pd *pd, uint32_t key, uint64_t at, uint32_t n, int access)
{
	const struct fake_mr *mr =
		(key & 0xffff) < FAKE_REGIONS ? wire.regions[key & 0xffff] : NULL;
	uint64_t offset = mr ? at - (uintptr_t)mr->pub.addr : 0;

	if (!mr || mr->pub.rkey != key || mr->pub.pd != pd || (mr->access & access) != access ||
		offset > mr->pub.length || n > mr->pub.length - offset)
		return NULL;
	return mr->data + offset;
}

static const char *source(const struct fake_qp *qp, const struct fake_work *work)
{
	if (work->flags & VERBS_SEND_INLINE)
		return work->body;
	return region(qp->pub.pd, work->sge.lkey, work->sge.addr, work->sge.length, 0);
}

const char *pair_source(const struct fake_qp *qp)
{
	return source(qp, qp->work);
}

static struct fake_qp *pair_numbered(uint32_t number)
{
	struct fake_qp *qp = wire.pairs[number % FAKE_PAIRS];

	return qp && qp->pub.qp_num == number ? qp : NULL;
}

bool pair_hear(struct fake_qp *qp, const void *data, uint32_t n)
{
	if (!qp->room || qp->room->sge.length < n + FAKE_HEADER || qp->pub.state == VERBS_QPS_ERR)
		return false;
	memcpy((char *)(uintptr_t)qp->room->sge.addr + FAKE_HEADER, data, n);
	room_end(qp, VERBS_WC_SUCCESS, n + FAKE_HEADER, true);
	return true;
}

static void datagram(struct fake_qp *qp)
{
	struct fake_work *work = qp->work;
	struct fake_qp *to = pair_numbered(work->qpn);
	const char *data = source(qp, work);
	uint32_t status;

	if (data && work->sge.length <= sizeof(wire.overheard)) {
		memcpy(wire.overheard, data, work->sge.length);
		wire.overheard_n = work->sge.length;
	}
	if (wire.lose > 0)
		wire.lose--;
	else if (far_is(work->qpn))
		(void)far_carry(qp, work->qpn, &status); /* it may get lost */
	else if (to && data && to->key == work->key)
		pair_hear(to, data, work->sge.length);
	work_end(qp, data ? VERBS_WC_SUCCESS : LOC_PROT_ERR);
}

/* What becomes of the other end of a wrong one. */
static uint32_t refuse(struct fake_qp *to)
{
	to->pub.state = VERBS_QPS_ERR;
	pair_flush(to);
	return VERBS_WC_REM_ACCESS_ERR;
}

static uint32_t move_send(struct fake_qp *qp, struct fake_qp *to)
{
	const struct fake_work *work = qp->work;
	const char *data = source(qp, work);
	char *room = region(to->pub.pd, to->room->sge.lkey, to->room->sge.addr, work->sge.length,
		VERBS_ACCESS_LOCAL_WRITE);

	if (!data)
		return LOC_PROT_ERR;
	if (!room || work->sge.length > to->room->sge.length)
		return refuse(to);
	memcpy(room, data, work->sge.length);
	room_end(to, VERBS_WC_SUCCESS, work->sge.length, work->flags & VERBS_SEND_SOLICITED);
	return VERBS_WC_SUCCESS;
}

static uint32_t move_bytes_of(struct fake_qp *qp, struct fake_qp *to)
{
	const struct fake_work *work = qp->work;
	bool put = work->opcode == VERBS_WR_RDMA_WRITE;
	uint32_t n = work->sge.length;
	char *far, *near;

	if (!n)
		return VERBS_WC_SUCCESS;
	far = region(to->pub.pd, work->key, work->far, n,
		put ? VERBS_ACCESS_REMOTE_WRITE : VERBS_ACCESS_REMOTE_READ);
	near = (char *)(uintptr_t)(const void *)source(qp, work);
	if (!near || n > FAKE_MESSAGE)
		return LOC_PROT_ERR;
	if (!far)
		return refuse(to);
	store_bytes(put ? far : near, put ? near : far, n);
	return VERBS_WC_SUCCESS;
}

uint64_t fake_verbs_atomics(void)
{
	uint64_t done;

	pthread_mutex_lock(&wire.lock);
	done = wire.atomics;
	wire.atomics = 0;
	pthread_mutex_unlock(&wire.lock);
	return done;
}

static _Atomic uint32_t told_atomics; /* the wire's thread does not read the environment */

uint32_t fake_atomics(void)
{
	const char *text = getenv("SPMT_FAKE_NIC_ATOMICS");
	bool none = text && !strcmp(text, "none"), glob = text && !strcmp(text, "glob");
	uint32_t tells = none ? VERBS_ATOMIC_NONE : glob ? VERBS_ATOMIC_GLOB : VERBS_ATOMIC_HCA;

	told_atomics = tells;
	return tells;
}

/* With the CPU's atomics, or so that what the CPU does in between is lost. */
static uint64_t atomic_at(uint64_t *word, const struct fake_work *work)
{
	bool adds = work->opcode == VERBS_WR_ATOMIC_FETCH_AND_ADD;
	uint64_t old = work->compare_add;

	if (told_atomics == VERBS_ATOMIC_GLOB) {
		if (adds)
			return __atomic_fetch_add(word, work->compare_add, __ATOMIC_ACQ_REL);
		__atomic_compare_exchange_n(
			word, &old, work->swap, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
		return old;
	}
	old = __atomic_load_n(word, __ATOMIC_ACQUIRE);
	nanosleep(&(struct timespec){ .tv_nsec = 1000 }, NULL);
	if (adds || old == work->compare_add)
		__atomic_store_n(
			word, adds ? old + work->compare_add : work->swap, __ATOMIC_RELEASE);
	return old;
}

static uint32_t move_atomic(struct fake_qp *qp, struct fake_qp *to)
{
	const struct fake_work *work = qp->work;
	char *far = region(
		to->pub.pd, work->key, work->far, sizeof(uint64_t), VERBS_ACCESS_REMOTE_ATOMIC);
	char *near = region(qp->pub.pd, work->sge.lkey, work->sge.addr, sizeof(uint64_t),
		VERBS_ACCESS_LOCAL_WRITE);
	uint64_t old;

	if (!near || work->far % sizeof(uint64_t) || work->sge.length != sizeof(uint64_t))
		return LOC_PROT_ERR;
	if (!far)
		return refuse(to);
	old = atomic_at((uint64_t *)(void *)far, work);
	wire.atomics++;
	memcpy(near, &old, sizeof(old));
	return VERBS_WC_SUCCESS;
}

/* The first of the queue. False: it has to wait for the other end. */
static bool carry(struct fake_qp *qp)
{
	struct fake_qp *to = pair_numbered(qp->dest);
	uint32_t status;

	if (fake_fires(&wire.works))
		status = wire.status;
	else if (far_is(qp->dest)) {
		if (!far_carry(qp, qp->dest, &status))
			return wire.works.seen--, false;
		if (qp->pub.state == VERBS_QPS_ERR)
			status = VERBS_WC_WR_FLUSH_ERR;
	} else if (!to || to->pub.state == VERBS_QPS_ERR)
		status = VERBS_WC_RETRY_EXC_ERR;
	else if (to->pub.state < VERBS_QPS_RTR || (qp->work->opcode == VERBS_WR_SEND && !to->room))
		return wire.works.seen--, false;
	else
		status = qp->work->opcode == VERBS_WR_SEND ? move_send(qp, to)
			: is_atomic(qp->work->opcode)	   ? move_atomic(qp, to)
							   : move_bytes_of(qp, to);
	work_end(qp, status);
	if (status) {
		qp->pub.state = VERBS_QPS_ERR;
		pair_flush(qp);
	}
	return true;
}

bool pair_round(struct fake_qp *qp)
{
	int n = 0;

	while (qp->work && qp->pub.state == VERBS_QPS_RTS && n < MOVES_A_ROUND) {
		if (qp->pub.qp_type == VERBS_QPT_UD)
			datagram(qp);
		else if (!carry(qp))
			break;
		n++;
	}
	return n;
}

/* Nobody tells when another process goes on. */
static void wire_sleep(void)
{
	struct timespec until;

	if (!wire.later) {
		pthread_cond_wait(&wire.changed, &wire.lock);
		return;
	}
	wire.later = false;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += LATER_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&wire.changed, &wire.lock, &until);
}

static void *wire_run(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&wire.lock);
	while (wire.users) {
		bool some = false;

		for (uint32_t i = 0; i < FAKE_PAIRS && !wire.held; i++)
			some |= wire.pairs[i] && !congested(wire.pairs[i]) &&
				pair_round(wire.pairs[i]);
		if (!some)
			wire_sleep();
		pthread_mutex_unlock(&wire.lock);
		pthread_mutex_lock(&wire.lock);
	}
	pthread_mutex_unlock(&wire.lock);
	return NULL;
}

void wire_start(void)
{
	pthread_mutex_lock(&wire.lock);
	if (!wire.users++) {
		far_start();
		if (pthread_create(&wire.thread, NULL, wire_run, NULL))
			abort();
	}
	pthread_mutex_unlock(&wire.lock);
}

void wire_stop(void)
{
	bool last;

	pthread_mutex_lock(&wire.lock);
	last = !--wire.users;
	pthread_cond_broadcast(&wire.changed);
	pthread_mutex_unlock(&wire.lock);
	if (last && !pthread_join(wire.thread, NULL))
		far_stop();
}

/* ---- what is registered: memory of the stand-ins' devices, too -------------------------------- */

struct verbs_pd *ibv_alloc_pd(struct verbs_ctx *ctx)
{
	struct verbs_pd *pd = refused() ? NULL : fake_make(sizeof(*pd));

	if (pd)
		pd->ctx = ctx;
	return pd;
}

int ibv_dealloc_pd(struct verbs_pd *pd)
{
	return pd->users ? EBUSY : drop(pd);
}

static struct verbs_mr *region_new(struct verbs_pd *pd, const struct fake_mr *what)
{
	struct fake_mr *mr = fake_make(sizeof(*mr));
	uint32_t i = 0;

	*mr = *what;
	mr->pub.context = pd->ctx;
	mr->pub.pd = pd;
	pthread_mutex_lock(&wire.lock);
	while (wire.regions[i])
		i++;
	wire.regions[i] = mr;
	mr->pub.lkey = mr->pub.rkey = ++wire.keys << 16 | i;
	pd->users++;
	pthread_mutex_unlock(&wire.lock);
	return &mr->pub;
}

/* Whether it is a mapping of a memfd whose name begins so. */
static bool of_memfd(const void *at, const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char line[512];
	bool found = false;

	while (maps && !found && fgets(line, sizeof(line), maps))
		found = sscanf(line, "%lx-%lx", &from, &to) == 2 &&
			(uintptr_t)at - from < to - from && strstr(line, name);
	if (maps)
		fclose(maps);
	return found;
}

static bool nic_lacks(const char *what)
{
	const char *text = getenv("SPMT_FAKE_NIC_WITHOUT");

	return text && strstr(text, what);
}

/* A second mapping of the same memory: what a driver for peer memory would do. It keeps the pages, whatever comes to be there. */
static char *mapped_again(char *at, size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *again = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; again != MAP_FAILED && i < n; i += page)
		if (mremap(at + i, 0, page, MREMAP_MAYMOVE | MREMAP_FIXED, again + i) ==
			MAP_FAILED) {
			munmap(again, n);
			return MAP_FAILED;
		}
	if (again != MAP_FAILED && mprotect(again, n, PROT_READ | PROT_WRITE))
		abort();
	return again;
}

static struct verbs_mr *no_region(int err)
{
	errno = err;
	return NULL;
}

struct verbs_mr *ibv_reg_mr(struct verbs_pd *pd, void *at, size_t n, int access)
{
	struct fake_mr mr = { .pub = { .addr = at, .length = n }, .access = access, .data = at };
	bool gpu;
	const char *pins = getenv("SPMT_FAKE_PINS");

	if (refused())
		return NULL;
	if (wire.most && fake_registered() + n > wire.most)
		return no_region(ENOMEM);
	gpu = of_memfd(at, "memfd:fake-gpu");
	if (gpu || of_memfd(at, "memfd:fake-pages") || (pins && of_memfd(at, pins))) {
		mr.data = gpu && nic_lacks("peer") ? MAP_FAILED : mapped_again(at, n);
		if (mr.data == MAP_FAILED)
			return no_region(EFAULT);
		mr.mapped = n;
	}
	return region_new(pd, &mr);
}

struct verbs_mr *ibv_reg_dmabuf_mr(
	struct verbs_pd *pd, uint64_t offset, size_t n, uint64_t at, int fd, int access)
{
	struct fake_mr mr = {
		.pub = { .addr = (void *)(uintptr_t)at, .length = n }, .access = access, .mapped = n
	};

	if (refused())
		return NULL;
	mr.data = nic_lacks("dmabuf") ? MAP_FAILED
				      : mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
						lseek(fd, 0, SEEK_CUR) + (off_t)offset);
	if (mr.data == MAP_FAILED)
		return no_region(EOPNOTSUPP);
	return region_new(pd, &mr);
}

int ibv_dereg_mr(struct verbs_mr *mr)
{
	struct fake_mr *fake = (struct fake_mr *)mr;

	pthread_mutex_lock(&wire.lock);
	mr->pd->users--;
	wire.regions[mr->rkey & 0xffff] = NULL;
	if (fake->mapped)
		munmap(fake->data, fake->mapped);
	fake_unmake(mr);
	pthread_mutex_unlock(&wire.lock);
	return fake_dropped(__func__);
}

struct verbs_ah *ibv_create_ah(struct verbs_pd *pd, struct verbs_ah_attr *attr)
{
	return refused() || !pd || !attr ? NULL : fake_make(1);
}

int ibv_destroy_ah(struct verbs_ah *ah)
{
	return drop(ah);
}

/* SPDX-License-Identifier: MIT */
#include "nic.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ask.h"
#include "cache.h"
#include "choose.h"
#include "conn.h"
#include "hello.h"
#include "memory.h"
#include "src/base/env.h"
#include "src/base/fault.h"
#include "src/base/futex.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "stage.h"

#define BATCH 16
#define NIC_SPINS 200	 /* looks of who waits, before it lets others run */
#define NIC_YIELDS 100	 /* then so many more, before it sleeps */
#define SERVE_YIELDS 50	 /* of the thread */
#define SLICE_NS 1000000 /* between two looks at a stop word */
#define UNARMED_MS 10	 /* before the thread looks again, where the device would not wake it */
#define NIC_WAKERS 3
#define CQ_FIRST 1024

/* ---- words ---------------------------------------------------------------------------------- */

bool nic_is_down(struct nic *nic)
{
	UNCANCELLED;
	struct verbs_port attr;

	memset(&attr, 0, sizeof(attr));
	if (!nic->down &&
		!nic->api->query_port(
			nic->place.ctx, nic->place.port, (struct verbs_port_old *)&attr) &&
		attr.state != VERBS_PORT_ACTIVE)
		nic->down = "not IBV_PORT_ACTIVE";
	return nic->down;
}

const char *nic_route_text(const struct nic *nic, const struct rank_nic *peer, char text[NIC_PLACE])
{
	const char *down = nic->down ? nic->down : "";

	snprintf(text, NIC_PLACE, "%s port %d%s%s%s to %s port %d", nic->place.name,
		nic->place.port, *down ? " (down: " : "", down, *down ? ")" : "", peer->device,
		peer->port);
	return text;
}

/* ---- polling -------------------------------------------------------------------------------- */

static struct pairing *pairing_numbered(const struct nic *nic, uint64_t number)
{
	uint32_t at = (uint32_t)(number >> 32) & 0x3fffffff;

	return at < (uint32_t)nic->nconns ? nic->conns[at] : NULL;
}

static void dispatch(struct nic *nic, const struct verbs_wc *wc)
{
	struct pairing *c = pairing_numbered(nic, wc->wr_id);
	uint32_t at = (uint32_t)wc->wr_id;

	switch ((enum nic_kind)(wc->wr_id >> 62)) {
	case NIC_SENT:
		if (c)
			pairing_sent(c, at, wc);
		break;
	case NIC_HEARD:
		if (c)
			ask_heard(c, at, wc);
		break;
	case NIC_GREETED:
		nic->greeted--;
		break;
	case NIC_HELLO:
		hello_heard(nic, at, wc);
		break;
	}
}

void nic_stir(struct nic *nic)
{
	atomic_fetch_add_explicit(&nic->moved, 1, memory_order_release);
	if (atomic_load(&nic->sleepers))
		futex_wake_all(&nic->moved);
}

int nic_poll(struct nic *nic)
{
	struct verbs_wc wc[BATCH];
	int n = nic->place.ctx->ops.poll_cq(nic->cq, BATCH, wc);

	if (n < 0) {
		conns_fail(nic, -EIO, "ibv_poll_cq failed");
		n = 0;
	}
	for (int i = 0; i < n; i++)
		dispatch(nic, &wc[i]);
	if (nic->owing)
		asks_answer(nic);
	if (n)
		nic_stir(nic);
	return n;
}

/* The next completion, of any kind or of those that a peer asks for, wakes the thread. Under the lock. */
static int nic_arm(struct nic *nic, bool asked)
{
	int rc = nic->place.ctx->ops.req_notify_cq(nic->cq, asked);

	if (rc)
		conns_fail(nic, -EIO, "ibv_req_notify_cq failed");
	return rc;
}

void nic_look_out(struct nic *nic)
{
	nic_arm(nic, false);
	nic_poll(nic);
}

/* One look. Who looks no more leaves what it has not answered to the thread. */
static bool nic_look(struct nic *nic, bool (*done)(void *ctx), void *ctx, bool *some)
{
	bool yes;

	*some = false;
	if (pthread_mutex_trylock(&nic->lock))
		return false;
	*some = nic_poll(nic) > 0;
	yes = done(ctx);
	if (yes && nic->owing)
		nic_look_out(nic);
	pthread_mutex_unlock(&nic->lock);
	return yes;
}

/* The thread wakes us with the next completion. */
static bool nic_sleep(struct nic *nic, bool (*done)(void *ctx), void *ctx)
{
	uint32_t seen;
	bool yes;
	int n;

	pthread_mutex_lock(&nic->lock);
	nic_arm(nic, false);
	n = nic_poll(nic);
	yes = done(ctx);
	seen = atomic_load(&nic->moved);
	pthread_mutex_unlock(&nic->lock);
	if (yes || n)
		return yes;
	atomic_fetch_add(&nic->sleepers, 1);
	futex_sleep(&nic->moved, seen, SLICE_NS);
	atomic_fetch_sub(&nic->sleepers, 1);
	return false;
}

static int nic_leave(struct nic *nic, int code)
{
	pthread_mutex_lock(&nic->lock);
	if (nic->owing)
		nic_look_out(nic);
	pthread_mutex_unlock(&nic->lock);
	return code;
}

int nic_wait(struct nic *nic, bool (*done)(void *ctx), void *ctx, struct verbs_wait *wait)
{
	int idle = 0;

	for (;;) {
		bool some;

		if (nic_look(nic, done, ctx, &some))
			return 0;
		idle = some ? 0 : idle + 1;
		if (wait->stop && __atomic_load_n(wait->stop, __ATOMIC_ACQUIRE))
			return nic_leave(nic, -ECANCELED);
		if (idle && idle < NIC_SPINS) {
			cpu_relax();
			continue;
		}
		if (process_now() >= verbs_wait_end(wait))
			return nic_leave(nic, -ETIMEDOUT);
		if (idle < NIC_SPINS + NIC_YIELDS)
			sched_yield();
		else if (nic_sleep(nic, done, ctx))
			return 0;
	}
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* What is in flight the device goes on with, and gives up after its retries: a port may come up before. */
static void port_event(struct nic *nic, const struct verbs_event *event)
{
	bool down = event->event_type == VERBS_EVENT_PORT_ERR;

	if (event->element.port_num != nic->place.port)
		return;
	nic->down = down ? "IBV_EVENT_PORT_ERR" : NULL;
	log_line(LOG_WARN, "%s port %d is %s", nic->place.name, nic->place.port,
		down ? "down (IBV_EVENT_PORT_ERR)" : "up (IBV_EVENT_PORT_ACTIVE)");
}

static void event_heed(struct nic *nic, const struct verbs_event *event)
{
	switch (event->event_type) {
	case VERBS_EVENT_CQ_ERR:
		conns_fail(nic, -EIO, "its completion queue has failed (IBV_EVENT_CQ_ERR)");
		break;
	case VERBS_EVENT_QP_FATAL:
		pairing_event(nic, event->element.qp, "IBV_EVENT_QP_FATAL");
		break;
	case VERBS_EVENT_QP_REQ_ERR:
		pairing_event(nic, event->element.qp, "IBV_EVENT_QP_REQ_ERR");
		break;
	case VERBS_EVENT_QP_ACCESS_ERR:
		pairing_event(nic, event->element.qp, "IBV_EVENT_QP_ACCESS_ERR");
		break;
	case VERBS_EVENT_DEVICE_FATAL:
		conns_fail(nic, -EIO, "the device has failed (IBV_EVENT_DEVICE_FATAL)");
		break;
	case VERBS_EVENT_PORT_ERR:
	case VERBS_EVENT_PORT_ACTIVE:
		port_event(nic, event);
		break;
	default:
		break;
	}
}

/* Something is wrong with the device, its port, or one of its queues. False: nothing is told. */
static bool nic_event(struct nic *nic)
{
	struct verbs_event event = { .event_type = 0 };

	if (nic->api->get_async_event(nic->place.ctx, &event))
		return false;
	/* ibv_destroy_qp waits for it, and may be called under the lock; the queue pair is looked for, as it may be gone by then */
	nic->api->ack_async_event(&event);
	pthread_mutex_lock(&nic->lock);
	event_heed(nic, &event);
	nic_stir(nic);
	pthread_mutex_unlock(&nic->lock);
	return true;
}

static bool nic_completion(struct nic *nic)
{
	struct verbs_cq *cq;
	void *user;

	if (nic->api->get_cq_event(nic->channel, &cq, &user))
		return false;
	nic->api->ack_cq_events(cq, 1);
	return true;
}

/* The kernel has taken the device away: its descriptors end, and would wake the thread for ever. */
static void nic_gone(struct nic *nic, int fd)
{
	epoll_ctl(nic->sleep_fd, EPOLL_CTL_DEL, fd, NULL);
	if (atomic_exchange(&nic->gone, true))
		return;
	log_line(LOG_ERROR, "%s port %d: the device is gone", nic->place.name, nic->place.port);
	pthread_mutex_lock(&nic->lock);
	conns_fail(nic, -EIO, "the device is gone");
	nic_stir(nic);
	pthread_mutex_unlock(&nic->lock);
}

/* Whoever woke it has something for its next look. */
static void nic_woken(const struct nic *nic)
{
	uint64_t n;

	if (read(nic->wake_fd, &n, sizeof(n)) < 0)
		log_line(LOG_ERROR, "%s: what wakes its thread fails (%d)", nic->place.name, errno);
}

/* Not poll(), which fails at once where RLIMIT_NOFILE is below 3 by now, as sandboxes have it. */
static void nic_block(struct nic *nic, int most_ms)
{
	struct epoll_event events[NIC_WAKERS];
	int n = epoll_wait(nic->sleep_fd, events, NIC_WAKERS, most_ms);

	for (int i = 0; i < n; i++) {
		int fd = events[i].data.fd;
		bool told = true;

		if (fd == nic->place.ctx->async_fd)
			told = nic_event(nic);
		else if (fd == nic->channel->fd)
			told = nic_completion(nic);
		else
			nic_woken(nic);
		/* what was told before the end comes first; a call that fails once is made again */
		if (!told && events[i].events & (EPOLLERR | EPOLLHUP))
			nic_gone(nic, fd);
	}
}

/* Answers go out, and moves for peers go on, when work of ours ends: no peer asks for that to be heard. */
static int nic_serve(struct nic *nic, bool arm, int *most_ms)
{
	int n;

	pthread_mutex_lock(&nic->lock);
	*most_ms = -1;
	if (arm && !atomic_load(&nic->gone) && nic_arm(nic, !nic->owing && !stage_serves(nic)))
		*most_ms = UNARMED_MS;
	n = nic_poll(nic);
	pthread_mutex_unlock(&nic->lock);
	return n;
}

/* On the CPUs near the device, of those that the process has; where it has none of them, on any. */
static void nic_settle(const struct nic *nic)
{
	cpu_set_t near, own;

	if (!verbs_cpus(VERBS_SYS, nic->place.name, &near) ||
		sched_getaffinity(getpid(), sizeof(own), &own))
		return;
	CPU_AND(&near, &near, &own);
	if (CPU_COUNT(&near) && sched_setaffinity(0, sizeof(near), &near))
		log_line(LOG_INFO, "%s: its thread cannot be bound (%d)", nic->place.name, errno);
}

static void *nic_run(void *arg)
{
	struct nic *nic = arg;
	int idle = 0, most_ms;

	nic_settle(nic);
	while (!atomic_load(&nic->closing)) {
		if (nic_serve(nic, false, &most_ms)) {
			idle = 0;
		} else if (idle < SERVE_YIELDS) {
			idle++;
			sched_yield();
		} else if (!nic_serve(nic, true, &most_ms)) {
			nic_block(nic, most_ms < 0 ? retired_free(nic) : most_ms);
			idle = 0;
		}
	}
	return NULL;
}

/* ---- opening -------------------------------------------------------------------------------- */

static int nic_cannot(const struct nic *nic, const char *call, int err)
{
	return fail_errno(err, "%s port %d: %s", nic->place.name, nic->place.port, call);
}

static int open_queues(struct nic *nic)
{
	const struct verbs_api *api = nic->api;

	nic->pd = api->alloc_pd(nic->place.ctx);
	if (!nic->pd)
		return nic_cannot(nic, "ibv_alloc_pd", errno);
	nic->channel = api->create_channel(nic->place.ctx);
	if (!nic->channel)
		return nic_cannot(nic, "ibv_create_comp_channel", errno);
	nic->cq_room = MIN_OF(CQ_FIRST, nic->place.device.max_cqe);
	nic->cq_used = NIC_HELLOS + NIC_GREETINGS;
	nic->cq = api->create_cq(nic->place.ctx, nic->cq_room, NULL, nic->channel, 0);
	if (!nic->cq)
		return nic_cannot(nic, "ibv_create_cq", errno);
	return 0;
}

/* What wakes the thread never changes. */
static int open_wakers(struct nic *nic)
{
	int fds[NIC_WAKERS] = { nic->channel->fd, nic->place.ctx->async_fd }, rc = 0;

	nic->wake_fd = fds[2] =
		fault_here(FAULT_FD) ? -1 : process_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (nic->wake_fd >= 0)
		nic->sleep_fd =
			fault_here(FAULT_FD) ? -1 : process_fd(epoll_create1(EPOLL_CLOEXEC));
	for (int i = 0; i < NIC_WAKERS && nic->sleep_fd >= 0 && !rc; i++) {
		struct epoll_event on = { .events = EPOLLIN, .data.fd = fds[i] };

		rc = epoll_ctl(nic->sleep_fd, EPOLL_CTL_ADD, fds[i], &on);
	}
	return nic->sleep_fd < 0 || rc
		? nic_cannot(nic, "no descriptor to wake its thread by", errno)
		: 0;
}

static int open_thread(struct nic *nic)
{
	int err, rc = open_wakers(nic);

	if (rc)
		return rc;
	err = fault_here(FAULT_THREAD) ? EAGAIN : process_thread(&nic->thread, 0, nic_run, nic);
	if (err)
		return nic_cannot(nic, "no thread", err);
	nic->running = true;
	return 0;
}

void nic_wake(const struct nic *nic)
{
	uint64_t one = 1;

	if (write(nic->wake_fd, &one, sizeof(one)) < 0)
		log_line(LOG_ERROR, "%s: its thread cannot be woken (%d)", nic->place.name, errno);
}

static void stop_thread(struct nic *nic)
{
	if (!nic->running)
		return;
	atomic_store(&nic->closing, true);
	nic_wake(nic);
	pthread_join(nic->thread, NULL);
}

/* What cannot be given back is told, and kept by the device. */
static void gone(const struct nic *nic, const char *what, int rc)
{
	if (rc)
		log_line(LOG_ERROR, "%s: %s: %d", nic->place.name, what, rc);
}

/* Takes any half-open port. */
static void nic_close(struct nic *nic)
{
	const struct verbs_api *api = nic->api;

	stop_thread(nic); /* first: it hands on to the stager what comes */
	stager_stop(nic);
	conns_close(nic);
	if (nic->hello)
		gone(nic, "ibv_destroy_qp", api->destroy_qp(nic->hello));
	cache_close(nic);
	memory_close(nic);
	if (nic->cq)
		gone(nic, "ibv_destroy_cq", api->destroy_cq(nic->cq));
	if (nic->channel)
		gone(nic, "ibv_destroy_comp_channel", api->destroy_channel(nic->channel));
	if (nic->pd)
		gone(nic, "ibv_dealloc_pd", api->dealloc_pd(nic->pd));
	if (nic->place.ctx)
		gone(nic, "ibv_close_device", api->close_device(nic->place.ctx));
	if (nic->sleep_fd >= 0)
		close(nic->sleep_fd);
	if (nic->wake_fd >= 0)
		close(nic->wake_fd);
	pthread_mutex_destroy(&nic->kept_lock);
	pthread_mutex_destroy(&nic->lock);
	mem_free(nic);
}

static int nic_start(struct nic *nic)
{
	int rc = process_random(nic->endpoint, sizeof(nic->endpoint));

	if (!rc)
		rc = open_queues(nic);
	if (!rc)
		rc = memory_open(nic);
	if (!rc)
		rc = cache_open(nic);
	if (!rc)
		rc = hello_open(nic);
	return rc ? rc : open_thread(nic);
}

/* Takes over `place`, whatever happens. */
static int nic_open(const struct verbs_api *api, const struct verbs_place *place, struct nic **out)
{
	struct nic *nic = mem_calloc(1, sizeof(*nic));
	int rc;

	if (!nic) {
		api->close_device(place->ctx);
		return fail(-ENOMEM, "out of memory for %s", place->name);
	}
	nic->api = api;
	nic->place = *place;
	nic->wake_fd = nic->sleep_fd = -1;
	pthread_mutex_init(&nic->lock, NULL);
	pthread_mutex_init(&nic->kept_lock, NULL);
	rc = nic_start(nic);
	if (!rc) {
		*out = nic;
		return 0;
	}
	KEEPS_SENTENCE;
	nic_close(nic);
	return rc;
}

/* The one that is open already, else it opens. */
static int nic_share(struct verbs_state *state, struct verbs_place *place, struct nic **out)
{
	struct nic *nic = state->nics;
	int rc;

	/* one that has gone may be there again, as another one */
	while (nic &&
		(strcmp(nic->place.name, place->name) || nic->place.port != place->port ||
			atomic_load(&nic->gone)))
		nic = nic->next;
	if (nic) {
		state->api.close_device(place->ctx);
		nic->refs++;
		*out = nic;
		return 0;
	}
	rc = nic_open(&state->api, place, &nic);
	if (rc)
		return rc;
	nic->refs = 1;
	nic->next = state->nics;
	state->nics = nic;
	*out = nic;
	return 0;
}

/* The first, and those of the others that can be opened; takes over all places. */
static int nics_share(struct verbs_state *state, struct verbs_place *places, int all,
	struct nic *nics[RDMA_RAILS], int *n)
{
	int rc = nic_share(state, &places[0], &nics[0]);
	KEEPS_SENTENCE;

	*n = !rc;
	for (int i = 1; i < all; i++) {
		if (rc)
			state->api.close_device(places[i].ctx);
		else if (!nic_share(state, &places[i], &nics[*n]))
			++*n;
		else
			log_line(LOG_INFO, "a rank does without: %s", status_sentence());
	}
	return rc;
}

int nic_get(int dev, struct rank_info *me, struct nic *nics[RDMA_RAILS], int *n)
{
	struct verbs_state *state = verbs_state();
	struct verbs_place places[RDMA_RAILS];
	const struct env *env = env_loaded();
	int most = env ? (int)env->rdma_stripe : 1;
	char pci[sizeof(me->pci) + 1];
	int all, rc;

	if (!state)
		return fail(-ENOMEM, "out of memory for RDMA devices");
	snprintf(pci, sizeof(pci), "%.*s", (int)sizeof(me->pci), me->pci);
	pthread_mutex_lock(&state->lock);
	rc = verbs_bind(state);
	if (!rc)
		rc = verbs_choose(&state->api, dev, pci, most, places, &all);
	if (!rc)
		rc = nics_share(state, places, all, nics, n);
	pthread_mutex_unlock(&state->lock);
	if (!rc)
		hello_address(nics[0], &me->nic);
	return rc;
}

void nic_drop(struct nic *nic)
{
	struct verbs_state *state = verbs_state();
	struct nic **at = &state->nics;

	pthread_mutex_lock(&state->lock);
	if (!--nic->refs) {
		while (*at != nic)
			at = &(*at)->next;
		*at = nic->next;
		nic_close(nic);
	}
	pthread_mutex_unlock(&state->lock);
}

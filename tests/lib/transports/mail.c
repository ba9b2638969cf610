/* SPDX-License-Identifier: MIT */
#include "mail.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/host/host.h"

#define COPIED 4096		  /* bytes of a blocking put that go into the letter */
#define YIELDS_MOST 100		  /* before a sleep */
#define SLICE_NS 1000000	  /* between two looks at a stop word */
#define PATIENCE_NS 10000000000ll /* of what waits for a box alone, which needs nobody */

/* The one who owns a rank's memory. */
struct box {
	uint64_t heap; /* of the rank, its address */
	int refs;      /* links; guarded by the lock of all boxes, like next */
	struct box *next;
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows, and of the counts of senders */
	pthread_cond_t moved; /* a letter has come, or one of these has changed */
	struct letter *first, **last;
	int held;
	bool closing;
};

/* A mover's state. */
struct sender {
	struct box *box;
	uint64_t posted;
	_Atomic uint64_t served;
	pthread_cond_t answered; /* the latter has changed */
	uint64_t old;		 /* what the last atomic found */
};

/* n bytes from one address to another; or, n 0, an atomic on the word at `to`. */
struct letter {
	struct sender *sender;
	struct letter *next;
	void *to;
	const void *from;
	size_t n;
	struct amo amo;
	bool asks; /* the sender waits for what was there */
	char body[];
};

static struct {
	pthread_mutex_t lock;
	struct box *first;
} boxes = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- the owner ------------------------------------------------------------------------------ */

static struct letter *box_next(struct box *box)
{
	struct letter *letter;

	for (int i = 0; i < YIELDS_MOST && !box->first; i++) {
		pthread_mutex_unlock(&box->lock);
		sched_yield();
		pthread_mutex_lock(&box->lock);
	}
	while ((!box->first || box->held) && !box->closing)
		pthread_cond_wait(&box->moved, &box->lock);
	letter = box->first;
	if (letter)
		box->first = letter->next;
	if (!box->first)
		box->last = &box->first;
	return letter;
}

static uint64_t letter_serve(const struct letter *letter)
{
	if (!letter->n)
		return amo_do(letter->to, &letter->amo);
	store_bytes(letter->to, letter->from, letter->n);
	return 0;
}

static void *box_run(void *arg)
{
	struct box *box = arg;
	struct letter *letter;

	pthread_mutex_lock(&box->lock);
	while ((letter = box_next(box))) {
		uint64_t old;

		pthread_mutex_unlock(&box->lock);
		old = letter_serve(letter);
		pthread_mutex_lock(&box->lock);
		if (letter->asks)
			letter->sender->old = old;
		letter->sender->served++;
		pthread_cond_broadcast(&letter->sender->answered);
		mem_free(letter);
	}
	pthread_mutex_unlock(&box->lock);
	return NULL;
}

static struct box *box_make(uint64_t heap)
{
	struct box *box = mem_calloc(1, sizeof(*box));

	if (!box)
		return NULL;
	box->heap = heap;
	box->last = &box->first;
	pthread_mutex_init(&box->lock, NULL);
	pthread_cond_init(&box->moved, NULL);
	if (!pthread_create(&box->thread, NULL, box_run, box))
		return box;
	mem_free(box);
	return NULL;
}

static struct box *box_get(uint64_t heap)
{
	struct box *box;

	pthread_mutex_lock(&boxes.lock);
	for (box = boxes.first; box && box->heap != heap; box = box->next)
		continue;
	if (!box && (box = box_make(heap))) {
		box->next = boxes.first;
		boxes.first = box;
	}
	if (box)
		box->refs++;
	pthread_mutex_unlock(&boxes.lock);
	return box;
}

static void box_drop(struct box *box)
{
	struct box **at = &boxes.first;
	bool last;

	pthread_mutex_lock(&boxes.lock);
	last = !--box->refs;
	while (last && *at != box)
		at = &(*at)->next;
	if (last)
		*at = box->next;
	pthread_mutex_unlock(&boxes.lock);
	if (!last)
		return;
	pthread_mutex_lock(&box->lock);
	box->closing = true;
	pthread_cond_broadcast(&box->moved);
	pthread_mutex_unlock(&box->lock);
	pthread_join(box->thread, NULL);
	pthread_cond_destroy(&box->moved);
	pthread_mutex_destroy(&box->lock);
	mem_free(box);
}

/* ---- the map -------------------------------------------------------------------------------- */

static int mail_attach(
	struct link *link, const struct backend *backend, int dev, const struct rank_info *peer)
{
	unsigned char process[sizeof(peer->process)];
	int rc = process_nonce(process);

	(void)backend;
	(void)dev;
	if (rc)
		return rc;
	if (memcmp(process, peer->process, sizeof(process)))
		return fail(SPMT_ERR_UNSUPPORTED,
			"rank %d: mail to rank %d: letters do not leave the process", link->rank,
			peer->rank);
	link->attached = box_get(peer->heap_base);
	if (!link->attached)
		return fail(-ENOMEM, "rank %d: mail to rank %d: no memory or thread for its box",
			link->rank, peer->rank);
	link->own = peer->own_base - peer->heap_base;
	return 0;
}

static void mail_detach(struct link *link, const struct backend *backend, int dev)
{
	(void)backend;
	(void)dev;
	if (link->attached)
		box_drop(link->attached);
	link->attached = NULL;
}

const struct map_ops map_rdma = { .name = "rdma", .attach = mail_attach, .detach = mail_detach };

/* ---- posting and waiting -------------------------------------------------------------------- */

static struct sender *sender_of(struct mover *m)
{
	struct sender *s = m->state;
	pthread_condattr_t clock;

	if (s)
		return s;
	s = mem_calloc(1, sizeof(*s));
	if (!s) {
		fail(-ENOMEM, "rank %d: no memory to write to rank %d", m->link->rank, m->link->pe);
		return NULL;
	}
	s->box = m->link->attached;
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&s->answered, &clock);
	pthread_condattr_destroy(&clock);
	m->state = s;
	return s;
}

static void *address(const struct mover *m, uint64_t offset)
{
	const struct sender *s = m->state;

	return (void *)(uintptr_t)(s->box->heap + offset);
}

/* What is of `letter` but its body; NULL with a sentence. */
static struct letter *letter_write(struct mover *m, const struct letter *what, size_t body)
{
	struct letter *letter = mem_calloc(1, sizeof(*letter) + body);

	if (!letter) {
		fail(-ENOMEM, "rank %d: no memory for a letter to rank %d", m->link->rank,
			m->link->pe);
		return NULL;
	}
	*letter = *what;
	letter->sender = m->state;
	if (body)
		letter->from = memcpy(letter->body, what->from, body);
	return letter;
}

/* Its number. */
static uint64_t post(struct letter *letter)
{
	struct sender *s = letter->sender;
	struct box *box = s->box;
	uint64_t number;

	pthread_mutex_lock(&box->lock);
	letter->next = NULL;
	*box->last = letter;
	box->last = &letter->next;
	number = ++s->posted;
	pthread_cond_broadcast(&box->moved);
	pthread_mutex_unlock(&box->lock);
	return number;
}

/* Until so many of s are served: 0, -ETIMEDOUT, -ECANCELED. */
static int wait_served(struct sender *s, uint64_t number, int64_t ns, const uint32_t *stop)
{
	int64_t end = ns < 0 ? INT64_MAX : process_now() + ns;
	int rc = 0;

	for (int i = 0; i < YIELDS_MOST && s->served < number; i++)
		sched_yield();
	pthread_mutex_lock(&s->box->lock);
	while (!rc && s->served < number) {
		int64_t now = process_now(), until = MIN_OF(end, now + SLICE_NS);
		struct timespec at = { until / 1000000000, until % 1000000000 };

		if (stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE))
			rc = -ECANCELED;
		else if (now >= end)
			rc = -ETIMEDOUT;
		else
			pthread_cond_timedwait(&s->answered, &s->box->lock, &at);
	}
	pthread_mutex_unlock(&s->box->lock);
	return rc;
}

static int link_wait(const struct mover *m, uint64_t number, const char *what)
{
	const struct link *link = m->link;
	int64_t ms = *link->timeout_ms;
	int64_t ns = ms < 0 ? -1 : MIN_OF(ms, INT64_MAX / 4000000) * 1000000;

	return link_wait_failed(link, what, wait_served(m->state, number, ns, link->stop));
}

/* Posts it and waits: what is cut short is quiet's to wait for. */
static int post_and_wait(struct mover *m, struct letter *letter, const char *what)
{
	int rc = link_wait(m, post(letter), what);

	m->link->pending |= link_cut_short(rc);
	return rc;
}

static void post_later(void *arg)
{
	struct letter *letter = arg;
	struct sender *s = letter->sender;

	if (wait_served(s, post(letter), PATIENCE_NS, NULL))
		host_stream_blame(-EIO, "a letter was never served");
}

/* In order of a stream, whose thread has the letter from here on. */
static int post_in_stream(struct mover *m, struct letter *letter, device_stream stream)
{
	int rc = m->link->backend->call(m->link->dev, stream, post_later, letter);

	if (rc)
		mem_free(letter);
	return rc;
}

/* ---- the mover ------------------------------------------------------------------------------ */

static int mail_put(struct mover *m, uint64_t offset, const void *local, size_t n,
	enum move_mode mode, device_stream stream)
{
	bool copied = mode == MOVE_BLOCKING && n <= COPIED;
	struct letter what = { .from = local, .n = n }, *letter;

	if (!sender_of(m))
		return -ENOMEM;
	what.to = address(m, offset);
	letter = letter_write(m, &what, copied ? n : 0);
	if (!letter)
		return -ENOMEM;
	link_count(m->link, MOVER_VERBS, n);
	if (mode == MOVE_STREAM)
		return post_in_stream(m, letter, stream);
	if (mode == MOVE_BLOCKING && !copied)
		return post_and_wait(m, letter, "put");
	post(letter);
	m->link->pending = true;
	return 0;
}

static int mail_get(struct mover *m, void *local, uint64_t offset, size_t n, enum move_mode mode,
	device_stream stream)
{
	struct letter what = { .to = local, .n = n }, *letter;

	if (!sender_of(m))
		return -ENOMEM;
	what.from = address(m, offset);
	letter = letter_write(m, &what, 0);
	if (!letter)
		return -ENOMEM;
	link_count(m->link, MOVER_VERBS, n);
	if (mode == MOVE_STREAM)
		return post_in_stream(m, letter, stream);
	if (mode == MOVE_BLOCKING)
		return post_and_wait(m, letter, "get");
	post(letter);
	m->link->pending = true;
	return 0;
}

static struct letter *word_write(struct mover *m, uint64_t offset, const struct amo *amo)
{
	struct letter what = { .amo = *amo };

	if (!sender_of(m))
		return NULL;
	what.to = address(m, offset);
	link_count(m->link, MOVER_VERBS, amo->size);
	return letter_write(m, &what, 0);
}

static int mail_signal(struct mover *m, uint64_t offset, uint64_t value, enum spmt_signal_op op,
	device_stream stream)
{
	struct letter *letter = word_write(m, offset,
		&(struct amo){ .op = op == SPMT_SIGNAL_SET ? SPMT_AMO_SET : SPMT_AMO_ADD,
			.size = sizeof(value),
			.operand = value });

	if (!letter)
		return -ENOMEM;
	if (stream)
		return post_in_stream(m, letter, stream);
	post(letter);
	m->link->pending = true;
	return 0;
}

static int mail_atomic(struct mover *m, uint64_t offset, const struct amo *amo, uint64_t *old)
{
	struct letter *letter = word_write(m, offset, amo);
	const struct sender *s = m->state;
	int rc;

	if (!letter)
		return -ENOMEM;
	if (!old) {
		post(letter);
		m->link->pending = true;
		return 0;
	}
	letter->asks = true;
	rc = post_and_wait(m, letter, "atomic");
	if (!rc)
		*old = s->old;
	return rc;
}

static int mail_fence(struct mover *m, struct move_wait *wait)
{
	(void)m;
	(void)wait;
	return 0;
}

static int mail_quiet(struct mover *m, struct move_wait *wait)
{
	const struct sender *s = m->state;
	uint64_t posted;

	(void)wait;
	if (!s)
		return 0;
	pthread_mutex_lock(&s->box->lock);
	posted = s->posted;
	pthread_mutex_unlock(&s->box->lock);
	return link_wait(m, posted, "quiet");
}

static void mail_close(struct mover *m)
{
	struct sender *s = m->state;

	if (!s)
		return;
	m->state = NULL;
	if (wait_served(s, s->posted, PATIENCE_NS, NULL)) {
		log_line(LOG_ERROR, "rank %d: letters to rank %d are never served", m->link->rank,
			m->link->pe);
		return;
	}
	pthread_cond_destroy(&s->answered);
	mem_free(s);
}

const struct mover_ops mover_verbs = {
	.name = "verbs",
	.put = mail_put,
	.get = mail_get,
	.signal = mail_signal,
	.atomic = mail_atomic,
	.fence = mail_fence,
	.quiet = mail_quiet,
	.close = mail_close,
};

/* ---- for tests ------------------------------------------------------------------------------ */

static void box_hold(struct box *box, int by)
{
	pthread_mutex_lock(&box->lock);
	box->held += by;
	pthread_cond_broadcast(&box->moved);
	pthread_mutex_unlock(&box->lock);
}

void mail_hold(struct link *link)
{
	box_hold(link->attached, 1);
}

void mail_release(struct link *link)
{
	box_hold(link->attached, -1);
}

uint64_t mail_left(const struct link *link)
{
	const struct sender *s = link->movers[0].state;
	uint64_t n;

	if (!s)
		return 0;
	pthread_mutex_lock(&s->box->lock);
	n = s->posted - s->served;
	pthread_mutex_unlock(&s->box->lock);
	return n;
}

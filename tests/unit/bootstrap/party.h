/* SPDX-License-Identifier: MIT */
/* A bootstrap with what it has told, which stands for a process of a world. */
#ifndef TESTS_PARTY_H
#define TESTS_PARTY_H

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "spmt/bootstrap/bootstrap.h"
#include "spmt/bootstrap/wire.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define MS 1000000ll

struct broke {
	atomic_int times, code;
	char sentence[STATUS_SENTENCE];
};

/* One "process". */
struct party {
	struct bootstrap *b;
	struct broke heard;
	const void *blobs;
	const int *process;
	void *control;
	int self, processes;
};

struct blob {
	int rank, square;
};

static inline void broken(void *ctx, const struct cause *cause)
{
	struct broke *heard = ctx;

	memcpy(heard->sentence, cause->sentence, sizeof(heard->sentence));
	atomic_store(&heard->code, cause->code);
	atomic_fetch_add(&heard->times, 1);
}

static inline void uid_make(struct uid *uid)
{
	spmt_uid bytes;

	cr_assert_eq(spmt_uid_create(&bytes), 0, "%s", status_sentence());
	cr_assert_eq(uid_read("test", &bytes, uid), 0);
}

/* rank: as in struct bootstrap_config. */
static inline int party_open_as(
	struct party *p, const struct uid *uid, int nranks, bool only_tcp, int rank)
{
	struct bootstrap_config config = { .uid = uid,
		.nranks = nranks,
		.rank = rank,
		.blob_size = sizeof(struct blob),
		.control_size = 8192,
		.broken = broken,
		.ctx = &p->heard,
		.only_tcp = only_tcp };

	memset(p, 0, sizeof(*p));
	return bootstrap_open(&config, NULL, &p->b);
}

static inline int party_open(struct party *p, const struct uid *uid, int nranks, bool only_tcp)
{
	return party_open_as(p, uid, nranks, only_tcp, -1);
}

static inline void open_ok(struct party *p, const struct uid *uid, int nranks)
{
	cr_assert_eq(party_open(p, uid, nranks, false), 0, "%s", status_sentence());
}

static inline int add_within(struct party *p, int rank, int64_t timeout_ms)
{
	const struct patience patience = { process_now(), timeout_ms };
	struct blob blob = { rank, rank * rank };

	return bootstrap_add(p->b, rank, &blob, &patience);
}

static inline int add(struct party *p, int rank)
{
	return add_within(p, rank, 10000);
}

static inline void add_ok(struct party *p, int rank)
{
	cr_assert_eq(add(p, rank), 0, "%s", status_sentence());
}

static inline int wait_for(struct party *p, int64_t timeout_ms)
{
	struct patience patience = { process_now(), timeout_ms };
	int rc = bootstrap_wait(p->b, &patience, &p->blobs, &p->process, &p->control);

	if (!rc)
		p->processes = bootstrap_processes(p->b, &p->self);
	return rc;
}

static inline void check_blobs(const struct party *p, int nranks)
{
	const struct blob *blobs = p->blobs;

	for (int r = 0; r < nranks; r++) {
		cr_assert_eq(blobs[r].rank, r);
		cr_assert_eq(blobs[r].square, r * r);
	}
}

#endif

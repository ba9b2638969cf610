/* SPDX-License-Identifier: MIT */
/* What a process takes from a hub: one that has the secret, and then says what cannot be. It is told as a failure, at once; nothing
   is written beside the tables. */
#include <fcntl.h>

#include "party_world.h"
#include "raw_client.h"
#include "spmt/address/socket.h"
#include "spmt/bootstrap/search.h"

enum { NRANKS = 3, CLIENT = 7, OTHER = 8 };

/* The hub's end of the connection, and the process at the other. */
struct scene {
	struct party p;
	struct uid uid;
	int fd;
};

static void greet(struct scene *s)
{
	const struct wire_challenge challenge = { .magic = WIRE_MAGIC, .version = WIRE_VERSION };

	say_frame(s->fd, WIRE_CHALLENGE, &challenge, NULL, 0);
}

static void welcome(struct scene *s, bool proved)
{
	struct wire_welcome w = { 0, CLIENT, NRANKS, 0, sizeof(struct blob), 0, { 0 } };
	struct hello_frame f;

	cr_assert_eq(recv(s->fd, &f, sizeof(f), MSG_WAITALL), (ssize_t)sizeof(f));
	cr_assert_eq(f.header.type, WIRE_HELLO);
	wire_prove_welcome(&s->uid, &f.hello, &w, w.proof);
	w.proof[0] ^= !proved;
	say_frame(s->fd, WIRE_WELCOME, &w, NULL, 0);
}

static void begin(struct scene *s)
{
	struct timeval patience = { .tv_sec = 4 };
	struct bootstrap_config config = { .uid = &s->uid,
		.nranks = NRANKS,
		.rank = -1,
		.blob_size = sizeof(struct blob),
		.broken = broken,
		.ctx = &s->p.heard };
	struct meeting met = meeting_at(-1, 0, false);
	int fds[2];

	memset(s, 0, sizeof(*s));
	uid_make(&s->uid);
	cr_assert_eq(socket_pair(fds), 0);
	s->fd = fds[1];
	cr_assert_eq(fcntl(s->fd, F_SETFL, 0), 0);
	setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	met.fd = fds[0];
	cr_assert_eq(bootstrap_open(&config, &met, &s->p.b), 0, "%s", status_sentence());
	greet(s);
}

static void end(struct scene *s)
{
	close(s->fd);
	bootstrap_close(s->p.b);
}

static void present(struct scene *s, uint32_t rank, uint32_t member)
{
	struct wire_rank w = { .rank = rank, .member = member };
	struct blob blob = { (int)rank, (int)(rank * rank) };

	say_frame(s->fd, WIRE_PRESENT, &w, &blob, sizeof(blob));
}

/* Rank 0 is the client's, the others another's: two processes. */
static void complete(struct scene *s)
{
	struct wire_complete w = { 2, 0 };

	for (uint32_t r = 0; r < NRANKS; r++)
		present(s, r, r ? OTHER : CLIENT);
	say_frame(s->fd, WIRE_COMPLETE, &w, NULL, 0);
	cr_assert_eq(wait_for(&s->p, 5000), 0, "%s", status_sentence());
	check_blobs(&s->p, NRANKS);
	cr_assert_eq(s->p.processes, 2);
}

static void refused(struct scene *s, const char *what, size_t row)
{
	int rc = 0;

	for (int i = 0;
		i < 5000 && (rc = wait_for(&s->p, 0)) == (s->p.processes ? 0 : SPMT_ERR_TIMEOUT);
		i++)
		usleep(1000);
	cr_assert_eq(rc, -EPROTO, "%s, row %zu: %d %s", what, row, rc, status_sentence());
}

Test(bootstrap_hub, a_good_one)
{
	struct wire_break w = { -EIO, 0 };
	struct scene s;

	begin(&s);
	welcome(&s, true);
	complete(&s);
	say_frame(s.fd, WIRE_BREAK, &w, "on purpose", 10);
	cr_expect(hears(&s.p));
	cr_expect_eq(s.p.heard.code, -EIO);
	cr_expect_str_eq(s.p.heard.sentence, "on purpose");
	end(&s);
}

/* It has proved nothing: whatever it says next is not heard. */
Test(bootstrap_hub, without_the_secret)
{
	struct wire_break w = { -EIO, 0 };
	struct scene s;
	char byte;

	begin(&s);
	welcome(&s, false);
	say_frame(s.fd, WIRE_BREAK, &w, "no business", 11);
	cr_expect_leq(recv(s.fd, &byte, 1, 0), 0, "it has been left");
	cr_expect(errno != EAGAIN);
	cr_expect_eq(s.p.heard.times, 0);
	end(&s);
}

Test(bootstrap_hub, what_cannot_be_while_it_gathers)
{
	static const struct blob blob;
	static const struct {
		enum wire_type type;
		union {
			struct wire_rank rank;
			struct wire_verdict verdict;
			struct wire_complete complete;
			struct wire_data data;
			struct wire_break broken;
			struct wire_challenge challenge;
		} u;
		const void *tail;
		size_t n;
	} rows[] = {
		{ WIRE_PRESENT, { .rank = { NRANKS, OTHER } }, &blob, sizeof(blob) },
		{ WIRE_PRESENT, { .rank = { 1, UINT32_MAX } }, &blob, sizeof(blob) },
		{ WIRE_PRESENT, { .rank = { 1, OTHER } }, &blob, sizeof(blob) - 1 },
		{ WIRE_ABSENT, { .rank = { NRANKS, 0 } }, NULL, 0 },
		{ WIRE_VERDICT, { .verdict = { NRANKS, 0 } }, NULL, 0 },
		{ WIRE_VERDICT, { .verdict = { 0, 1 } }, NULL, 0 },
		{ WIRE_COMPLETE, { .complete = { 0, 0 } }, NULL, 0 },
		{ WIRE_COMPLETE, { .complete = { 1, 0 } }, NULL, 0 }, /* none is there */
		{ WIRE_COMPLETE, { .complete = { NRANKS + 1, 0 } }, NULL, 0 },
		{ WIRE_RELAY, { .data = { 1, 0 } }, "x", 1 },
		{ WIRE_EXCHANGE, { .data = { 1, 0 } }, "x", 1 },
		{ WIRE_BREAK, { .broken = { 0, 0 } }, "fine", 4 },
		{ WIRE_BREAK, { .broken = { -EIO, 0 } }, "b\x7fld", 4 },
		{ WIRE_CHALLENGE, { .challenge = { WIRE_MAGIC, WIRE_VERSION, 0, { 0 } } }, NULL,
			0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct scene s;

		begin(&s);
		welcome(&s, true);
		say_frame(s.fd, rows[i].type, &rows[i].u, rows[i].tail, rows[i].n);
		refused(&s, "gathering", i);
		end(&s);
	}
}

/* Of two processes, in rounds that begin with 1. */
Test(bootstrap_hub, what_cannot_be_in_an_exchange)
{
	static const struct wire_data rows[] = { { 1, 2 }, { 1, NRANKS }, { 0, 1 }, { 3, 1 },
		{ UINT32_MAX, 0 } };

	for (size_t i = 0; i <= ARRAY_SIZE(rows); i++) {
		struct wire_data twice = { 1, 1 };
		struct scene s;

		begin(&s);
		welcome(&s, true);
		complete(&s);
		if (i == ARRAY_SIZE(rows))
			say_frame(s.fd, WIRE_RELAY, &twice, "x", 1);
		say_frame(s.fd, WIRE_RELAY, i < ARRAY_SIZE(rows) ? &rows[i] : &twice, "x", 1);
		refused(&s, "an exchange", i);
		end(&s);
	}
}

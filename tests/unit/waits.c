/* SPDX-License-Identifier: MIT */
/* What a rank shows of its waits is whole or nothing, whatever memory it is read from. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmt/comm/comm.h"
#include "spmt/comm/waits.h"
#include "src/base/process.h"

/* A test has a process of its own, and one comm in it. */
static struct spmt_comm *comm_make(int nranks)
{
	static struct spmt_comm made;
	spmt_comm *comm = &made;

	comm->nranks = nranks;
	comm->control = process_pages(control_world_size(nranks));
	cr_assert_not_null(comm->control);
	control_begin(comm->control, nranks, 7);
	waits_join(comm);
	return comm;
}

static int shown(const spmt_comm *comm, struct wait_seen *seen)
{
	int n = 0;

	for (int i = 0; i < WAITS_MOST; i++)
		n += waiting_read(&comm->control->rows[comm->rank].waits[i], seen);
	return n;
}

Test(waits, are_shown_renewed_and_hidden)
{
	spmt_comm *comm = comm_make(2);
	struct wait_for wait = { .name = "spmt_signal_wait",
		.since = 5,
		.word = true,
		.type = SPMT_TYPE_I16,
		.cmp = SPMT_CMP_LE,
		.offset = 64,
		.value = 3,
		.seen = 4 };
	struct wait_seen seen;
	int owner, other;

	cr_expect_eq(shown(comm, &seen), 0);
	waits_show(comm, &owner, &wait);
	cr_assert_eq(shown(comm, &seen), 1);
	cr_expect_str_eq(seen.name, "spmt_signal_wait");
	cr_expect(seen.since == 5 && !seen.until && seen.offset == 64 && seen.value == 3 &&
		seen.seen == 4 && !seen.epoch && !seen.part);
	cr_expect_eq(seen.kind, WAIT_WORD | SPMT_TYPE_I16 << 8 | SPMT_CMP_LE << 16);
	wait.seen = 9;
	wait.since = 6;
	waits_show(comm, &owner, &wait);
	cr_assert_eq(shown(comm, &seen), 1);
	cr_expect(seen.seen == 9 && seen.since == 5);
	waits_hide(comm, &other);
	cr_expect_eq(shown(comm, &seen), 1);
	waits_hide(comm, &owner);
	waits_hide(comm, &owner);
	cr_expect_eq(shown(comm, &seen), 0);
}

Test(waits, that_were_given_up_are_kept_until_their_place_is_needed)
{
	spmt_comm *comm = comm_make(1);
	struct wait_for wait = { .name = "spmt_quiet", .since = 1 };
	struct waits_text none = { .used = 0 }, some = { .used = 0 };
	struct wait_seen seen;
	char owners[WAITS_MOST + 1];
	int64_t before = process_now();

	waits_show(comm, &owners[0], &wait);
	waits_give_up(comm, &owners[0]);
	waits_hide(comm, &owners[0]);
	cr_assert_eq(shown(comm, &seen), 1);
	cr_expect_geq(seen.until, before);
	waits_add(&none, comm, 0, process_now() + 1);
	cr_expect_str_eq(waits_said(&none), "");
	waits_add(&some, comm, 0, before);
	cr_expect_str_eq(waits_said(&some), "rank 0 gave up in spmt_quiet; ");
	wait.name = "spmt_test";
	for (int i = 0; i < WAITS_MOST + 1; i++)
		waits_show(comm, &owners[i], &wait);
	cr_expect_eq(shown(comm, &seen), WAITS_MOST);
	for (int i = 0; i < WAITS_MOST + 1; i++)
		waits_hide(comm, &owners[i]);
	cr_expect_eq(shown(comm, &seen), 0);
}

Test(waits, of_many_ranks_leave_room_in_the_sentence)
{
	spmt_comm *comm = comm_make(64);
	struct wait_for wait = { .name = "a_name_that_is_longer_than_any_call_has_it" };
	struct waits_text text = { .used = 0 };
	struct wait_seen seen;

	for (comm->rank = 0; comm->rank < 64; comm->rank++)
		waits_show(comm, comm, &wait);
	comm->rank = 63;
	cr_assert_eq(shown(comm, &seen), 1);
	cr_expect_eq(strlen(seen.name), WAITS_NAME - 1);
	for (int pe = 0; pe < 64; pe++)
		waits_add(&text, comm, pe, 0);
	cr_expect_eq(strncmp(waits_said(&text), "rank 0 waits in a_name_", 23), 0);
	cr_expect_str_eq(text.bytes + text.used - 2, "; ");
	cr_expect_lt(text.used, STATUS_SENTENCE / 2);
}

/* Another process may have written anything. */
Test(waits, of_noise_are_text)
{
	struct waiting noise;
	struct wait_seen seen;
	unsigned short state[3] = { 1, 2, 3 };

	for (int round = 0; round < 2000; round++) {
		unsigned char *bytes = (unsigned char *)&noise;

		for (size_t i = 0; i < sizeof(noise); i++)
			bytes[i] = (unsigned char)nrand48(state);
		atomic_store(&noise.state, (uint32_t)round);
		if (round % 4 != 2) {
			cr_expect(!waiting_read(&noise, &seen));
			continue;
		}
		if (!waiting_read(&noise, &seen))
			continue;
		cr_assert_lt(strnlen(seen.name, WAITS_NAME), WAITS_NAME);
		for (const char *c = seen.name; *c; c++)
			cr_assert(*c >= ' ' && *c <= '~');
	}
}

static atomic_bool over;

static void *flicker(void *arg)
{
	spmt_comm *comm = arg;
	static const char *const names[] = { "aaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbb" };

	for (uint64_t i = 0; !atomic_load(&over); i++) {
		struct wait_for wait = {
			.name = names[i % 2], .epoch = i, .offset = i, .value = i
		};

		waits_show(comm, &wait, &wait);
		if (i % 3)
			waits_hide(comm, &wait);
		else
			waits_give_up(comm, &wait);
	}
	return NULL;
}

Test(waits, are_never_seen_in_part)
{
	spmt_comm *comm = comm_make(1);
	struct wait_seen seen;
	pthread_t threads[2];
	int found = 0;

	for (int i = 0; i < 2; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, flicker, comm), 0);
	for (int round = 0; found < 20000 && round < 100000000; round++) {
		struct waiting *w = &comm->control->rows[0].waits[round % WAITS_MOST];

		if (!waiting_read(w, &seen))
			continue;
		found++;
		cr_assert(seen.epoch == seen.offset && seen.epoch == seen.value);
		cr_assert_eq(seen.name[0], seen.epoch % 2 ? 'b' : 'a');
		cr_assert_eq(strlen(seen.name), seen.epoch % 2 ? 6 : 27);
	}
	atomic_store(&over, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(found, 20000);
}

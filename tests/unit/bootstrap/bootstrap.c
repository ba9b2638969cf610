/* SPDX-License-Identifier: MIT */
/* Several bootstraps in one process stand for several processes: the module keeps nothing in the
   process. Real processes and their deaths are in bootstrap_death.c, strangers in bootstrap_hostile.c, exchanges and refused
   resources in bootstrap_exchange.c. */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "party_world.h"
#include "tests/lib/clocks.h"

/* ---- joining ------------------------------------------------------------------------------- */

Test(bootstrap, layouts)
{
	static const int layouts[][8] = { { 1 }, { 8 }, { 1, 1 }, { 1, 3, 4 }, { 4, 3, 1 },
		{ 1, 1, 1, 1, 1, 1, 1, 1 }, { 40, 60, 44 } };
	int before = links_count("fd");

	for (size_t l = 0; l < ARRAY_SIZE(layouts); l++) {
		struct party parties[8];
		struct uid uid;
		int n = 0, nranks = 0;

		while (n < 8 && layouts[l][n])
			nranks += layouts[l][n++];
		uid_make(&uid);
		join(&uid, parties, layouts[l], n, nranks);
		check_world(parties, n, nranks);
		for (int i = 0; i < n; i++)
			((int *)parties[i].control)[i] = 1000 + i;
		for (int i = 0; i < n; i++)
			cr_expect_eq(((int *)parties[0].control)[i], 1000 + i, "one memory");
		leave(parties, n);
		cr_assert_eq(links_count("fd"), before);
	}
}

Test(bootstrap, closed_on_exec)
{
	struct party parties[2];
	struct uid uid;
	bool had[64];

	for (int fd = 0; fd < 64; fd++)
		had[fd] = fcntl(fd, F_GETFD) >= 0;
	uid_make(&uid);
	join(&uid, parties, (int[]){ 1, 1 }, 2, 2);
	for (int fd = 0; fd < 64; fd++) {
		int flags = fcntl(fd, F_GETFD);

		if (flags >= 0 && !had[fd])
			cr_expect(flags & FD_CLOEXEC, "descriptor %d", fd);
	}
	leave(parties, 2);
}

Test(bootstrap, two_worlds_at_once)
{
	struct party a[2], b[2];
	struct uid uids[2];

	uid_make(&uids[0]);
	uid_make(&uids[1]);
	open_ok(&a[0], &uids[0], 2);
	open_ok(&b[0], &uids[1], 3);
	open_ok(&b[1], &uids[1], 3);
	open_ok(&a[1], &uids[0], 2);
	add_ok(&b[1], 0);
	add_ok(&a[1], 0);
	add_ok(&b[0], 2);
	add_ok(&a[0], 1);
	cr_expect_eq(wait_for(&a[0], 5000), 0);
	cr_expect_eq(wait_for(&b[0], 50), SPMT_ERR_TIMEOUT);
	add_ok(&b[0], 1);
	cr_expect_eq(wait_for(&b[0], 5000), 0);
	cr_expect_eq(wait_for(&a[1], 5000), 0);
	cr_expect_eq(wait_for(&b[1], 5000), 0);
	check_blobs(&a[1], 2);
	check_blobs(&b[1], 3);
	leave(a, 2);
	leave(b, 2);
}

Test(bootstrap, again_and_again_without_growth)
{
	int before = links_count("fd"), half = 0;

	for (int i = 0; i < 200; i++) {
		struct party parties[2];
		struct uid uid;

		uid_make(&uid);
		join(&uid, parties, (int[]){ 1, 1 }, 2, 2);
		leave(parties, 2);
		if (i == 100)
			half = links_count("fd");
	}
	cr_expect_eq(half, before);
	cr_expect_eq(links_count("fd"), before);
}

Test(bootstrap, one_uid_world_after_world)
{
	struct uid uid;

	uid_make(&uid);
	for (int i = 0; i < 20; i++) {
		struct party parties[3];

		join(&uid, parties, (int[]){ 1, 2, 1 }, 3, 4);
		leave(parties, 3);
	}
}

/* ---- errors of ranks ----------------------------------------------------------------------- */

Test(bootstrap, timeout_names_who_is_missing)
{
	struct party parties[2];
	struct uid uid;

	uid_make(&uid);
	for (int i = 0; i < 2; i++)
		open_ok(&parties[i], &uid, 8);
	for (int r = 0; r < 8; r++)
		if (r != 3 && r != 6)
			add_ok(&parties[r & 1], r);
	for (int i = 0; i < 2; i++) {
		int64_t begin = calm_ns();

		cr_expect_eq(wait_for(&parties[i], i ? 100 : 1000), SPMT_ERR_TIMEOUT);
		cr_expect(calm_says(status_sentence(), "spmt_init: 2 of 8 ranks missing after ",
				  i ? 0.1 : 1, " s: 3, 6"),
			"%s", status_sentence());
		cr_expect_lt(calm_ns() - begin, 5000 * MS);
	}
	cr_expect_eq(wait_for(&parties[0], 0), SPMT_ERR_TIMEOUT);
	leave(parties, 2);
}

Test(bootstrap, a_rank_twice)
{
	struct party parties[3];
	struct uid uid;

	uid_make(&uid);
	for (int i = 0; i < 3; i++)
		open_ok(&parties[i], &uid, 2);
	add_ok(&parties[1], 1);
	for (int i = 0; i < 3; i++) {
		cr_expect_eq(add(&parties[i], 1), -EEXIST);
		cr_expect(strstr(status_sentence(), "rank 1 of 2 is taken in"), "%s",
			status_sentence());
		cr_expect(says(i == 1 ? "this process" : "another process"));
	}
	cr_expect_eq(add(&parties[0], 2), -EINVAL);
	cr_expect_eq(add(&parties[0], -1), -EINVAL);
	add_ok(&parties[2], 0);
	cr_expect_eq(wait_for(&parties[1], 5000), 0);
	cr_expect_eq(wait_for(&parties[2], 5000), 0);
	check_world(parties + 1, 2, 2);
	cr_expect_eq(add(&parties[0], 0), -EEXIST);
	leave(parties, 3);
}

Test(bootstrap, another_size_of_world)
{
	struct party parties[3];
	struct uid uid;

	uid_make(&uid);
	open_ok(&parties[0], &uid, 2);
	add_ok(&parties[0], 0);
	open_ok(&parties[1], &uid, 3);
	cr_expect_eq(add(&parties[1], 2), SPMT_ERR_MISMATCH);
	cr_expect_str_eq(
		status_sentence(), "spmt_init: nranks differs: rank 2 passed 3, the world has 2");
	cr_expect_eq(wait_for(&parties[1], 5000), SPMT_ERR_MISMATCH);
	open_ok(&parties[2], &uid, 2);
	add_ok(&parties[2], 1);
	cr_expect_eq(wait_for(&parties[0], 5000), 0);
	leave(parties, 3);
}

Test(bootstrap, a_guest_may_break_what_gathers)
{
	struct party parties[2];
	struct cause cause;
	struct uid uid;

	uid_make(&uid);
	open_ok(&parties[0], &uid, 2);
	add_ok(&parties[0], 0);
	open_ok(&parties[1], &uid, 3);
	cr_expect_eq(add(&parties[1], 2), SPMT_ERR_MISMATCH);
	cause_last(&cause, SPMT_ERR_MISMATCH);
	bootstrap_break(parties[1].b, &cause);
	cr_expect_eq(wait_for(&parties[0], 5000), SPMT_ERR_MISMATCH);
	cr_expect(says("rank 2 passed 3, the world has 2"));
	cr_expect(hears(&parties[0]));
	cr_expect_eq(parties[1].heard.times, 0);
	for (int i = 0; i < 2; i++)
		bootstrap_close(parties[i].b);
}

/* What it lacks may be what it has to tell of. */
Test(bootstrap, who_reports_needs_no_shared_memory)
{
	struct rlimit little = { 4096, 4096 };
	struct party parties[2];
	struct cause cause;
	struct uid uid;

	uid_make(&uid);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &little), 0);
	cr_expect_eq(party_open(&parties[0], &uid, 2, false), -EFBIG);
	cause_last(&cause, -EFBIG);
	memset(parties, 0, sizeof(parties));
	cr_assert_eq(bootstrap_open(&(struct bootstrap_config){ .uid = &uid,
					    .nranks = 2,
					    .rank = -1,
					    .blob_size = sizeof(struct blob),
					    .control_size = 8192,
					    .reports = true },
			     NULL, &parties[0].b),
		0, "%s", status_sentence());
	open_ok(&parties[1], &uid, 2); /* a client makes none */
	add_ok(&parties[1], 0);
	bootstrap_break(parties[0].b, &cause);
	cr_expect(hears(&parties[1]));
	cr_expect_eq(parties[1].heard.code, -EFBIG);
	cr_expect(strstr(parties[1].heard.sentence, "ulimit -f"), "%s", parties[1].heard.sentence);
	for (int i = 0; i < 2; i++)
		bootstrap_close(parties[i].b);
}

Test(bootstrap, parameters)
{
	struct uid uid;
	struct bootstrap *b;
	struct bootstrap_config config = { .uid = &uid };

	uid_make(&uid);
	cr_expect_eq(bootstrap_open(&config, NULL, &b), -EINVAL);
	config.nranks = 1;
	config.blob_size = BOOTSTRAP_BLOB + 1;
	cr_expect_eq(bootstrap_open(&config, NULL, &b), -EINVAL);
	config.blob_size = 0;
	config.only_tcp = true;
	cr_expect_eq(bootstrap_open(&config, NULL, &b), -EINVAL);
	config.only_tcp = false;
	cr_assert_eq(bootstrap_open(&config, NULL, &b), 0);
	cr_expect_eq(bootstrap_add(b, 0, "", &(struct patience){ process_now(), 1000 }), 0);
	bootstrap_close(b);
	bootstrap_close(NULL);
}

/* ---- breaking and leaving ------------------------------------------------------------------ */

Test(bootstrap, one_breaks_and_all_hear)
{
	for (int by = 0; by < 3; by++) {
		struct party parties[3];
		struct uid uid;

		uid_make(&uid);
		join(&uid, parties, (int[]){ 1, 1, 1 }, 3, 3);
		bootstrap_break(parties[by].b, &(struct cause){ -EIO, 0, "on\npurpose" });
		bootstrap_break(parties[by].b, &(struct cause){ -ENOENT, 0, "too late" });
		for (int i = 0; i < 3; i++) {
			cr_expect(i == by ? !parties[i].heard.times : hears(&parties[i]));
			cr_expect_eq(wait_for(&parties[i], 1000), -EIO);
			cr_expect(says("on purpose"));
			if (i != by)
				cr_expect_str_eq(parties[i].heard.sentence, "on purpose");
		}
		for (int i = 0; i < 3; i++)
			bootstrap_close(parties[i].b);
		for (int i = 0; i < 3; i++)
			cr_expect_eq(parties[i].heard.times, i != by);
	}
}

Test(bootstrap, broken_while_it_gathers)
{
	struct party parties[2], late;
	struct uid uid;

	uid_make(&uid);
	for (int i = 0; i < 2; i++)
		open_ok(&parties[i], &uid, 3);
	add_ok(&parties[0], 0);
	bootstrap_break(parties[1].b, &(struct cause){ -ENODEV, 0, "no device" });
	cr_expect_eq(wait_for(&parties[0], 5000), -ENODEV);
	open_ok(&late, &uid, 3);
	cr_expect_eq(add(&late, 2), -ENODEV);
	cr_expect(says("no device"));
	for (int i = 0; i < 2; i++)
		bootstrap_close(parties[i].b);
	bootstrap_close(late.b);
}

/* The others have been through the rendezvous since the one was gone. */
static void pass(struct party *p, bool hub_is_gone)
{
	char out[3];
	int fds[3], rc = bootstrap_exchange(p->b, "", 1, -1, out, fds, hub_is_gone ? 5000 : 100);

	cr_expect_eq(rc, hub_is_gone ? SPMT_ERR_PEER_DEAD : SPMT_ERR_TIMEOUT, "%d", rc);
	cr_expect(strstr(status_sentence(),
			  hub_is_gone ? "led the rendezvous" : "missing in an exchange"),
		"%s", status_sentence());
}

/* Whoever closes first, hub or not, nobody is told of a death. */
Test(bootstrap, leaving_is_no_death)
{
	for (int first = 0; first < 3; first++) {
		struct party parties[3];
		struct uid uid;

		uid_make(&uid);
		join(&uid, parties, (int[]){ 2, 1, 1 }, 3, 4);
		bootstrap_close(parties[first].b);
		for (int i = 0; i < 3; i++)
			if (i != first)
				pass(&parties[i], first == 0);
		for (int i = 0; i < 3; i++) {
			cr_expect_eq(parties[i].heard.times, 0, "%s", parties[i].heard.sentence);
			if (i != first)
				bootstrap_close(parties[i].b);
		}
	}
}

Test(bootstrap, the_hub_leaves_while_it_gathers)
{
	struct party parties[4];
	struct uid uid;

	uid_make(&uid);
	for (int i = 0; i < 4; i++)
		open_ok(&parties[i], &uid, 3);
	for (int i = 0; i < 3; i++)
		if (i != 1)
			add_ok(&parties[i], i);
	bootstrap_close(parties[0].b);
	add_ok(&parties[1], 1);
	cr_expect_eq(wait_for(&parties[2], 100), SPMT_ERR_TIMEOUT);
	cr_expect(calm_says(status_sentence(), "1 of 3 ranks missing after ", 0.1, " s: 0"), "%s",
		status_sentence());
	add_ok(&parties[3], 0);
	for (int i = 1; i < 4; i++)
		cr_expect_eq(wait_for(&parties[i], 5000), 0, "%s", status_sentence());
	check_world(parties + 1, 3, 3);
	leave(parties + 1, 3);
}

Test(bootstrap, a_member_leaves_while_it_gathers)
{
	struct party parties[3];
	struct uid uid;

	uid_make(&uid);
	for (int i = 0; i < 3; i++)
		open_ok(&parties[i], &uid, 2);
	add_ok(&parties[1], 1);
	bootstrap_close(parties[1].b);
	usleep(20000);
	cr_expect_eq(wait_for(&parties[0], 100), SPMT_ERR_TIMEOUT);
	cr_expect(calm_says(status_sentence(), "2 of 2 ranks missing after ", 0.1, " s: 0, 1"),
		"%s", status_sentence());
	add_ok(&parties[2], 1);
	add_ok(&parties[0], 0);
	cr_expect_eq(wait_for(&parties[2], 5000), 0);
	leave(parties, 1);
	leave(parties + 2, 1);
}

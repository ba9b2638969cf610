/* SPDX-License-Identifier: MIT */
/* Movers that wrap a mover. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fault.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "tests/lib/transports/device_links.h"
#include "tests/lib/transports/hook.h"
#include "transports/sdma/copy_queue.h"
#include "transports/sdma/sdma.h"

#define SIZE (1u << 16)

static struct links l;

static void init(void)
{
	cr_assert_eq(links_open(&l, &backend_host, 2, SIZE), 0, "%s", status_sentence());
}

static void fini(void)
{
	links_close(&l);
}

static struct link *wrapped(const struct hook_config *config)
{
	struct link *link = links_at(&l, 0, 1);

	cr_assert_eq(hook_wrap(link, config), 0, "%s", status_sentence());
	return link;
}

static int put(struct link *link, size_t n)
{
	return links_put(
		&link->movers[n > link->threshold], link->base, l.mem[0], n, MOVE_NBI, NULL);
}

static int get(struct link *link, size_t n)
{
	return links_get(
		&link->movers[n > link->threshold], l.mem[0], link->base, n, MOVE_NBI, NULL);
}

static bool is_wrapped(const struct link *link)
{
	return !strcmp(link->movers[0].ops->name, "hook");
}

Test(hook, counts_and_passes_through, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);
	struct hook_counts c;
	uint64_t old = 0;

	memset(link->base + 16384, 0, 8);
	hook_counts(link, &c);
	cr_assert_eq(c.puts, 0);
	link->direct = true;
	wrapped(&(struct hook_config){ 0 });
	cr_assert_not(link->direct, "nothing may go past it");
	memset(l.mem[0], 3, 8192);
	cr_assert_eq(put(link, 8), 0);
	cr_assert_eq(put(link, 8192), 0);
	cr_assert_eq(links_fence(&link->movers[0]), 0);
	cr_assert_eq(links_quiet(&link->movers[1]), 0);
	cr_assert_eq(links_fence(&link->movers[1]), 0);
	cr_assert_eq(links_quiet(&link->movers[0]), 0);
	cr_assert_eq(memcmp(link->base, l.mem[0], 8192), 0);
	cr_assert_eq(get(link, 16), 0);
	hook_counts(link, &c);
	cr_assert_eq(c.puts, 2);
	cr_assert_eq(c.gets, 1);
	cr_assert_eq(c.bytes, 8 + 8192 + 16);
	cr_assert_eq(
		link->movers[0].ops->signal(&link->movers[0], 16384, 5, SPMT_SIGNAL_ADD, NULL), 0);
	cr_assert_eq(link->movers[0].ops->atomic(&link->movers[0], 16384,
			     &(struct amo){ SPMT_AMO_FETCH_ADD, 8, 1, 0 }, &old),
		0);
	cr_assert_eq(old, 5);
	cr_assert_eq(c.fences, 2);
	cr_assert_eq(c.quiets, 2);
	cr_assert_eq(c.failures, 0);
	cr_assert_eq(link->ops[MOVER_STORE], 4);
	cr_assert_eq(link->ops[MOVER_SDMA], 1);
	hook_unwrap(link);
	hook_unwrap(link);
	cr_assert(link->direct);
	cr_assert_not(is_wrapped(link));
	cr_assert_eq(link->movers[0].ops, &mover_store);
	cr_assert_eq(link->movers[1].ops, &mover_sdma);
}

Test(hook, fails_the_nth_move_and_only_that, .init = init, .fini = fini)
{
	struct link *link = wrapped(&(struct hook_config){ .fail_at = 3, .fail_code = -ENOLINK });
	struct hook_counts c;

	l.mem[0][0] = 1;
	cr_assert_eq(put(link, 1), 0);
	cr_assert_eq(get(link, 1), 0);
	l.mem[0][0] = 2;
	cr_assert_eq(put(link, 1), -ENOLINK);
	cr_assert_not_null(strstr(status_sentence(), "rank 1"), "%s", status_sentence());
	cr_assert_eq(link->base[0], 1, "nothing moved");
	cr_assert_eq(put(link, 1), 0);
	cr_assert_eq(link->base[0], 2);
	hook_counts(link, &c);
	cr_assert_eq(c.puts, 3);
	cr_assert_eq(c.failures, 1);
	hook_unwrap(link);
	link = wrapped(&(struct hook_config){ .fail_at = 1 });
	cr_assert_eq(put(link, 4096), -EIO);
	cr_assert_eq(sdma_pending(link), 0);
}

Test(hook, counts_failures_of_what_it_wraps, .init = init, .fini = fini)
{
	struct link *link = wrapped(&(struct hook_config){ 0 });
	struct hook_counts c;

	cr_assert_eq(put(link, 4096), 0);
	cr_assert_eq(links_quiet(&link->movers[1]), 0);
	fault_arm(1u << FAULT_DEVICE, 1);
	cr_assert_eq(put(link, 4096), -EIO);
	fault_disarm();
	hook_counts(link, &c);
	cr_assert_eq(c.failures, 1);
}

Test(hook, delays_each_move, .init = init, .fini = fini)
{
	struct link *link = wrapped(&(struct hook_config){ .delay_us = 5000 });
	int64_t begin = process_now();

	for (int i = 0; i < 4; i++)
		cr_assert_eq(put(link, 8), 0);
	cr_assert_geq(process_now() - begin, 20000000);
}

Test(hook, traces_to_the_log, .fini = fini)
{
	struct link *link;
	char text[4096] = "";
	int pipes[2], err;

	setenv("SPMT_LOG", "info", 1);
	init();
	link = wrapped(&(struct hook_config){ .trace = true });
	cr_assert_eq(pipe(pipes), 0);
	err = dup(2);
	dup2(pipes[1], 2);
	put(link, 77);
	links_quiet(&link->movers[1]);
	dup2(err, 2);
	cr_assert_gt(read(pipes[0], text, sizeof(text) - 1), 0);
	cr_assert_not_null(strstr(text, "rank 0: store put of 77 bytes, rank 1"), "%s", text);
	cr_assert_not_null(strstr(text, "sdma quiet"), "%s", text);
	close(pipes[0]);
	close(pipes[1]);
	close(err);
}

Test(hook, refuses_what_it_cannot_do, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);
	struct hook_config config = { .fail_code = 5 };

	cr_assert_eq(hook_wrap(link, &config), -EINVAL);
	cr_assert_not(is_wrapped(link));
	config.fail_code = 0;
	fault_arm(1u << FAULT_ALLOC, 1);
	cr_assert_eq(hook_wrap(link, &config), -ENOMEM);
	fault_disarm();
	cr_assert_eq(link->movers[0].ops, &mover_store);
	cr_assert_eq(hook_wrap(link, &config), 0);
	cr_assert_eq(hook_wrap(link, &config), -EALREADY);
}

Test(hook, close_takes_the_hook_and_what_it_wraps, .init = init, .fini = fini)
{
	struct link *link = wrapped(&(struct hook_config){ 0 });

	cr_assert_eq(put(link, 4096), 0);
	cr_assert_eq(copy_queues_live(), 1);
	link->movers[0].ops->close(&link->movers[0]);
	cr_assert_not(is_wrapped(link));
	cr_assert_eq(link->movers[1].ops, &mover_sdma);
	link->movers[1].ops->close(&link->movers[1]);
	cr_assert_eq(copy_queues_live(), 0);
}

/* sdma falls back while it is wrapped: the hook goes on, and unwraps to what the link has become. */
Test(hook, lets_a_mover_fall_back, .init = init, .fini = fini)
{
	struct link *link = wrapped(&(struct hook_config){ 0 });
	struct hook_counts c;

	fault_arm(1u << FAULT_DEVICE, 1);
	cr_assert_eq(put(link, 4096), 0);
	fault_disarm();
	cr_assert(is_wrapped(link));
	cr_assert_eq(put(link, 4096), 0);
	hook_counts(link, &c);
	cr_assert_eq(c.puts, 2);
	hook_unwrap(link);
	cr_assert_eq(link->movers[0].ops, &mover_store);
	cr_assert_eq(link->movers[1].ops, &mover_store);
}

/* One mover for all sizes. */
Test(hook, wraps_a_link_of_one_mover, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 1, 1);

	link->nmovers = 1;
	cr_assert_eq(hook_wrap(link, &(struct hook_config){ 0 }), 0);
	cr_assert(is_wrapped(link));
	cr_assert_eq(link->movers[1].ops, &mover_sdma);
	hook_unwrap(link);
	cr_assert_eq(link->movers[0].ops, &mover_store);
	link->nmovers = 2;
}

/* SPDX-License-Identifier: MIT */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/status.h"

Test(fault, nothing_fires_unarmed)
{
	for (int i = 0; i < 1000; i++)
		cr_assert_not(fault_here(FAULT_ALLOC));
	cr_assert_not(fault_fired());
}

Test(fault, the_nth_request_of_the_site_fires_once)
{
	fault_arm(1u << FAULT_MAP, 3);
	for (int i = 1; i <= 10; i++) {
		cr_expect_not(fault_here(FAULT_ALLOC));
		cr_expect_eq(fault_here(FAULT_MAP), i == 3, "request %d", i);
	}
	cr_assert(fault_fired());
	cr_assert_eq(fault_seen(), 10);
}

Test(fault, any_counts_every_site)
{
	fault_arm(FAULT_ANY, 2);
	cr_assert_not(fault_here(FAULT_PEER));
	cr_assert(fault_here(FAULT_THREAD));
	cr_assert_not(fault_here(FAULT_PEER));
}

Test(fault, zero_only_counts)
{
	fault_arm(FAULT_ANY, 0);
	for (int i = 0; i < 5; i++)
		cr_assert_not(fault_here(FAULT_FD));
	cr_assert_eq(fault_seen(), 5);
	cr_assert_not(fault_fired());
}

Test(fault, arming_again_starts_afresh_and_disarming_stops)
{
	fault_arm(FAULT_ANY, 1);
	cr_assert(fault_here(FAULT_FD));
	fault_arm(FAULT_ANY, 1);
	cr_assert_not(fault_fired());
	fault_disarm();
	cr_assert_not(fault_here(FAULT_FD));
	cr_assert_eq(fault_seen(), 0);
}

static void *ask(void *arg)
{
	intptr_t fired = 0;

	(void)arg;
	for (int i = 0; i < 10000; i++)
		fired += fault_here(FAULT_ALLOC);
	return (void *)fired;
}

Test(fault, one_thread_of_many_is_hit)
{
	pthread_t threads[8];
	intptr_t sum = 0;
	void *fired;

	fault_arm(1u << FAULT_ALLOC, 40000);
	for (int i = 0; i < 8; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, ask, NULL), 0);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], &fired);
		sum += (intptr_t)fired;
	}
	cr_assert_eq(sum, 1);
	cr_assert_eq(fault_seen(), 80000);
}

Test(fault, parsing)
{
	static const char *const bad[] = { "", ":", "alloc", "alloc:", ":3", "alloc:x", "alloc:-1",
		"alloc:0", "alloc:3x", "allo:3", "allocs:3", "alloc:99999999999999999999",
		"alloc: 3" };
	unsigned sites = 7;
	uint64_t n = 7;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		cr_expect_eq(fault_parse(bad[i], &sites, &n), -EINVAL, "%s", bad[i]);
		cr_expect_not_null(strstr(status_sentence(), "SPMT_FAULT="));
		cr_expect_not_null(strstr(status_sentence(), "any, alloc, map,"));
	}
	cr_assert_eq(sites, 7);
	cr_assert_eq(n, 7);
	cr_assert_eq(fault_parse("thread:12", &sites, &n), 0);
	cr_assert_eq(sites, 1u << FAULT_THREAD);
	cr_assert_eq(n, 12);
	cr_assert_eq(fault_parse("any:1", &sites, &n), 0);
	cr_assert_eq(sites, FAULT_ANY);
}

/* The help of SPMT_FAULT is text; the table of sites is what the parser takes. */
Test(fault, the_help_names_every_site)
{
	struct env_row row;
	size_t i = 0;

	while (env_row(i, &row) && strcmp(row.name, "SPMT_FAULT"))
		i++;
	cr_assert_str_eq(row.name, "SPMT_FAULT");
#define X(id, name, err)                            \
	cr_expect_not_null(strstr(row.help, name)); \
	cr_expect_eq(fault_errno(FAULT_##id), err);
	FAULT_SITES(X)
#undef X
}

Test(fault, the_environment_arms)
{
	void *first, *second;

	setenv("SPMT_FAULT", "alloc:2", 1);
	first = mem_calloc(1, 8);
	second = mem_calloc(1, 8);
	cr_assert_not_null(first);
	cr_assert_null(second);
	cr_assert(fault_fired());
	mem_free(first);
}

Test(fault, memory_requests_can_be_refused)
{
	char *text;

	fault_arm(1u << FAULT_ALLOC, 1);
	cr_assert_null(mem_calloc(1, 1));
	fault_arm(1u << FAULT_ALLOC, 1);
	cr_assert_null(mem_aligned(64, 64));
	fault_arm(1u << FAULT_ALLOC, 1);
	cr_assert_null(mem_strdup("x"));
	text = mem_strdup("x");
	cr_assert_str_eq(text, "x");
	mem_free(text);
	mem_free(NULL);
}

Test(fault, memory_is_zeroed_aligned_and_never_wraps)
{
	unsigned char *p = mem_aligned(4096, 100);
	volatile size_t huge = SIZE_MAX / 2;

	cr_assert_not_null(p);
	cr_assert_eq((uintptr_t)p % 4096, 0);
	for (int i = 0; i < 100; i++)
		cr_assert_eq(p[i], 0);
	mem_free(p);
	cr_assert_null(mem_calloc(huge, 4));
}

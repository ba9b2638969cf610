/* SPDX-License-Identifier: MIT */
#include "fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env.h"
#include "status.h"

#define UNREAD (1u << 31) /* in `sites`: SPMT_FAULT has not been read yet */

static const char site_names[] = "any"
#define X(id, name, err) ", " name
	FAULT_SITES(X);
#undef X

static const struct {
	const char *name;
	int error;
} site_rows[] = {
#define X(id, name, err) [FAULT_##id] = { name, err },
	FAULT_SITES(X)
#undef X
};

struct fault fault = { .sites = UNREAD };

void fault_arm(unsigned sites, uint64_t n)
{
	atomic_store(&fault.sites, 0);
	atomic_store(&fault.at, n);
	atomic_store(&fault.seen, 0);
	atomic_store(&fault.fired, false);
	atomic_store(&fault.sites, sites & FAULT_ANY);
}

void fault_disarm(void)
{
	atomic_store(&fault.sites, 0);
}

uint64_t fault_seen(void)
{
	return atomic_load(&fault.seen);
}

bool fault_fired(void)
{
	return atomic_load(&fault.fired);
}

/* UNREAD is cleared first, because reading the environment allocates memory and so calls this
   function again. */
static void arm_from_environment(void)
{
	const struct env *env;
	unsigned sites = UNREAD;
	uint64_t n = 0;
	KEEPS_SENTENCE;

	if (!atomic_compare_exchange_strong(&fault.sites, &sites, 0))
		return;
	if (!env_get(&env) && env->fault && !fault_parse(env->fault, &sites, &n))
		fault_arm(sites, n);
}

bool fault_fires(enum fault_site site)
{
	unsigned sites = atomic_load(&fault.sites);

	if (sites & UNREAD) {
		arm_from_environment();
		sites = atomic_load(&fault.sites);
	}
	if (!(sites & (1u << site)) ||
		atomic_fetch_add(&fault.seen, 1) + 1 != atomic_load(&fault.at))
		return false;
	atomic_store(&fault.fired, true);
	return true;
}

int fault_errno(enum fault_site site)
{
	return site_rows[site].error;
}

/* The set of sites that the first `n` characters of `name` stand for; 0: they name no site. */
static unsigned sites_of(const char *name, size_t n)
{
	if (n == 3 && !strncmp(name, "any", n))
		return FAULT_ANY;
	for (unsigned i = 0; i < FAULT_SITE_COUNT; i++)
		if (strlen(site_rows[i].name) == n && !strncmp(name, site_rows[i].name, n))
			return 1u << i;
	return 0;
}

int fault_parse(const char *text, unsigned *sites, uint64_t *n)
{
	const char *colon = strchr(text, ':');
	unsigned set = colon ? sites_of(text, (size_t)(colon - text)) : 0;
	unsigned long long count = 0;
	char *end = NULL;

	errno = 0;
	if (set && colon[1] >= '0' && colon[1] <= '9')
		count = strtoull(colon + 1, &end, 10);
	if (!end || *end || errno || !count)
		return fail(-EINVAL,
			"SPMT_FAULT=%.64s: want <site>:<n>, site one of %s; the nth request, from 1 on, fails",
			text, site_names);
	*sites = set;
	*n = count;
	return 0;
}

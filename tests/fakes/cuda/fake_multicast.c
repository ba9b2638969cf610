/* SPDX-License-Identifier: MIT */
/* Multicast objects by the driver's rules: every device is in the team before memory is bound or the object mapped; offsets and sizes are
   multiples of the granularity; memory is of cuMemCreate, on a device of the team, and there is one for each device and offset. Where the
   driver would wait for ever, for a device that does not come, the stand-in refuses. */
#include "tests/fakes/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bound {
	struct bound *next;
	int dev;
	size_t at, size, offset;
	struct fake_physical *memory;
};

struct fake_team {
	int wanted, n, devs[FAKE_DEVICES];
	size_t size;
	struct bound *bound;
};

static pthread_mutex_t teams_lock = PTHREAD_MUTEX_INITIALIZER; /* before fake_lock */

static bool unit(size_t n)
{
	return n % FAKE_GRANULARITY == 0;
}

bool fake_team_new(int n, size_t size, struct fake_physical **out)
{
	const char *asked = getenv("SPMT_MULTICAST");
	struct fake_team *team;

	if (!asked || strcmp(asked, "1") != 0) {
		fprintf(stderr, "stand-in libcuda: a multicast object that nobody has asked for\n");
		abort();
	}
	if (!unit(size))
		return false;
	team = calloc(1, sizeof(*team));
	if (!team)
		abort();
	team->wanted = n;
	team->size = size;
	*out = fake_physical_of(team, size);
	return true;
}

/* With teams_lock. */
static bool has(const struct fake_team *team, int dev)
{
	for (int i = 0; i < team->n; i++)
		if (team->devs[i] == dev)
			return true;
	return false;
}

bool fake_team_add(struct fake_physical *p, int dev)
{
	struct fake_team *team = p->team;
	bool ok;

	if (!team)
		return false;
	pthread_mutex_lock(&teams_lock);
	ok = team->n < team->wanted && !has(team, dev);
	if (ok)
		team->devs[team->n++] = dev;
	pthread_mutex_unlock(&teams_lock);
	return ok;
}

bool fake_team_whole(const struct fake_physical *p)
{
	return p->team->n == p->team->wanted;
}

/* With teams_lock. */
static bool taken(const struct fake_team *team, int dev, size_t at, size_t size)
{
	const struct bound *b;

	for (b = team->bound; b; b = b->next)
		if (b->dev == dev && b->at < at + size && at < b->at + b->size)
			return true;
	return false;
}

bool fake_team_bind(struct fake_physical *p, size_t at, struct fake_physical *memory, size_t offset,
	size_t size)
{
	struct fake_team *team = p->team;
	struct bound *b;
	bool ok;

	if (!team || memory->team || !size || !unit(at) || !unit(offset) || !unit(size) ||
		at > team->size || size > team->size - at || offset > memory->size ||
		size > memory->size - offset)
		return false;
	b = malloc(sizeof(*b));
	if (!b)
		abort();
	*b = (struct bound){
		.dev = memory->dev, .at = at, .size = size, .offset = offset, .memory = memory
	};
	pthread_mutex_lock(&teams_lock);
	ok = fake_team_whole(p) && has(team, memory->dev) && !taken(team, memory->dev, at, size);
	if (ok) {
		b->next = team->bound;
		team->bound = b;
	}
	pthread_mutex_unlock(&teams_lock);
	if (ok)
		fake_physical_retain(memory);
	else
		free(b);
	return ok;
}

bool fake_team_unbind(struct fake_physical *p, int dev, size_t at, size_t size)
{
	struct bound **where, *b;

	if (!p->team)
		return false;
	pthread_mutex_lock(&teams_lock);
	for (where = &p->team->bound; (b = *where); where = &b->next)
		if (b->dev == dev && b->at == at && b->size == size)
			break;
	if (b)
		*where = b->next;
	pthread_mutex_unlock(&teams_lock);
	if (!b)
		return false;
	fake_physical_release(b->memory);
	free(b);
	return true;
}

/* What is bound then is nobody's to unbind any more: it is counted as left. */
void fake_team_end(struct fake_team *team)
{
	while (team->bound) {
		struct bound *b = team->bound;

		team->bound = b->next;
		free(b);
	}
	free(team);
}

/* With teams_lock: where n bytes of dev lie, NULL: nowhere in one piece. */
static char *part_of(const struct fake_team *team, int dev, size_t at, size_t n)
{
	const struct bound *b;
	char *base;

	for (b = team->bound; b; b = b->next) {
		if (b->dev != dev || at < b->at || at - b->at > b->size - n)
			continue;
		base = fake_physical_at(b->memory);
		return base ? base + b->offset + (at - b->at) : NULL;
	}
	return NULL;
}

int fake_multicast_at(const void *address, size_t n, char *parts[FAKE_DEVICES])
{
	const struct fake_team *team;
	struct fake_block block;
	int found = 0;

	if (!fake_block_find(address, &block) || !block.memory || !block.memory->team)
		return 0;
	team = block.memory->team;
	pthread_mutex_lock(&teams_lock);
	for (int i = 0; i < team->n; i++) {
		parts[i] = block.access & 1u << team->devs[i]
			? part_of(team, team->devs[i], (size_t)((const char *)address - block.base),
				  n)
			: NULL;
		found += parts[i] != NULL;
	}
	found = found == team->n ? found : 0;
	pthread_mutex_unlock(&teams_lock);
	return found;
}

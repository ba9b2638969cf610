/* SPDX-License-Identifier: MIT */
#include "topo.h"

#include <string.h>

#include "fields.h"
#include "src/base/mem.h"

/* Lists hold a power of two of items, so their length alone says when they are full. */
void *topo_add(void *list, int *n, size_t each)
{
	size_t have = (size_t)*n;
	char *items, *more;

	memcpy(&items, list, sizeof(items)); /* a pointer of any type */
	if (!have || is_power_of_two(have)) {
		more = mem_calloc(have ? 2 * have : 1, each);
		if (!more)
			return NULL;
		if (have)
			memcpy(more, items, have * each);
		mem_free(items);
		items = more;
		memcpy(list, &items, sizeof(items));
	}
	++*n;
	return items + have * each;
}

void topo_free(struct topo *topo)
{
	if (!topo)
		return;
	mem_free(topo->hosts);
	mem_free(topo->numas);
	mem_free(topo->devices);
	mem_free(topo->nics);
	mem_free(topo->peers);
	mem_free(topo->ranks);
	mem_free(topo);
}

const struct topo_peers *topo_peers(const struct topo *topo, int from, int to)
{
	if (from == to)
		return NULL;
	for (int i = topo->npeers; i-- > 0;) {
		const struct topo_peers *p = &topo->peers[i];

		if (from >= p->from[0] && from <= p->from[1] && to >= p->to[0] && to <= p->to[1])
			return p;
	}
	return NULL;
}

const char *topo_link_name(enum topo_link link)
{
	switch (link) {
	case TOPO_LINK_HOST:
		return "host";
	case TOPO_LINK_PCIE:
		return "pcie";
	case TOPO_LINK_XGMI:
		return "xgmi";
	case TOPO_LINK_NVLINK:
		return "nvlink";
	case TOPO_LINK_UNKNOWN:
		break;
	}
	return "unknown";
}

int topo_nranks(const struct topo *topo)
{
	return topo->nranks ? topo->nranks : topo->ndevices;
}

struct topo_rank topo_rank(const struct topo *topo, int rank)
{
	return topo->nranks ? topo->ranks[rank] : (struct topo_rank){ .device = rank };
}

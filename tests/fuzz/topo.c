/* SPDX-License-Identifier: MIT */
/* Recordings from strangers: any bytes are read or refused with a sentence, and what was read is
   written the same way twice. */
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/status.h"
#include "tools/topo/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void check_ranks(const struct topo *topo)
{
	int n = topo_nranks(topo);

	for (int i = 0; i < n; i++) {
		struct topo_rank r = topo_rank(topo, i);

		require(r.device >= 0 && r.device < topo->ndevices);
		require(topo->devices[r.device].host < topo->nhosts);
	}
	for (int i = 0; i < topo->npeers; i++) {
		const struct topo_peers *p = &topo->peers[i];

		require(p->from[0] >= 0 && p->from[0] <= p->from[1] && p->from[1] < topo->ndevices);
		require(p->to[0] >= 0 && p->to[0] <= p->to[1] && p->to[1] < topo->ndevices);
		require(topo_peers(topo, p->from[0], p->to[1]) || p->from[0] == p->to[1]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct topo *topo = NULL, *again = NULL;
	char *text, *second;

	fail(-1, "%s", "");
	if (topo_parse((const char *)data, size, "input", &topo)) {
		require(!topo && strstr(status_sentence(), "input"));
		return 0;
	}
	check_ranks(topo);
	require(!topo_format(topo, &text));
	require(!topo_parse(text, strlen(text), "written", &again));
	require(!topo_format(again, &second));
	require(!strcmp(text, second));
	mem_free(text);
	mem_free(second);
	topo_free(topo);
	topo_free(again);
	return 0;
}

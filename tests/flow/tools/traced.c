/* SPDX-License-Identifier: MIT */
/* Moves to and from a peer, for SPMT_TRACE to note; says what rank 0 has counted of them, by mover. */
#include <spmt.h>
#include <stdio.h>

#define TRY(call)                   \
	do {                        \
		int rc_ = (call);   \
		if (rc_)            \
			return rc_; \
	} while (0)

enum { SMALL = 1000, LARGE = 2 << 20, ELEMENTS = 100, ELEMENT = 4 };

static int registered(spmt_comm *comm, spmt_mem *mem, char *local, size_t size)
{
	int peer = !spmt_rank(comm);

	TRY(spmt_mem_put(comm, mem, 0, local, size, peer));
	TRY(spmt_mem_put_nbi(comm, mem, 0, local, size, peer));
	TRY(spmt_mem_put_on_stream(comm, mem, 0, local, size, peer, NULL));
	TRY(spmt_quiet(comm));
	TRY(spmt_mem_get(comm, local, mem, 0, size, peer));
	TRY(spmt_mem_get_nbi(comm, local, mem, 0, size, peer));
	TRY(spmt_mem_get_on_stream(comm, local, mem, 0, size, peer, NULL));
	return spmt_quiet(comm);
}

static int moves(spmt_comm *comm, void *arg)
{
	struct spmt_stats stats = { .size = sizeof(stats) };
	int peer = !spmt_rank(comm);
	spmt_mem *mem;
	char *sym;

	(void)arg;
	TRY(spmt_calloc(comm, 3, LARGE, (void **)&sym));
	TRY(spmt_register(comm, sym, LARGE, &mem));
	TRY(registered(comm, mem, sym + LARGE, SMALL));
	TRY(registered(comm, mem, sym + LARGE, LARGE));
	TRY(spmt_iput(comm, sym, sym + LARGE, 10, 3, ELEMENTS, ELEMENT, peer));
	TRY(spmt_iget(comm, sym + LARGE, sym, 3, 10, ELEMENTS, ELEMENT, peer));
	TRY(spmt_stats(comm, peer, &stats));
	if (!spmt_rank(comm))
		printf("store=%llu sdma=%llu\n", (unsigned long long)stats.store.bytes,
			(unsigned long long)stats.sdma.bytes);
	TRY(spmt_put_signal_nbi(comm, sym, sym + LARGE, LARGE,
		(uint64_t *)(void *)(sym + 2 * LARGE), 1, SPMT_SIGNAL_SET, peer));
	TRY(spmt_barrier(comm));
	return spmt_deregister(comm, mem);
}

int main(void)
{
	int rc = spmt_run(2, NULL, moves, NULL);

	if (rc)
		fprintf(stderr, "%s\n", spmt_last_error());
	return rc != 0;
}

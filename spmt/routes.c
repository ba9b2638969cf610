/* SPDX-License-Identifier: MIT */
/* SPMT_ROUTES=file: how each rank reaches each other, for spmt-info and for people. */
#include "routes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../src/env.h"
#include "../src/mem.h"
#include "../src/status.h"
#include "comm.h"
#include "gather.h"

#define ROW (LINK_REASON + 192)

int routes_process(const spmt_comm *comm, int rank)
{
	return comm->world->process ? comm->world->process[rank] : 0;
}

/* Names a world without telling its id. */
static unsigned long long world_name(const struct world *w)
{
	return w->uid.id[0] ^ (w->uid.id[1] << 29 | w->uid.id[1] >> 35);
}

static size_t row_print(const spmt_comm *comm, int pe, char *row)
{
	const struct route *r = &comm->links[pe].route;
	char movers[32];
	int n;

	route_movers(r, movers, sizeof(movers));
	n = snprintf(row, ROW,
		"world %016llx of %d: pid %d process %d device %d rank %d -> process %d device %d rank %d: map %s movers %s threshold %llu: %s\n",
		world_name(comm->world), comm->nranks, (int)getpid(),
		routes_process(comm, comm->rank), comm->dev, comm->rank, routes_process(comm, pe),
		comm->world->infos[pe].settled, pe, map_name(r->map), movers,
		(unsigned long long)r->threshold, r->reason);
	return MIN_OF((size_t)MAX_OF(n, 0), (size_t)ROW - 1);
}

static int file_append(const spmt_comm *comm, const char *path, const char *text, size_t size)
{
	int fd, rc = 0;

	errno = 0;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
	if (fd < 0 || write(fd, text, size) != (ssize_t)size) {
		int error = errno;

		rc = fail(error ? -error : -EIO, "spmt_init: rank %d: SPMT_ROUTES=%s: %s",
			comm->rank, path, error ? strerror(error) : "written in part");
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

static int ranks_here(const spmt_comm *comm)
{
	int n = 0;

	for (int r = 0; r < comm->nranks; r++)
		n += gather_here(comm, r);
	return n;
}

int routes_tell(spmt_comm *comm)
{
	struct world *w = comm->world;
	int here = ranks_here(comm), rc = 0;
	const struct env *env;

	if (env_get(&env) || !env->routes)
		return 0;
	pthread_mutex_lock(&w->lock);
	if (!w->routes)
		w->routes = mem_calloc((size_t)here * (size_t)comm->nranks, ROW);
	for (int pe = 0; w->routes && pe < comm->nranks; pe++)
		w->routes_size += row_print(comm, pe, w->routes + w->routes_size);
	if (!w->routes)
		rc = fail(-ENOMEM, "spmt_init: rank %d: no memory for SPMT_ROUTES", comm->rank);
	else if (++w->routes_ranks == here)
		rc = file_append(comm, env->routes, w->routes, w->routes_size);
	pthread_mutex_unlock(&w->lock);
	return rc;
}

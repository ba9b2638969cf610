/* SPDX-License-Identifier: MIT */
/* SPMT_ROUTES=file: how each rank reaches each other, for spmt-info and for people. */
#include "routes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define ROW (LINK_REASON + 192)

static size_t row_print(const spmt_comm *comm, int pe, char *row)
{
	const struct route *r = &comm->links[pe].route;
	char movers[32];
	int n;

	route_movers(r, movers, sizeof(movers));
	n = snprintf(row, ROW,
		"world %016llx of %d: pid %d process %d device %d rank %d -> process %d device %d rank %d: map %s movers %s threshold %llu: %s\n",
		world_label(comm->world), comm->nranks, (int)getpid(),
		world_process(comm->world, comm->rank), comm->dev, comm->rank,
		world_process(comm->world, pe), comm->world->infos[pe].settled, pe,
		map_name(r->map), movers, (unsigned long long)r->threshold, r->reason);
	return MIN_OF((size_t)MAX_OF(n, 0), (size_t)ROW - 1);
}

static int not_written(const spmt_comm *comm, const char *path, int err, const char *why)
{
	return fail_call(-err, "spmt_init", "rank %d: SPMT_ROUTES=%s: %s", comm->rank, path, why);
}

static int fd_append(const spmt_comm *comm, int fd, const char *path, const char *text, size_t size)
{
	struct stat s;
	ssize_t done;

	if (fstat(fd, &s))
		return not_written(comm, path, errno, strerror(errno));
	/* its reader may close it, or not read */
	if (S_ISFIFO(s.st_mode) || S_ISSOCK(s.st_mode))
		return not_written(comm, path, EINVAL, "a pipe or a socket: it has to be a file");
	done = process_write(fd, text, size);
	if (done < 0)
		return not_written(comm, path, errno,
			errno == EFBIG ? "File too large (ulimit -f)" : strerror(errno));
	return (size_t)done == size ? 0 : not_written(comm, path, EIO, "written in part");
}

static int file_append(const spmt_comm *comm, const char *path, const char *text, size_t size)
{
	const int how = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	int rc, fd = process_fd(open(path, how, 0644));

	if (fd < 0)
		return not_written(comm, path, errno, strerror(errno));
	rc = fd_append(comm, fd, path, text, size);
	close(fd);
	return rc;
}

static int ranks_here(const spmt_comm *comm)
{
	int n = 0;

	for (int r = 0; r < comm->nranks; r++)
		n += comm_is_local(comm, r);
	return n;
}

int routes_write(spmt_comm *comm)
{
	struct world *w = comm->world;
	int here = ranks_here(comm), rc = 0;
	const struct env *env;
	bool last = false;

	if (env_get(&env) || !env->routes)
		return 0;
	pthread_mutex_lock(&w->lock);
	if (!w->routes)
		w->routes = mem_calloc((size_t)here * (size_t)comm->nranks, ROW);
	for (int pe = 0; w->routes && pe < comm->nranks; pe++)
		w->routes_size += row_print(comm, pe, w->routes + w->routes_size);
	if (!w->routes)
		rc = fail_call(
			-ENOMEM, "spmt_init", "rank %d: no memory for SPMT_ROUTES", comm->rank);
	else
		last = ++w->routes_ranks == here;
	pthread_mutex_unlock(&w->lock);
	/* Without the lock, as a file may be slow: all ranks have come, so nobody else touches
	   the rows. */
	return last ? file_append(comm, env->routes, w->routes, w->routes_size) : rc;
}

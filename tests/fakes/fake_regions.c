/* SPDX-License-Identifier: MIT */
/* Of the stand-in for libibverbs: what is registered, memory of the stand-ins' devices included. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_wire.h"

struct verbs_pd *ibv_alloc_pd(struct verbs_ctx *ctx)
{
	struct verbs_pd *pd = refused() ? NULL : fake_make(sizeof(*pd));

	if (pd)
		pd->ctx = ctx;
	return pd;
}

int ibv_dealloc_pd(struct verbs_pd *pd)
{
	return pd->users ? EBUSY : drop(pd);
}

static struct verbs_mr *region_new(struct verbs_pd *pd, const struct fake_mr *what)
{
	struct fake_mr *mr = fake_make(sizeof(*mr));
	uint32_t i = 0;

	*mr = *what;
	mr->pub.context = pd->ctx;
	mr->pub.pd = pd;
	pthread_mutex_lock(&wire.lock);
	while (wire.regions[i])
		i++;
	wire.regions[i] = mr;
	mr->pub.lkey = mr->pub.rkey = ++wire.keys << 16 | i;
	pd->users++;
	pthread_mutex_unlock(&wire.lock);
	return &mr->pub;
}

/* Whether it is memory of the stand-ins' devices, which no NIC reaches by its address alone. */
static bool of_a_device(const void *at)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char line[512];
	bool found = false;

	while (maps && !found && fgets(line, sizeof(line), maps))
		found = sscanf(line, "%lx-%lx", &from, &to) == 2 &&
			(uintptr_t)at - from < to - from && strstr(line, "memfd:fake-gpu");
	if (maps)
		fclose(maps);
	return found;
}

static bool nic_lacks(const char *what)
{
	const char *text = getenv("SPMT_FAKE_NIC_WITHOUT");

	return text && strstr(text, what);
}

struct verbs_mr *ibv_reg_mr(struct verbs_pd *pd, void *at, size_t n, int access)
{
	struct fake_mr mr = { .pub = { .addr = at, .length = n }, .access = access, .data = at };

	if (refused())
		return NULL;
	if (of_a_device(at)) {
		/* a second mapping of the same memory: what a driver for peer memory would do */
		mr.data = nic_lacks("peer") ? MAP_FAILED : mremap(at, 0, n, MREMAP_MAYMOVE);
		if (mr.data == MAP_FAILED) {
			errno = EFAULT;
			return NULL;
		}
		mr.mapped = n;
		if (mprotect(mr.data, n, PROT_READ | PROT_WRITE))
			abort();
	}
	return region_new(pd, &mr);
}

struct verbs_mr *ibv_reg_dmabuf_mr(
	struct verbs_pd *pd, uint64_t offset, size_t n, uint64_t at, int fd, int access)
{
	struct fake_mr mr = {
		.pub = { .addr = (void *)(uintptr_t)at, .length = n }, .access = access, .mapped = n
	};

	if (refused())
		return NULL;
	mr.data = nic_lacks("dmabuf") ? MAP_FAILED
				      : mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
						lseek(fd, 0, SEEK_CUR) + (off_t)offset);
	if (mr.data == MAP_FAILED) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return region_new(pd, &mr);
}

int ibv_dereg_mr(struct verbs_mr *mr)
{
	struct fake_mr *fake = (struct fake_mr *)mr;

	pthread_mutex_lock(&wire.lock);
	mr->pd->users--;
	wire.regions[mr->rkey & 0xffff] = NULL;
	if (fake->mapped)
		munmap(fake->data, fake->mapped);
	fake_unmake(mr);
	pthread_mutex_unlock(&wire.lock);
	return fake_dropped(__func__);
}

struct verbs_ah *ibv_create_ah(struct verbs_pd *pd, struct verbs_ah_attr *attr)
{
	(void)pd;
	(void)attr;
	return refused() ? NULL : fake_make(1);
}

int ibv_destroy_ah(struct verbs_ah *ah)
{
	return drop(ah);
}

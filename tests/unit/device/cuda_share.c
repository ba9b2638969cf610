/* SPDX-License-Identifier: MIT */
/* What the cuda backend names to other processes, and takes from them, over the stand-in for libcuda. */
#include "standin.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kept.h"
#include "src/device/gpu/abi_cuda_calls.h"
#include "standin_images.h"

#define B (&backend_cuda)

static struct standin drv;

TestSuite(cuda_share, .timeout = 60);

static void start(void)
{
	standin_load(&drv, B, "SPMT_CUDA_LIB", FAKES "/fake-cuda.so");
}

Test(cuda_share, own_handles_are_refused)
{
	struct device_export name;
	void *ptr, *again = &name;
	int fd;

	start();
	cr_assert(!B->open(0) && !B->alloc(0, 4096, DEVICE_MEMORY_SYMMETRIC, &ptr));
	cr_assert(!B->ipc->export_memory(0, (char *)ptr + 64, 4032, &name, &fd) && fd == -1);
	cr_assert_eq(name.offset, 64);
	cr_assert_lt(B->ipc->import_memory(0, &name, fd, &again), 0);
	cr_assert_eq(again, &name);
	cr_assert_eq(B->ipc->export_memory(0, (char *)ptr + 64, 4096, &name, &fd), -EINVAL,
		"past its end");
	cr_assert_eq(B->ipc->release(0, ptr, &name), -EINVAL);
}

#define MAPPED ((size_t)2 << 20)

/* Memory that a framework has mapped by itself. */
static void *map_memory(int handle_types, cu_memory *memory)
{
	cu_result (*create)(cu_memory *, size_t, const cu_memory_prop *, unsigned long long);
	cu_result (*map)(cu_pointer, size_t, size_t, cu_memory, unsigned long long);
	cu_memory_prop prop = {
		.type = CU_PINNED, .handle_type = handle_types, .location = { CU_ON_DEVICE, 0 }
	};
	void *base;

	start();
	standin_symbol(&drv, "cuMemCreate", &create);
	standin_symbol(&drv, "cuMemMap", &map);
	cr_assert(!B->open(0) && !B->vmm->reserve(MAPPED, 0, &base));
	cr_assert(!create(memory, MAPPED, &prop, 0) && !map(base, MAPPED, 0, *memory, 0));
	return base;
}

static void unmap_memory(void *base, cu_memory memory)
{
	cu_result (*unmap)(cu_pointer, size_t);
	cu_result (*release)(cu_memory);

	standin_symbol(&drv, "cuMemUnmap", &unmap);
	standin_symbol(&drv, "cuMemRelease", &release);
	cr_assert(!unmap(base, MAPPED) && !release(memory));
	cr_assert_eq(B->vmm->unreserve(base, MAPPED), 0);
	B->close(0);
	cr_assert(standin_only_kept(&drv, 1, 0));
}

/* It is exported from its handle, if it may be. */
static void export_mapped(int handle_types, int code)
{
	struct device_export name;
	cu_memory memory;
	char *base = map_memory(handle_types, &memory);
	int fd = -1;

	cr_assert_eq(B->ipc->export_memory(0, base + 64, 4032, &name, &fd), code);
	if (code)
		cr_assert(strstr(status_sentence(), "cuMemCreate"), "%s", status_sentence());
	else
		cr_assert(name.kind == DEVICE_EXPORT_FD && name.offset == 64 && fd >= 0);
	if (fd >= 0)
		close(fd);
	unmap_memory(base, memory);
}

Test(cuda_share, mapped_memory_is_exported)
{
	export_mapped(CU_FD, 0);
}

Test(cuda_share, mapped_memory_is_refused)
{
	export_mapped(0, -EINVAL);
}

/* The driver has one code for that and for much else. */
Test(cuda_share, no_descriptor_is_said)
{
	struct rlimit limit, none;
	struct device_export name;
	cu_memory memory;
	char *base = map_memory(CU_FD, &memory);
	void *range, *at[2];
	uint64_t offset;
	int codes[3], fd;

	cr_assert(
		!B->vmm->reserve(MAPPED, 0, &range) && !B->vmm->commit(0, range, MAPPED, NULL, 0));
	at[0] = base;
	at[1] = range;
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none); /* no asserts from here on: they take descriptors */
	codes[0] = B->dmabuf->name(0, base, 4096, &fd, &offset);
	for (int i = 0; i < 2; i++)
		codes[i + 1] = B->ipc->export_memory(0, at[i], 4096, &name, &fd);
	setrlimit(RLIMIT_NOFILE, &limit);
	cr_assert(strstr(status_sentence(), "no descriptor"), "%s", status_sentence());
	for (int i = 0; i < 3; i++)
		cr_expect_eq(codes[i], -EMFILE, "%d: %d", i, codes[i]);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(B->ipc->export_memory(0, at[i], 4096, &name, &fd), 0);
		close(fd);
	}
	cr_assert(!B->vmm->decommit(0, range, MAPPED) && !B->vmm->unreserve(range, MAPPED));
	unmap_memory(base, memory);
}

Test(cuda_share, bad_descriptor)
{
	struct device_export name = { .kind = DEVICE_EXPORT_FD, .size = 8, .length = 2 << 20 };
	uint64_t total = 2 << 20;
	void *ptr = &name;

	start();
	cr_assert_eq(B->open(0), 0);
	memcpy(name.handle, &total, sizeof(total));
	cr_assert_lt(B->ipc->import_memory(0, &name, -1, &ptr), 0);
	name.length = (uint64_t)3 << 20;
	cr_assert_eq(B->ipc->import_memory(0, &name, 0, &ptr), -EINVAL);
	name.offset = UINT64_MAX;
	cr_assert_eq(B->ipc->import_memory(0, &name, 0, &ptr), -EINVAL);
	cr_assert_eq(ptr, &name);
	B->close(0);
	cr_assert(standin_only_kept(&drv, 1, 0));
}

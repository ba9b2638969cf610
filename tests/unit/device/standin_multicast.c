/* SPDX-License-Identifier: MIT */
/* The stand-in for libcuda has the driver's rules for multicast objects, and lets nobody make one unasked. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "src/device/gpu/abi_cuda_calls.h"

static void symbol(void *library, const char *name, void *out)
{
	void *address = dlsym(library, name);

	cr_assert_not_null(address, "%s", name);
	memcpy(out, &address, sizeof(address));
}

static struct cuda_api calls;

static void load_calls(void)
{
	void *library = dlopen(FAKES "/fake-cuda.so", RTLD_NOW | RTLD_LOCAL);
	cu_context context;

	cr_assert_not_null(library, "%s", dlerror());

#define CALLED(field, name, args) symbol(library, #name, &calls.field);
	CUDA_REQUIRED(CALLED)
	CUDA_OPTIONAL(CALLED)
	cr_assert(!calls.PrimaryRetain(&context, 0) && !calls.CtxPush(context));
}

static cu_memory memory_of(int dev, size_t size)
{
	struct gpu_memory_prop prop = { .type = CU_PINNED,
		.location = { .type = CU_ON_DEVICE, .id = dev } };
	cu_memory memory = NULL;

	cr_assert_eq(calls.MemCreate(&memory, size, &prop, 0), CU_OK);
	return memory;
}

/* What would hang or fail on a GPU fails here. */
Test(standin_multicast, rules)
{
	const size_t unit = (size_t)2 << 20;
	struct cuda_multicast_prop prop = { .devices = 2, .size = 2 * unit };
	cu_memory team, first, second, other;
	cu_pointer address;

	setenv("SPMT_MULTICAST", "1", 1);
	load_calls();
	first = memory_of(0, 2 * unit);
	second = memory_of(1, unit);
	other = memory_of(2, unit);
	prop.size++;
	cr_expect_neq(calls.MulticastCreate(&team, &prop), CU_OK, "no whole units");
	prop.size--;
	cr_assert_eq(calls.MulticastCreate(&team, &prop), CU_OK);
	cr_assert_eq(calls.MemAddressReserve(&address, 2 * unit, unit, NULL, 0), CU_OK);
	cr_assert_eq(calls.MulticastAddDevice(team, 0), CU_OK);
	cr_expect_neq(calls.MulticastAddDevice(team, 0), CU_OK, "twice");
	cr_expect_neq(calls.MulticastBindMem(team, 0, first, 0, unit, 0), CU_OK, "not all added");
	cr_expect_neq(calls.MemMap(address, 2 * unit, 0, team, 0), CU_OK, "not all added");
	cr_assert_eq(calls.MulticastAddDevice(team, 1), CU_OK);
	cr_expect_neq(calls.MulticastAddDevice(team, 2), CU_OK, "more than it was made for");
	cr_expect_neq(calls.MulticastBindMem(team, 4096, first, 0, unit, 0), CU_OK, "no unit");
	cr_expect_neq(calls.MulticastBindMem(team, 0, first, 4096, unit, 0), CU_OK, "no unit");
	cr_expect_neq(calls.MulticastBindMem(team, 0, first, 0, 4096, 0), CU_OK, "no unit");
	cr_expect_neq(calls.MulticastBindMem(team, 0, other, 0, unit, 0), CU_OK, "not of the team");
	cr_expect_neq(calls.MulticastBindMem(team, 0, team, 0, unit, 0), CU_OK, "no memory");
	cr_expect_neq(calls.MulticastBindMem(team, unit, second, 0, 2 * unit, 0), CU_OK, "beyond");
	cr_assert_eq(calls.MulticastBindMem(team, 0, first, unit, unit, 0), CU_OK);
	cr_expect_neq(calls.MulticastBindMem(team, 0, first, 0, unit, 0), CU_OK, "bound already");
	cr_expect_neq(calls.MulticastUnbind(team, 1, 0, unit), CU_OK, "nothing of that device");
	cr_expect_neq(calls.MulticastUnbind(team, 0, 0, 2 * unit), CU_OK, "not what was bound");
	cr_expect_eq(calls.MulticastUnbind(team, 0, 0, unit), CU_OK);
	cr_expect_eq(calls.MemMap(address, 2 * unit, 0, team, 0), CU_OK);
	cr_expect_eq(calls.MemRelease(first), CU_OK);
	cr_expect_eq(calls.MemRelease(second), CU_OK);
	cr_expect_eq(calls.MemRelease(other), CU_OK);
}

/* Ends the suite that runs over this stand-in. */
Test(standin_multicast, unasked, .signal = SIGABRT)
{
	const struct cuda_multicast_prop prop = { .devices = 2, .size = (size_t)2 << 20 };
	cu_memory team;

	unsetenv("SPMT_MULTICAST");
	load_calls();
	calls.MulticastCreate(&team, &prop);
}

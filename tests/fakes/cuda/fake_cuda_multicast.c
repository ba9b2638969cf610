/* SPDX-License-Identifier: MIT */
/* The calls of libcuda.so.1 for multicast objects, whose rules fake_multicast.c has. */
#include "fake_cuda.h"

static bool good_team(const cu_multicast_prop *prop)
{
	return prop->devices && prop->devices <= FAKE_DEVICES && prop->size &&
		!prop->handle_types && !prop->flags;
}

cu_result cuMulticastGetGranularity(
	size_t *bytes, const cu_multicast_prop *prop, cu_multicast_granularity which)
{
	CHECK("cuMulticastGetGranularity");
	if (!good_team(prop) || which != CU_MULTICAST_MINIMUM)
		return CU_INVALID_VALUE;
	*bytes = FAKE_GRANULARITY;
	return CU_OK;
}

cu_result cuMulticastCreate(cu_memory *team, const cu_multicast_prop *prop)
{
	struct fake_physical *p;

	CHECK("cuMulticastCreate");
	if (!good_team(prop) || !fake_team_new((int)prop->devices, prop->size, &p))
		return CU_INVALID_VALUE;
	*team = p;
	return CU_OK;
}

cu_result cuMulticastAddDevice(cu_memory team, cu_device device)
{
	int has = 0;

	CHECK("cuMulticastAddDevice");
	if (cuDeviceGetAttribute(&has, CU_ATTR_MULTICAST, device) != CU_OK)
		return CU_INVALID_DEVICE;
	if (!has)
		return CU_NOT_SUPPORTED;
	return fake_team_add(team, device) ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMulticastBindMem(cu_memory team, size_t at, cu_memory memory, size_t offset,
	size_t size, unsigned long long flags)
{
	CHECK_CONTEXT("cuMulticastBindMem");
	return !flags && fake_team_bind(team, at, memory, offset, size) ? CU_OK : CU_INVALID_VALUE;
}

cu_result cuMulticastUnbind(cu_memory team, cu_device device, size_t at, size_t size)
{
	CHECK_CONTEXT("cuMulticastUnbind");
	return fake_team_unbind(team, device, at, size) ? CU_OK : CU_INVALID_VALUE;
}

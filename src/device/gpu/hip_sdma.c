/* SPDX-License-Identifier: MIT */
/* User-mode queues of AMD's engines, for the devices that HIP names. */
#include <errno.h>
#include <stdio.h>

#include "abi_hip.h"
#include "bind.h"
#include "src/base/status.h"
#include "src/device/sdma/kmt.h"

/* The pair as the driver of compute knows it: a code and a reason, no sentence. */
static int hip_engine(int src, int dst, struct kfd_engine *engine, char reason[DEVICE_REASON])
{
	static const struct kfd_files files = { "/sys/class/kfd/kfd/topology/nodes",
		"/dev/dri/renderD" };
	struct device_desc from, to;
	int rc;
	KEEPS_SENTENCE;

	rc = backend_hip.describe(src, &from);
	if (!rc)
		rc = backend_hip.describe(dst, &to);
	if (!rc)
		rc = kmt_load();
	if (rc) {
		snprintf(reason, DEVICE_REASON, "%.*s", DEVICE_REASON - 1, status_sentence());
		return rc;
	}
	rc = kfd_engine(&files, from.pci, to.pci, engine, reason);
	return rc ? rc : kmt_check(engine, reason);
}

static int hip_sdma_check(int src, int dst, char reason[DEVICE_REASON])
{
	struct kfd_engine engine;
	int rc = hip_engine(src, dst, &engine, reason);

	if (!rc)
		kmt_describe(&engine, reason);
	return rc;
}

static int hip_sdma_open(int src, int dst, struct sdma_queue **queue)
{
	char reason[DEVICE_REASON];
	struct kfd_engine engine;
	int rc = vendor_fault(FAULT_DEVICE, "hip", "sdma", src);

	if (rc)
		return rc;
	rc = hip_engine(src, dst, &engine, reason);
	return rc ? fail(rc, "%s", reason) : kmt_open(&engine, queue);
}

/* What the runtime has allocated or registered, all of it; -1: the bytes are not, or nobody knows where they are. */
static int hip_owner(int src, const void *ptr, size_t n)
{
	int r, owner = -1;
	struct gpu_bound b;
	size_t size = 0;
	void *base = NULL;

	if (gpu_bind_closed(&b, &hip_vendor, src, "sdma") < 0)
		return -1;
	r = b.calls->MemGetAddressRange(&base, &size, (void *)(uintptr_t)ptr);
	if (r == GPU_OK && (uintptr_t)ptr - (uintptr_t)base <= size &&
		n <= size - ((uintptr_t)ptr - (uintptr_t)base) && b.calls->PointerGetAttribute)
		r = b.calls->PointerGetAttribute(
			&owner, HIP_DEVICE_ORDINAL, (void *)(uintptr_t)ptr);
	gpu_unbind(&b);
	return r == GPU_OK ? owner : -1;
}

/* Memory that the runtime does not know would fault the engine, which ends the process: the runtime's own copy goes round that. */
static bool hip_sdma_reaches(int src, const void *ptr, size_t n)
{
	bool reached;
	int owner;
	KEEPS_SENTENCE;

	owner = hip_owner(src, ptr, n);
	reached = owner >= 0 && (owner == src || !backend_hip.peer_enable(src, owner));
	return reached;
}

const struct device_sdma_ops hip_sdma_ops = {
	.check = hip_sdma_check,
	.open = hip_sdma_open,
	.close = kmt_close,
	.doorbell = kmt_doorbell,
	.reaches = hip_sdma_reaches,
};

/* SPDX-License-Identifier: MIT */
/* NVIDIA through the driver API: what it has of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "ops.h"
#include "src/base/env.h"

static struct gpu_root cuda;

#define X(name) _Static_assert((int)CU_##name == (int)GPU_##name, "the same number");
GPU_VALUES(X)
#undef X
_Static_assert((int)CU_TOO_MANY_PEERS == (int)GPU_TOO_MANY_PEERS &&
		(int)CU_NOT_PERMITTED == (int)GPU_NOT_PERMITTED,
	"CUDA's own results");
_Static_assert(sizeof(cu_pointer) == sizeof(void *), "addresses are passed as pointers are");

#define X(field, symbol, args) { #symbol, offsetof(struct cuda_api, field), false },
#define Y(field, symbol, args) { #symbol, offsetof(struct cuda_api, field), true },
static const struct vendor_symbol cuda_symbols[] = { CUDA_REQUIRED(X) CUDA_OPTIONAL(Y) };
#undef X
#undef Y

static const char *const cuda_libraries[] = { "libcuda.so.1" };

static int cuda_find(struct gpu_state *state)
{
	struct cuda_api *api = &((struct cuda_state *)state)->api;
	const struct env *env;
	int rc = env_get(&env);

	if (!rc)
		rc = gpu_bind_library(&cuda_vendor, env->cuda_lib, api);
	if (rc < 0)
		return rc;
#define X(field) state->calls.field = api->field;
	GPU_CALLS(X)
#undef X
	state->calls.FuncLoad = api->FuncLoad;
	state->calls.StreamGetId = api->StreamGetId;
	state->calls.MemRetain = api->MemRetain;
	state->calls.MemRangeHandle = api->MemRangeHandle;
	return 0;
}

static int cuda_start(struct gpu_state *state, int *count)
{
	int r = state->calls.Init(0);

	state->ipc_flags = CU_IPC_LAZY_PEER;
	return r == CU_OK ? state->calls.DeviceGetCount(count) : r;
}

static int cuda_find_device(struct gpu_state *state, struct gpu_device *d)
{
	const struct cuda_api *api = cuda_own(state);
	int major = 0, minor = 0, r = api->DeviceGet(&d->handle, d->kept.dev);

	if (r == CU_OK)
		r = api->DeviceGetAttribute(&major, CU_ATTR_MAJOR, d->handle);
	if (r == CU_OK)
		r = api->DeviceGetAttribute(&minor, CU_ATTR_MINOR, d->handle);
	snprintf(d->kept.arch, sizeof(d->kept.arch), "sm_%d%d", major, minor);
	return r;
}

static void cuda_texts(
	const struct gpu_state *state, int result, const char **name, const char **text)
{
	const struct cuda_api *api = cuda_own(state);

	if (!api->GetErrorName || !api->GetErrorString)
		return;
	api->GetErrorName(result, name);
	api->GetErrorString(result, text);
}

/* ---- the thread's context stack */

/* Most threads have a device's context already: to ask for it takes less than to push and pop it. */
static int cuda_push(struct gpu_bound *b)
{
	const struct cuda_api *api = cuda_own(b->state);
	cu_context was;

	b->pushed = api->CtxGetCurrent(&was) != CU_OK || was != b->device->context;
	return b->pushed ? api->CtxPush(b->device->context) : CU_OK;
}

static void cuda_pop(const struct gpu_bound *b)
{
	cu_context context;

	if (b->pushed)
		cuda_own(b->state)->CtxPop(&context);
}

static int cuda_push_saved(
	const struct gpu_state *state, struct gpu_device *d, struct device_saved *saved)
{
	const struct cuda_api *api = cuda_own(state);
	cu_device was;
	int r = api->CtxGetCurrent(&saved->context);

	if (r == CU_OK && saved->context && api->CtxGetDevice(&was) == CU_OK)
		saved->ordinal = (int)was;
	return r == CU_OK ? api->CtxPush(d->context) : r;
}

/* What lies on top may be another context than enter's: whoever set it replaced ours, so the
   depth is right. */
static void cuda_pop_saved(const struct gpu_state *state, const struct device_saved *saved)
{
	cu_context context;

	(void)saved;
	cuda_own(state)->CtxPop(&context);
}

static int cuda_retain(struct gpu_device *d)
{
	return cuda_own(gpu_state(&cuda_vendor))->PrimaryRetain(&d->context, d->handle);
}

static void cuda_unretain(struct gpu_device *d)
{
	cuda_own(gpu_state(&cuda_vendor))->PrimaryRelease(d->handle);
}

static const struct gpu_contexts cuda_contexts = { .retain = cuda_retain,
	.release = cuda_unretain };

static int cuda_enable_peer(const struct gpu_bound *b, const struct gpu_device *peer)
{
	return cuda_own(b->state)->CtxEnablePeerAccess(peer->context, 0);
}

bool cuda_has(const struct gpu_bound *b, cu_attribute what)
{
	int value = 0;

	return b->calls->DeviceGetAttribute(&value, what, b->device->handle) == CU_OK && value;
}

static enum gpu_vmm cuda_ask_vmm(const struct gpu_bound *b)
{
	const struct gpu_calls *c = b->calls;

	if (!c->MemCreate || !c->MemMap || !c->MemSetAccess || !c->MemAddressReserve ||
		!c->MemAddressFree || !c->MemUnmap || !c->MemRelease || !c->MemGranularity ||
		!cuda_has(b, CU_ATTR_VMM))
		return GPU_VMM_NO;
	return c->MemExport && c->MemImport && cuda_has(b, CU_ATTR_FD) ? GPU_VMM_SHARED
								       : GPU_VMM_PRIVATE;
}

/* ---- what runs in streams */

static int cuda_memcpy(
	const struct gpu_state *state, void *dst, const void *src, size_t n, void *stream)
{
	return cuda_own(state)->MemcpyAsync(dst, (void *)(uintptr_t)src, n, stream);
}

static int cuda_memset(const struct gpu_state *state, void *dst, int byte, size_t n, void *stream)
{
	return cuda_own(state)->MemsetD8Async(dst, (unsigned char)byte, n, stream);
}

static int cuda_host_func(
	const struct gpu_state *state, void *stream, void (*fn)(void *arg), void *arg)
{
	return cuda_own(state)->LaunchHostFunc(stream, fn, arg);
}

static int cuda_word_put(const struct gpu_state *state, void *stream, void *word, uint64_t value)
{
	return cuda_own(state)->StreamWriteValue(stream, word, value, CU_WRITE_DEFAULT);
}

static int cuda_word_await(const struct gpu_state *state, void *stream, void *word, uint64_t value)
{
	return cuda_own(state)->StreamWaitValue(stream, word, value, CU_WAIT_GEQ);
}

/* A kernel of an image whose GPUs have them waits by itself for what is ahead of it (kernel_behind). */
static int cuda_launch_early(const struct gpu_bound *b, void *function, unsigned grid,
	unsigned block, void *stream, void **extra)
{
	struct cuda_launch_attribute early = { .id = CU_LAUNCH_EARLY };
	const int on = 1;
	cu_launch launch = { .grid = { grid, 1, 1 },
		.block = { block, 1, 1 },
		.stream = stream,
		.attributes = &early,
		.count = 1 };

	memcpy(early.value, &on, sizeof(on));
	return cuda_own(b->state)->LaunchKernelEx(&launch, function, NULL, extra);
}

static bool cuda_launches_early(const struct gpu_bound *b)
{
	const struct device_image *image = b->device->kept.image;

	return cuda_own(b->state)->LaunchKernelEx && image && !strncmp(image->arch, "sm_", 3) &&
		strtol(image->arch + 3, NULL, 10) >= 90;
}

/* The second version: the first has to be asked for when the driver's module is loaded. */
static bool cuda_has_words(const struct gpu_state *state)
{
	return cuda_own(state)->StreamWriteValue && cuda_own(state)->StreamWaitValue;
}

const struct gpu_vendor cuda_vendor = {
	.root = &cuda,
	.state_size = sizeof(struct cuda_state),
	.name = "cuda",
	.kind = "driver",
	.product = "NVIDIA driver",
	.whole_units = true,
	.variable = "SPMT_CUDA_LIB",
	.visible = "CUDA_VISIBLE_DEVICES",
	.no_vmm = "cannot back ranges on demand",
	.no_export = ": neither memory of cuMemAlloc nor of cuMemCreate for descriptors",
	.libraries = cuda_libraries,
	.library_count = ARRAY_SIZE(cuda_libraries),
	.symbols = cuda_symbols,
	.symbol_count = ARRAY_SIZE(cuda_symbols),
	.attr_units = CU_ATTR_UNITS,
	.attr_words = CU_ATTR_WORDS,
	.p2p_access = CU_P2P_ACCESS,
	.p2p_atomics = CU_P2P_ATOMICS,
	.host_flags = CU_HOST_PORTABLE | CU_HOST_MAPPED,
	.memory_type = CU_PINNED,
	.launch_end = CU_LAUNCH_END,
	.legacy = DEVICE_STREAM_LEGACY,
	.streams_know = true,
	.contexts = &cuda_contexts,
	.find = cuda_find,
	.start = cuda_start,
	.find_device = cuda_find_device,
	.texts = cuda_texts,
	.push = cuda_push,
	.pop = cuda_pop,
	.enter = cuda_push_saved,
	.leave = cuda_pop_saved,
	.peer_enable = cuda_enable_peer,
	.ask_vmm = cuda_ask_vmm,
	.copy = cuda_memcpy,
	.fill = cuda_memset,
	.call = cuda_host_func,
	.launches_early = cuda_launches_early,
	.launch_early = cuda_launch_early,
	.word_write = cuda_word_put,
	.word_wait = cuda_word_await,
	.has_words = cuda_has_words,
};

/* ---- the backend */

static int cuda_load(void)
{
	return gpu_load(&cuda_vendor);
}

#define CUDA_OP(...) DEFINE_GPU_OP(cuda, __VA_ARGS__)
#define CUDA_VOID_OP(...) DEFINE_GPU_VOID_OP(cuda, __VA_ARGS__)
GPU_OPS(CUDA_OP)
GPU_VOID_OPS(CUDA_VOID_OP)

static const struct device_vmm_ops cuda_vmm_ops = GPU_VMM_OPS(cuda);
static const struct device_ipc_ops cuda_ipc_ops = GPU_IPC_OPS(cuda);
static const struct device_dmabuf_ops cuda_dmabuf_ops = GPU_DMABUF_OPS(cuda);
static const struct device_word_ops cuda_word_ops = GPU_WORD_OPS(cuda);
static const struct device_hold_ops cuda_hold_ops = GPU_HOLD_OPS(cuda);

const struct backend backend_cuda = {
	.name = "cuda",
	.traits = DEVICE_WHOLE_UNITS | DEVICE_OPEN_STREAMS,
	.store_threshold = 1 << 20,
	.load = cuda_load,
	GPU_TABLE(cuda),
	.vmm = &cuda_vmm_ops,
	.ipc = &cuda_ipc_ops,
	.dmabuf = &cuda_dmabuf_ops,
	.words = &cuda_word_ops,
	.hold = &cuda_hold_ops,
	.multicast = &cuda_multicast_ops,
};

/* SPDX-License-Identifier: MIT */
/* AMD through libamdhip64, versions 5 to 7: what it has of its own. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "abi_hip_calls.h"
#include "bind.h"
#include "ops.h"
#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/status.h"
#include "vmm.h"

static struct gpu_root hip;

struct hip_state {
	struct gpu_state gpu; /* the first member */
	struct hip_api api;
	int version; /* of the runtime, as HIP_VERSION_OF */
};

static const struct hip_state *hip_own(const struct gpu_state *state)
{
	return (const struct hip_state *)state;
}

#define X(field, symbol, args) { #symbol, offsetof(struct hip_api, field), false },
#define Y(field, symbol, args) { #symbol, offsetof(struct hip_api, field), true },
static const struct vendor_symbol hip_symbols[] = { HIP_REQUIRED(X) HIP_TEXTS(X) HIP_OPTIONAL(Y)
		HIP_YOUNG(Y) HIP_PROPS(Y) };
#undef X
#undef Y

static const char *const hip_libraries[] = { "libamdhip64.so.7", "libamdhip64.so.6",
	"libamdhip64.so.5" };

static int hip_find(struct gpu_state *state)
{
	struct hip_api *api = &((struct hip_state *)state)->api;
	const struct env *env;
	int rc = env_get(&env);

	if (rc < 0)
		return rc;
	/* Not even loaded where there is no AMD driver: the runtime leaks a little a thread even
	   then. */
	if (!env->hip_lib && access("/dev/kfd", R_OK | W_OK))
		return fail(-ENODEV,
			"hip: no devices: /dev/kfd (the driver amdgpu, the group render): %s",
			strerror(errno));
	rc = gpu_bind_library(&hip_vendor, env->hip_lib, api);
	if (rc < 0)
		return rc;
#define X(field) state->calls.field = api->field;
	GPU_CALLS(X)
#undef X
	state->calls.MemRangeHandle = api->MemRangeHandle;
	return 0;
}

/* Lazy peer access is 0 up to version 5, which refuses anything else; 1 from 6 on, which refuse 0.
   Up to 7.0 a descriptor to import is named by its address, from 7.1 on by itself. */
static int hip_start(struct gpu_state *state, int *count)
{
	struct hip_state *s = (struct hip_state *)state;
	int r = s->api.Init(0);

	if (r == HIP_OK)
		r = s->api.RuntimeGetVersion(&s->version);
	if (r == HIP_OK)
		r = s->api.DeviceGetCount(count);
	state->ipc_flags = s->version >= HIP_VERSION_OF(6, 0);
	state->import_by_address = s->version < HIP_VERSION_OF(7, 1);
	return r;
}

/* The architecture is the one field of the properties that no attribute gives; the struct and its
   symbol have changed with version 6. */
static int hip_find_device(struct gpu_state *state, struct gpu_device *d)
{
	const struct hip_api *api = &hip_own(state)->api;
	char props[HIP_PROPS_SIZE] = "";
	int dev = d->kept.dev;
	size_t at = 0;

	if (api->GetPropsR0600 && api->GetPropsR0600(props, dev) == HIP_OK)
		at = HIP_ARCH_AT_R0600;
	else if (!api->GetPropsR0600 && api->GetProps && api->GetProps(props, dev) == HIP_OK)
		at = HIP_ARCH_AT_OLD;
	props[at + sizeof(d->kept.arch) - 1] = '\0';
	/* gfx942:sramecc+:xnack-: an image without features runs with any. */
	snprintf(d->kept.arch, sizeof(d->kept.arch), "%.*s", (int)strcspn(props + at, ":"),
		at ? props + at : "unknown");
	d->handle = dev;
	return HIP_OK;
}

static void hip_texts(
	const struct gpu_state *state, int result, const char **name, const char **text)
{
	const struct hip_api *api = &hip_own(state)->api;

	if (!api->GetErrorName || !api->GetErrorString)
		return;
	*name = api->GetErrorName(result);
	*text = api->GetErrorString(result);
}

/* ---- the thread's device and last error */

static int hip_peek(const struct gpu_state *state)
{
	return hip_own(state)->api.PeekAtLastError();
}

/*
 * Up to version 6 every call overwrites the thread's last error, with success too. What can be had
 * by a harmless wrong call is put back that way. Later versions keep an error until it is asked
 * for, and then only our own are cleared.
 */
static void hip_put_back(const struct gpu_state *state, int want)
{
	const struct hip_api *api = &hip_own(state)->api;

	if (LIKELY(api->PeekAtLastError() == want))
		return;
	api->GetLastError();
	if (want == HIP_INVALID_VALUE)
		api->GetDevice(NULL);
	else if (want == HIP_INVALID_DEVICE)
		api->SetDevice(-1);
}

static const struct gpu_errors hip_errors = { .peek = hip_peek, .put_back = hip_put_back };

static int hip_make_current(struct gpu_bound *b)
{
	const struct hip_api *api = &hip_own(b->state)->api;

	if (api->GetDevice(&b->was) != HIP_OK)
		b->was = -1;
	return b->was == b->dev ? HIP_OK : api->SetDevice(b->dev);
}

static void hip_make_former(const struct gpu_bound *b)
{
	if (b->was >= 0 && b->was != b->dev)
		hip_own(b->state)->api.SetDevice(b->was);
}

static int hip_set_saved(
	const struct gpu_state *state, struct gpu_device *d, struct device_saved *saved)
{
	const struct hip_api *api = &hip_own(state)->api;

	if (api->GetDevice(&saved->ordinal) != HIP_OK)
		saved->ordinal = -1;
	return api->SetDevice(d->handle);
}

static void hip_reset_saved(const struct gpu_state *state, const struct device_saved *saved)
{
	if (saved->ordinal >= 0)
		hip_own(state)->api.SetDevice(saved->ordinal);
}

static int hip_enable_peer(const struct gpu_bound *b, const struct gpu_device *peer)
{
	return hip_own(b->state)->api.DeviceEnablePeerAccess(peer->handle, 0);
}

/* ---- memory */

/*
 * Uncached where the runtime knows it, else fine-grained: only of these kinds do a peer's loads see
 * stores while both kernels run. Version 5.2 refuses uncached as a bad value.
 */
static int hip_malloc_symmetric(const struct gpu_state *state, size_t size, void **ptr)
{
	const struct hip_api *api = &hip_own(state)->api;
	int r = api->ExtMallocWithFlags(ptr, size, HIP_UNCACHED);

	if (r == HIP_INVALID_VALUE || r == HIP_NOT_SUPPORTED)
		r = api->ExtMallocWithFlags(ptr, size, HIP_FINE_GRAINED);
	return r;
}

static bool hip_has_calls(const struct gpu_calls *c)
{
	return c->MemGranularity && c->MemAddressReserve && c->MemAddressFree && c->MemCreate &&
		c->MemRelease && c->MemMap && c->MemUnmap && c->MemSetAccess && c->MemExport &&
		c->MemImport;
}

/*
 * Before 6.2 the calls are there and do not work: reserve gives success and NULL. Later ones are
 * asked for one block of uncached memory; where there is none (before 7.2) what they give is
 * cached, and unfit for a symmetric heap.
 */
static enum gpu_vmm hip_ask_vmm(const struct gpu_bound *b)
{
	struct gpu_memory_prop prop = gpu_memory_prop(b, true);
	hip_memory memory;
	size_t size;
	int can = 0;

	if (hip_own(b->state)->version < HIP_VERSION_OF(6, 2) || !hip_has_calls(b->calls))
		return GPU_VMM_NO;
	if (b->calls->DeviceGetAttribute(&can, HIP_ATTR_VMM, b->dev) != HIP_OK || !can)
		return GPU_VMM_NO;
	if (b->calls->MemGranularity(&size, &prop, HIP_GRANULARITY_MINIMUM) != HIP_OK)
		return GPU_VMM_NO;
	if (b->calls->MemCreate(&memory, size, &prop, 0) != HIP_OK)
		return GPU_VMM_NO;
	b->calls->MemRelease(memory);
	return GPU_VMM_SHARED;
}

/* ---- what runs in streams */

static int hip_memcpy(
	const struct gpu_state *state, void *dst, const void *src, size_t n, void *stream)
{
	return hip_own(state)->api.MemcpyAsync(dst, src, n, HIP_COPY_ANY, stream);
}

static int hip_memset(const struct gpu_state *state, void *dst, int byte, size_t n, void *stream)
{
	return hip_own(state)->api.MemsetAsync(dst, (unsigned char)byte, n, stream);
}

/* For 5.2, which declares hipLaunchHostFunc and does not have it. */
struct callback {
	void (*fn)(void *arg);
	void *arg;
};

static void run_callback(hip_stream stream, hip_result status, void *arg)
{
	struct callback *c = arg;

	(void)stream;
	(void)status;
	c->fn(c->arg);
	mem_free(c);
}

static int add_callback(const struct hip_api *api, void *stream, void (*fn)(void *arg), void *arg)
{
	struct callback *c = mem_calloc(1, sizeof(*c));
	int r;

	if (!c)
		return HIP_NO_MEMORY;
	*c = (struct callback){ fn, arg };
	r = api->StreamAddCallback(stream, run_callback, c, 0);
	if (r != HIP_OK)
		mem_free(c);
	return r;
}

static int hip_host_func(
	const struct gpu_state *state, void *stream, void (*fn)(void *arg), void *arg)
{
	const struct hip_api *api = &hip_own(state)->api;

	return api->LaunchHostFunc ? api->LaunchHostFunc(stream, fn, arg)
				   : add_callback(api, stream, fn, arg);
}

static int hip_word_put(const struct gpu_state *state, void *stream, void *word, uint64_t value)
{
	return hip_own(state)->api.StreamWriteValue(stream, word, value, 0);
}

static int hip_word_await(const struct gpu_state *state, void *stream, void *word, uint64_t value)
{
	return hip_own(state)->api.StreamWaitValue(stream, word, value, HIP_WAIT_GTE, UINT64_MAX);
}

static bool hip_has_words(const struct gpu_state *state)
{
	return hip_own(state)->api.StreamWriteValue && hip_own(state)->api.StreamWaitValue;
}

/* StreamGetId is left out: it is of 7.1, and hip does not say that a number never comes again. */
const struct gpu_vendor hip_vendor = {
	.root = &hip,
	.state_size = sizeof(struct hip_state),
	.name = "hip",
	.kind = "runtime",
	.product = "HIP runtime",
	.variable = "SPMT_HIP_LIB",
	.visible = "HIP_VISIBLE_DEVICES",
	.no_vmm = "backs no ranges with uncached memory",
	.no_export = "",
	.libraries = hip_libraries,
	.library_count = ARRAY_SIZE(hip_libraries),
	.symbols = hip_symbols,
	.symbol_count = ARRAY_SIZE(hip_symbols),
	.attr_units = HIP_ATTR_UNITS,
	.attr_words = HIP_ATTR_WORDS,
	.p2p_access = HIP_P2P_ACCESS,
	.p2p_atomics = HIP_P2P_ATOMICS,
	.host_flags = HIP_HOST_PORTABLE | HIP_HOST_MAPPED | HIP_HOST_COHERENT,
	.memory_type = HIP_MEMORY_UNCACHED,
	.launch_end = HIP_LAUNCH_END,
	.legacy = NULL,
	.reserve_needs_vmm = true,
	.one_mapping_a_time = true,
	.uuid_may_lack = true,
	.errors = &hip_errors,
	.find = hip_find,
	.start = hip_start,
	.find_device = hip_find_device,
	.texts = hip_texts,
	.push = hip_make_current,
	.pop = hip_make_former,
	.enter = hip_set_saved,
	.leave = hip_reset_saved,
	.peer_enable = hip_enable_peer,
	.alloc_symmetric = hip_malloc_symmetric,
	.ask_vmm = hip_ask_vmm,
	.copy = hip_memcpy,
	.fill = hip_memset,
	.call = hip_host_func,
	.word_write = hip_word_put,
	.word_wait = hip_word_await,
	.has_words = hip_has_words,
};

/* ---- the backend */

static int hip_load(void)
{
	return gpu_load(&hip_vendor);
}

#define HIP_OP(...) DEFINE_GPU_OP(hip, __VA_ARGS__)
#define HIP_VOID_OP(...) DEFINE_GPU_VOID_OP(hip, __VA_ARGS__)
GPU_OPS(HIP_OP)
GPU_VOID_OPS(HIP_VOID_OP)

static const struct device_vmm_ops hip_vmm_ops = GPU_VMM_OPS(hip);
static const struct device_ipc_ops hip_ipc_ops = GPU_IPC_OPS(hip);
static const struct device_dmabuf_ops hip_dmabuf_ops = GPU_DMABUF_OPS(hip);
static const struct device_word_ops hip_word_ops = GPU_WORD_OPS(hip);
static const struct device_hold_ops hip_hold_ops = GPU_HOLD_OPS(hip);

const struct backend backend_hip = {
	.name = "hip",
	.traits = 0,
	.store_threshold = 1 << 20,
	.load = hip_load,
	GPU_TABLE(hip),
	.vmm = &hip_vmm_ops,
	.ipc = &hip_ipc_ops,
	.sdma = &hip_sdma_ops,
	.dmabuf = &hip_dmabuf_ops,
	.words = &hip_word_ops,
	.hold = &hip_hold_ops,
};

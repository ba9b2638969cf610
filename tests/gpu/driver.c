/* SPDX-License-Identifier: MIT */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmt.h"
#include "src/device/gpu/abi_cuda.h"
#include "src/device/gpu/abi_hip.h"
#include "src/device/gpu/vendor.h"
#include "src/device/host/host.h"

enum { DEVICES = 16, KERNELS = 16 };

/* One table for both vendors: the calls that matter here have the same shape in both. */
struct calls {
	int (*load)(void **module, const void *image);
	int (*find)(void **function, void *module, const char *name);
	int (*ready)(void *function); /* CUDA, from 12.3 on */
	int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
		unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
		void **extra);
	int (*capture)(void *stream, int mode);
	int (*capture_end)(void *stream, void **graph);
	int (*instantiate)(void **exec, void *graph, unsigned long long flags);
	int (*run)(void *exec, void *stream);
	int (*drop_exec)(void *exec);
	int (*drop)(void *graph);
	int (*memory)(size_t *unused, size_t *total);
	int (*get)(int *dev);	    /* CUDA: the device of the current context */
	int (*set)(int dev);	    /* HIP */
	int (*set_context)(void *); /* CUDA */
	int (*retain)(void **context, int dev);
	int (*push)(void *context);
	int (*pop)(void **context);
	int (*top)(void **context);
	int (*peek)(void); /* HIP: the thread's last error */
	int (*take)(void);
	int (*alloc)(void **ptr, size_t size);
	int (*version)(int *version);
	int (*init)(unsigned flags);
};

#define ROW(field, needed, cuda, hip)                  \
	{                                              \
		offsetof(struct calls, field), needed, \
		{                                      \
			cuda, hip                      \
		}                                      \
	}
static const struct {
	size_t offset;
	bool needed; /* where it has a name */
	const char *name[2];
} rows[] = {
	ROW(load, true, "cuModuleLoadData", "hipModuleLoadData"),
	ROW(find, true, "cuModuleGetFunction", "hipModuleGetFunction"),
	ROW(ready, false, "cuFuncLoad", NULL),
	ROW(launch, true, "cuLaunchKernel", "hipModuleLaunchKernel"),
	ROW(capture, false, "cuStreamBeginCapture_v2", "hipStreamBeginCapture"),
	ROW(capture_end, false, "cuStreamEndCapture", "hipStreamEndCapture"),
	ROW(instantiate, false, "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags"),
	ROW(run, false, "cuGraphLaunch", "hipGraphLaunch"),
	ROW(drop_exec, false, "cuGraphExecDestroy", "hipGraphExecDestroy"),
	ROW(drop, false, "cuGraphDestroy", "hipGraphDestroy"),
	ROW(memory, false, "cuMemGetInfo_v2", "hipMemGetInfo"),
	ROW(get, true, "cuCtxGetDevice", "hipGetDevice"),
	ROW(set, true, NULL, "hipSetDevice"),
	ROW(set_context, true, "cuCtxSetCurrent", NULL),
	ROW(retain, true, "cuDevicePrimaryCtxRetain", NULL),
	ROW(push, true, "cuCtxPushCurrent_v2", NULL),
	ROW(pop, true, "cuCtxPopCurrent_v2", NULL),
	ROW(top, true, "cuCtxGetCurrent", NULL),
	ROW(peek, true, NULL, "hipPeekAtLastError"),
	ROW(take, true, NULL, "hipGetLastError"),
	ROW(alloc, true, NULL, "hipMalloc"),
	ROW(version, true, NULL, "hipRuntimeGetVersion"),
	ROW(init, true, "cuInit", "hipInit"),
};

static struct {
	const struct backend *b;
	bool host, hip;
	char why_not[VENDOR_REASON];
	struct calls api;
	void *contexts[DEVICES];
	const struct test_kernel *kernels[KERNELS];
	void *functions[DEVICES][KERNELS];
} driver;

static bool bind_calls(const char **reason)
{
	static const char *const cuda[] = { "libcuda.so.1" };
	static const char *const hip[] = { "libamdhip64.so.7", "libamdhip64.so.6",
		"libamdhip64.so.5", "libamdhip64.so" };
	void *library;
	int rc = driver.hip ? vendor_open(getenv("SPMT_HIP_LIB"), hip, ARRAY_SIZE(hip),
				      driver.why_not, &library)
			    : vendor_open(getenv("SPMT_CUDA_LIB"), cuda, ARRAY_SIZE(cuda),
				      driver.why_not, &library);

	*reason = driver.why_not;
	if (rc)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *name = rows[i].name[driver.hip];
		void *address = name ? dlsym(library, name) : NULL;

		if (name && !address && rows[i].needed) {
			snprintf(driver.why_not, sizeof(driver.why_not), "the driver lacks %s",
				name);
			return false;
		}
		memcpy((char *)&driver.api + rows[i].offset, &address, sizeof(address));
	}
	return true;
}

static int load_kernel(int dev, size_t k, const char *arch)
{
	const struct test_kernel *kernel = driver.kernels[k];
	const struct device_image *best[2];
	size_t n = vendor_pick(kernel->images, *kernel->image_count, arch, best);
	void *module = NULL, *function = NULL;
	int rc = -1;

	for (size_t i = 0; i < n && rc; i++)
		rc = driver.api.load(&module, best[i]->data);
	if (!rc)
		rc = driver.api.find(&function, module, kernel->name);
	if (!rc && driver.api.ready)
		rc = driver.api.ready(function);
	driver.functions[dev][k] = function;
	return rc;
}

static bool open_device(int dev, const char **reason)
{
	struct device_desc desc;

	*reason = "the device cannot be described";
	if (driver.b->describe(dev, &desc))
		return false;
	*reason = "no context";
	if (driver.api.retain && driver.api.retain(&driver.contexts[dev], dev))
		return false;
	if (driver_make_current(dev))
		return false;
	for (size_t k = 0; driver.kernels[k]; k++)
		if (load_kernel(dev, k, desc.arch)) {
			*reason = *driver.kernels[k]->image_count
				? "a test's kernel does not load"
				: "the tests were built without device images (clang-19)";
			return false;
		}
	return true;
}

bool driver_open(const struct backend *b, unsigned devices,
	const struct test_kernel *const *kernels, const char **reason)
{
	driver.b = b;
	driver.host = b == &backend_host;
	driver.hip = b == &backend_hip;
	for (size_t k = 0; kernels[k] && k + 1 < KERNELS; k++)
		driver.kernels[k] = kernels[k];
	if (driver.host)
		return true;
	*reason = "too many devices";
	if (devices >> DEVICES || !bind_calls(reason))
		return false;
	*reason = "the driver does not start";
	if (driver.api.init(0))
		return false;
	for (int dev = 0; dev < DEVICES; dev++)
		if (devices >> dev & 1 && !open_device(dev, reason))
			return false;
	driver_make_current(-1);
	return true;
}

/* In the device's context, without a trace on the thread. */
static int inside(int dev, struct device_saved *saved)
{
	return driver.b->enter(dev, saved) ? -1 : 0;
}

static int outside(const struct device_saved *saved, int rc)
{
	driver.b->leave(saved);
	return rc;
}

int driver_launch(int dev, const struct test_kernel *k, unsigned grid, unsigned block,
	const void *args, size_t size, device_stream s)
{
	void *extra[] = { CU_LAUNCH_BUFFER, (void *)(uintptr_t)args, CU_LAUNCH_SIZE, &size,
		driver.hip ? HIP_LAUNCH_END : CU_LAUNCH_END };
	struct device_saved saved;
	size_t at = 0;

	while (driver.kernels[at] && driver.kernels[at] != k)
		at++;
	if (!driver.kernels[at] || inside(dev, &saved))
		return -1;
	return outside(&saved,
		driver.api.launch(
			driver.functions[dev][at], grid, 1, 1, block, 1, 1, 0, s, NULL, extra));
}

bool driver_graphs(void)
{
	return driver.host ||
		(driver.api.capture && driver.api.capture_end && driver.api.instantiate &&
			driver.api.run && driver.api.drop_exec && driver.api.drop);
}

int driver_capture_begin(int dev, device_stream s, enum driver_capture mode)
{
	struct device_saved saved;

	if (driver.host)
		return spmt_host_graph_begin(s);
	return inside(dev, &saved) ? -1 : outside(&saved, driver.api.capture(s, (int)mode));
}

int driver_capture_end(int dev, device_stream s, void **graph)
{
	struct device_saved saved;

	if (driver.host)
		return spmt_host_graph_end(s, (spmt_host_graph **)graph);
	return inside(dev, &saved) ? -1 : outside(&saved, driver.api.capture_end(s, graph));
}

int driver_graph_make(int dev, void *graph, void **exec)
{
	struct device_saved saved;
	int rc;

	if (driver.host) {
		*exec = graph;
		return 0;
	}
	if (inside(dev, &saved))
		return -1;
	rc = driver.api.instantiate(exec, graph, 0);
	driver.api.drop(graph);
	return outside(&saved, rc);
}

int driver_graph_launch(int dev, void *exec, device_stream s)
{
	struct device_saved saved;

	if (driver.host)
		return spmt_host_graph_launch(exec, s);
	return inside(dev, &saved) ? -1 : outside(&saved, driver.api.run(exec, s));
}

int driver_graph_destroy(int dev, void *exec)
{
	struct device_saved saved;

	if (driver.host)
		return spmt_host_graph_destroy(exec);
	return inside(dev, &saved) ? -1 : outside(&saved, driver.api.drop_exec(exec));
}

int driver_memory(int dev, size_t *unused)
{
	size_t total;
	int was = driver_current(), rc;

	if (driver.host || !driver.api.memory)
		return -1;
	rc = driver_make_current(dev);
	if (!rc)
		rc = driver.api.memory(unused, &total);
	driver_make_current(was);
	return rc;
}

/* Up to version 6 of HIP every call overwrites the last error. */
static void error_again(int error)
{
	if (driver.api.peek() == error)
		return;
	if (error == HIP_INVALID_VALUE)
		driver.api.get(NULL);
	else if (error == HIP_INVALID_DEVICE)
		driver.api.set(-1);
}

int driver_current(void)
{
	int dev = -1, error, rc;

	if (driver.host)
		return spmt_host_get_device();
	error = driver.hip ? driver.api.peek() : 0;
	rc = driver.api.get(&dev);
	if (driver.hip)
		error_again(error);
	return rc ? -1 : dev;
}

int driver_make_current(int dev)
{
	if (driver.host)
		return dev < 0 ? 0 : spmt_host_set_device(dev);
	if (driver.hip)
		return dev < 0 ? 0 : driver.api.set(dev);
	return driver.api.set_context(dev < 0 ? NULL : driver.contexts[dev]);
}

/* ---- what a thread has ------------------------------------------------------------------------ */

int driver_push(int dev)
{
	return driver.api.push ? driver.api.push(driver.contexts[dev]) : 0;
}

static int stack_read(struct driver_thread *t)
{
	const int most = (int)ARRAY_SIZE(t->contexts);
	void *popped;
	int rc = 0;

	while (!rc && t->depth < most) {
		rc = driver.api.top(&t->contexts[t->depth]);
		if (rc || !t->contexts[t->depth])
			break;
		rc = driver.api.pop(&popped);
		t->depth++;
	}
	for (int i = t->depth; i > 0 && !rc; i--)
		rc = driver.api.push(t->contexts[i - 1]);
	return rc;
}

int driver_thread(struct driver_thread *t)
{
	memset(t, 0, sizeof(*t));
	t->device = driver_current();
	t->error = driver.host ? host_peek_error() : driver.hip ? driver.api.peek() : 0;
	return driver.api.top ? stack_read(t) : 0;
}

void driver_clear(void)
{
	void *top = NULL;

	if (driver.host)
		host_get_error();
	else if (driver.hip)
		driver.api.take();
	else
		while (!driver.api.top(&top) && top && !driver.api.set_context(NULL))
			continue;
}

static bool raise_hip(int nth)
{
	int version = 0;
	void *ptr;

	if (nth == 0)
		return driver.api.get(NULL);
	if (nth == 1)
		return driver.api.set(-1);
	return nth == DRIVER_FRAIL && !driver.api.version(&version) && version >= 70000000 &&
		driver.api.alloc(&ptr, (size_t)1 << 50);
}

bool driver_raise(int nth)
{
	if (driver.host)
		return nth == 0 && spmt_host_set_device(-1);
	return driver.hip && raise_hip(nth);
}

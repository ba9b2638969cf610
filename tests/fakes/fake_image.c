/* SPDX-License-Identifier: MIT */
/* Modules, and the library's kernels as the C functions that they also are. */
#include "fake.h"

#include <string.h>

#include "src/kernels/kernels.h"
#include "src/kernels/plan_row.h"
#include "tests/lib/device/kernel_waits.h"

void (*fake_kernel_find(const char *name))(const void *args)
{
	static const struct kernel *const kernels[] = { &kernel_copy, &kernel_signal, &kernel_wait,
		&kernel_atomic, &kernel_barrier, &kernel_collective, &kernel_collective_v,
		&kernel_stage, &kernel_plan, &kernel_plan_row, &kernel_give,
#define X(name) &kernel_ll_##name, &kernel_ll_brief_##name,
		COLL_LL_KERNELS(X)
#undef X
#define X(name) &kernel_twoshot_##name, &kernel_ll_abreast_##name,
			COLL_FOLD_KERNELS(X)
#undef X
#define X(name) &kernel_push2_##name,
				COLL_PUSH2_KERNELS(X)
#undef X
#define X(name) &kernel_ll12_odd_##name, &kernel_ll12_pair_##name, &kernel_ll12_##name,
					COLL_LL12_KERNELS(X)
#undef X
#define X(name) &kernel_plan_packets_##name, &kernel_plan_packets_brief_##name,
						PLAN_PACKETS_KERNELS(X)
#undef X
	};
	size_t i;

	for (i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		if (!strcmp(kernels[i]->name, name))
			return kernels[i]->host;
	}
	return NULL;
}

/* ---- modules: from a table, as a device left open at the end of a program is no leak of the stand-in's */

struct fake_module {
	int dev;
	bool taken;
};

enum { MODULES = 4096 };
static struct fake_module modules[MODULES]; /* under fake_lock */

struct fake_module *fake_module_new(int dev)
{
	static size_t next;
	struct fake_module *m = NULL;

	fake_drain(dev);
	pthread_mutex_lock(&fake_lock);
	for (size_t i = 0; i < MODULES && !m; i++) {
		m = &modules[next++ % MODULES];
		if (m->taken)
			m = NULL;
	}
	if (m) {
		*m = (struct fake_module){ .dev = dev, .taken = true };
		fake_count.modules++;
	}
	pthread_mutex_unlock(&fake_lock);
	return m;
}

void fake_module_end(struct fake_module *m)
{
	fake_drain(m->dev);
	pthread_mutex_lock(&fake_lock);
	fake_count.modules--;
	m->taken = false;
	pthread_mutex_unlock(&fake_lock);
}

void fake_modules_end(int dev)
{
	for (size_t i = 0; i < MODULES; i++) {
		if (modules[i].taken && modules[i].dev == dev)
			fake_module_end(&modules[i]);
	}
}

/* ---- waits in kernels: a GPU has a clock, and its kernels do not hold up this machine's CPUs */

/* Peers of a broken comm end by themselves. */
static int pause_broken_here(const struct spmt_view *v, struct spmtd_pause *p)
{
	struct timespec slice = { .tv_nsec = 20000 };

	(void)v;
	if (!p->n++)
		p->begin = kernel_clock_ns();
	nanosleep(&slice, NULL);
	return kernel_clock_ns() - p->begin > 10000000000;
}

static const struct spmtd_host waits = {
	.pause = kernel_pause,
	.resume = kernel_resume,
	.wake = kernel_wake,
	.pause_broken = pause_broken_here,
};

/* Every kernel's arguments begin with a view. */
static void run_kernel(struct fake_op *op)
{
	struct spmt_view *view = (struct spmt_view *)(void *)op->args;

	view->host = &waits;
	fake_work(true);
	op->kernel(op->args);
	fake_work(false);
}

bool fake_launch(struct fake_stream *s, void *function, const void *args, size_t size)
{
	struct fake_op op = { .run = run_kernel };

	memcpy(op.args, args, size);
	memcpy(&op.kernel, &function, sizeof(function));
	return fake_stream_push(s, &op);
}

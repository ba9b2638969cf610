/* SPDX-License-Identifier: MIT */
#include "backend_here.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/spmt.h"
#include "src/device/device.h"

enum { OPENING_S = 40 };

bool on_host(void)
{
	const char *name = getenv("SPMT_BACKEND");

	return !name || !*name || strcmp(name, backend_host.name) == 0;
}

static int told(void)
{
	const char *devices = on_host() ? NULL : getenv("SPMT_TEST_DEVICES");

	return devices ? atoi(devices) : 0;
}

int devices_here(void)
{
	return told() > 0 ? told() : INT_MAX;
}

int ranks_here(int n)
{
	return n < devices_here() ? n : devices_here();
}

int opening_s(void)
{
	return on_host() || getenv("SPMT_FAKE_DEVICES") ? 0 : OPENING_S;
}

int device_of(int rank)
{
	return told() > 0 && rank >= 0 ? rank % told() : -1;
}

bool devices_fit(const int *devices, int n)
{
	for (int i = 0; i < n; i++)
		if (devices[i] >= devices_here())
			return false;
	return true;
}

bool ranges_here(void)
{
	const struct backend *b;
	int status = 0;
	size_t bytes;
	pid_t child;

	if (on_host())
		return true;
	child = fork();
	if (!child) /* what is not said to be missing is there, or the test finds out */
		_exit(!device_select(NULL, &b) &&
			(!b->vmm || b->vmm->granularity(0, &bytes) == SPMT_ERR_UNSUPPORTED));
	return child < 0 || waitpid(child, &status, 0) != child || status != 1 << 8;
}

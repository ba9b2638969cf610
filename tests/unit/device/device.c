/* SPDX-License-Identifier: MIT */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "src/base/env.h"
#include "src/base/status.h"
#include "src/device/device.h"
#include "src/device/guard.h"
#include "src/device/host/host.h"

/* Other backends find no runtime here, also on a machine that has one. */
static void no_vendors(void)
{
	setenv("SPMT_HIP_LIB", "/nonexistent/libamdhip64.so", 1);
	setenv("SPMT_CUDA_LIB", "/nonexistent/libcuda.so", 1);
	unsetenv("SPMT_BACKEND");
}

Test(device, rows_are_in_order_of_preference)
{
	cr_assert_eq(device_backend(0), &backend_hip);
	cr_assert_eq(device_backend(1), &backend_cuda);
	cr_assert_eq(device_backend(2), &backend_host);
	cr_assert_null(device_backend(3));
	cr_assert_null(device_backend(SIZE_MAX));
}

static bool all_set(const void *table, size_t size)
{
	const void *const *member = table;

	for (size_t i = 0; i < size / sizeof(*member); i++)
		if (!member[i])
			return false;
	return true;
}

Test(device, the_host_table_has_no_hole)
{
	const struct backend *b = &backend_host;
	size_t first = offsetof(struct backend, load), end = offsetof(struct backend, dmabuf);

	cr_assert(all_set((const char *)b + first, end - first));
	cr_assert_null(b->dmabuf); /* the CPU's addresses do */
	cr_assert_null(b->hold);   /* it binds nothing */
	cr_assert(all_set(b->sdma, sizeof(*b->sdma)));
	cr_assert(all_set(b->vmm, sizeof(*b->vmm)));
	cr_assert(all_set(b->ipc, sizeof(*b->ipc)));
	cr_assert_str_eq(b->name, "host");
	cr_assert_eq(b->traits, DEVICE_HOST_ACCESS | DEVICE_WHOLE_UNITS);
	cr_assert_gt(b->store_threshold, 0);
}

Test(device, by_name)
{
	const struct backend *b = NULL;

	no_vendors();
	cr_assert_eq(device_select("host", &b), 0);
	cr_assert_eq(b, &backend_host);
}

Test(device, a_name_with_no_devices_is_still_selected)
{
	const struct backend *b = NULL;
	int n = -1;

	setenv("SPMT_HOST_DEVICES", "0", 1);
	cr_assert_eq(device_select("host", &b), 0);
	cr_assert_eq(b->count(&n), 0);
	cr_assert_eq(n, 0);
}

Test(device, an_unknown_name_is_named)
{
	const struct backend *b = NULL;

	cr_assert_eq(device_select("abacus", &b), -EINVAL);
	cr_assert_null(b);
	cr_assert_not_null(strstr(status_sentence(), "\"abacus\""));
	cr_assert_not_null(strstr(status_sentence(), "SPMT_BACKEND"));
}

Test(device, a_backend_that_does_not_load_is_an_error_by_name)
{
	const struct backend *b = NULL;

	no_vendors();
	cr_assert_lt(device_select("cuda", &b), 0);
	cr_assert_null(b);
	cr_assert_not_null(strstr(status_sentence(), "cuda"));
}

Test(device, the_environment_names_one)
{
	const struct backend *b = NULL;

	setenv("SPMT_BACKEND", "host", 1);
	cr_assert_eq(device_select(NULL, &b), 0);
	cr_assert_eq(b, &backend_host);
}

Test(device, the_environment_names_an_unknown_one)
{
	const struct backend *b = NULL;

	setenv("SPMT_BACKEND", "abacus", 1);
	cr_assert_eq(device_select(NULL, &b), -EINVAL);
	cr_assert_null(b);
}

Test(device, host_is_what_is_left)
{
	const struct backend *b = NULL;

	no_vendors();
	cr_assert_eq(device_select(NULL, &b), 0);
	cr_assert_eq(b, &backend_host);
}

Test(device, nothing_left_says_why_for_each)
{
	const struct backend *b = NULL;

	no_vendors();
	setenv("SPMT_HOST_DEVICES", "0", 1);
	cr_assert_eq(device_select(NULL, &b), -ENODEV);
	cr_assert_null(b);
	cr_expect_not_null(strstr(status_sentence(), "; hip: "), "%s", status_sentence());
	cr_expect_not_null(strstr(status_sentence(), "; cuda: "), "%s", status_sentence());
	cr_expect_not_null(strstr(status_sentence(), "; host: 0 devices"), "%s", status_sentence());
}

/* It may pass, and the GPUs that come before the host's devices are there all the same. */
Test(device, a_shortage_passes_no_backend_over)
{
	const struct backend *b = NULL;
	const struct env *env;
	struct rlimit none;

	if (SANITIZE_ADDRESS)
		cr_skip_test("a sanitizer has more address space than can be left");
	no_vendors();
	cr_assert_eq(env_get(&env), 0);
	cr_assert_eq(getrlimit(RLIMIT_AS, &none), 0);
	none.rlim_cur = 0;
	cr_assert_eq(setrlimit(RLIMIT_AS, &none), 0);
	cr_expect_eq(device_select(NULL, &b), -ENOMEM);
	cr_expect_not_null(strstr(status_sentence(), "no memory"), "%s", status_sentence());
	cr_expect_null(b);
}

Test(device, guards_nest_and_restore)
{
	struct guard outer, inner;

	cr_assert_eq(host_set_device(5), 0);
	cr_assert_eq(guard_enter(&outer, &backend_host, 3), 0);
	cr_assert_eq(host_get_device(), 3);
	cr_assert_eq(guard_enter(&inner, &backend_host, 2), 0);
	cr_assert_eq(host_get_device(), 2);
	guard_leave(&inner);
	cr_assert_eq(host_get_device(), 3);
	guard_leave(&inner);
	cr_assert_eq(host_get_device(), 3);
	guard_leave(&outer);
	cr_assert_eq(host_get_device(), 5);
}

Test(device, a_guard_that_failed_undoes_nothing)
{
	struct guard g;

	cr_assert_eq(host_set_device(5), 0);
	cr_assert_eq(guard_enter(&g, &backend_host, 8), -ENODEV);
	cr_assert_eq(host_get_device(), 5);
	cr_assert_eq(host_peek_error(), 0);
	guard_leave(&g);
	cr_assert_eq(host_get_device(), 5);
}

Test(device, a_guard_puts_the_sticky_error_back)
{
	struct guard g;

	cr_assert_eq(host_set_device(99), -ENODEV);
	cr_assert_eq(guard_enter(&g, &backend_host, 1), 0);
	cr_assert_eq(host_get_error(), -ENODEV);
	guard_leave(&g);
	cr_assert_eq(host_peek_error(), -ENODEV);
}

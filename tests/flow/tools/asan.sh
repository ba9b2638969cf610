#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A user's program under AddressSanitizer with the library as it is installed, which was not built so: with SPMT_CHECK=1 a store by
# a kernel of the program behind a block, or to one that was freed, is reported where it happens.
. "$(dirname "$0")/../../abi/lib.sh"

cat >"$scratch/stray.c" <<'END'
#include <spmt.h>
#include <spmt_device.h>
#include <stdlib.h>

struct args {
	struct spmt_view view;
	uint64_t *words;
	int at, pe;
};

/* Of the program, as all of spmt_device.h is that it calls. */
static void stray_kernel(void *arg)
{
	struct args *a = arg;
	uint64_t *there = (uint64_t *)spmtd_ptr(&a->view, a->words, a->pe);

	there[a->at] = 7;
}

static int rank(spmt_comm *comm, void *arg)
{
	const char *way = arg;
	struct args a = { .view = { .size = sizeof(a.view) }, .at = way[0] == 'b' ? 6 : 5 };
	int rc = spmt_malloc(comm, 6 * sizeof(*a.words), (void **)&a.words);

	a.pe = (spmt_rank(comm) + 1) % spmt_nranks(comm);
	if (!rc)
		rc = spmt_view_get(comm, &a.view);
	if (!rc && way[0] == 'f')
		rc = spmt_free(comm, a.words);
	if (!rc)
		rc = spmt_host_launch(comm, NULL, stray_kernel, &a, sizeof(a));
	if (!rc)
		rc = spmt_barrier(comm);
	return rc || way[0] == 'f' ? rc : spmt_free(comm, a.words);
}

int main(int argc, char **argv)
{
	return argc < 2 || spmt_run(2, NULL, rank, argv[1]) ? 1 : 0;
}
END

export SPMT_BACKEND=host LD_LIBRARY_PATH=$build_root
unset "${!SPMT_HOST_@}" SPMT_LOG SPMT_FAULT SPMT_HEAP_MODE ASAN_OPTIONS

# dies WAY PATTERN: reported, with the kernel's name
dies() {
	local rc=0
	timeout 120 "$program" "$1" >"$scratch/out" 2>&1 || rc=$?
	nothing_in "$compiler: $1 ends the program" "$([ "$rc" != 0 ] || echo 0)"
	nothing_in "$compiler: $1 is reported where it happens" "$({ grep -q 'AddressSanitizer: use-after-poison' "$scratch/out" &&
		grep -q ' in stray_kernel ' "$scratch/out"; } || cut -c 1-160 "$scratch/out" | head -n 20)"
}

for compiler in gcc clang; do
	program=$scratch/stray-$compiler
	if nm "$build_root/libspmt.so" 2>/dev/null | grep -E ' (__[at]san_init|__ubsan_)' >/dev/null; then
		skip "$compiler: a program's own AddressSanitizer" 'the library was built with a sanitizer'
	elif ! echo 'int main(void) { return 0; }' | "$compiler" -x c -fsanitize=address -o "$scratch/none" - 2>/dev/null ||
		! "$scratch/none"; then
		skip "$compiler: a program's own AddressSanitizer" "no $compiler that has it"
	else
		succeeds "$compiler: the program compiles" "$compiler" -g -std=gnu11 -fsanitize=address -Iinclude -o "$program" \
			"$scratch/stray.c" -L"$build_root" -lspmt
		for mode in static vmm; do
			export SPMT_CHECK=1 SPMT_HEAP_MODE=$mode
			succeeds "$compiler: what is right passes ($mode)" timeout 120 "$program" inside
			dies behind
			dies freed
		done
		SPMT_CHECK=0 succeeds "$compiler: unless asked nobody looks" timeout 120 "$program" behind
	fi
done
plan

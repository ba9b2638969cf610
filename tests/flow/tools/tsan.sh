#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A user's own ThreadSanitizer: a program built with it and linked with the library as it is gives no report where it is right, with
# no suppression, and does where it is wrong. Runtimes of gcc and of clang.
. "$(dirname "$0")/../../abi/lib.sh"

export SPMT_BACKEND=host LD_LIBRARY_PATH=$build_root
unset "${!SPMT_HOST_@}" SPMT_MAPS SPMT_MOVES SPMT_FAULT SPMT_LOG

# ThreadSanitizer of some versions wants few bits of address space randomisation.
run() {
	TSAN_OPTIONS=exitcode=66 timeout 240 setarch -R "$@" >"$scratch/out" 2>&1
}

builds() { # COMPILER SOURCE PROGRAM ARG..
	"$1" -std=gnu11 -O1 -g -fsanitize=thread -I"$source_root/include" "$2" -o "$3" "${@:4}" >"$scratch/out" 2>&1
}

right() {
	local rc=0
	run "$scratch/program" || rc=$?
	nothing_in "$1: a right program is clean" "$([ "$rc" = 0 ] || { echo "exit status $rc"; grep -v '^$' "$scratch/out" | head -n 60; })"
}

# A report needs the two accesses in an order that nothing explains. A thread that the kernel holds up between what it waited for
# and its note of it takes over what came later as well, and that run is silent: on a busy machine one in ten.
wrong() {
	local rc=0
	for _ in 1 2 3 4 5 6 7 8; do
		rc=0
		run "$scratch/program" race "$2" || rc=$?
		grep -q 'ThreadSanitizer: data race' "$scratch/out" || rc="$rc without a report"
		[ "$rc" = '0 without a report' ] || break
	done
	nothing_in "$1: what does not order its $2 is told" "$([ "$rc" = 66 ] || { echo "exit status $rc"; head -n 20 "$scratch/out"; })"
}

# Another sanitizer in the library does not go with this one in the program.
if nm -D "$build_root/libspmt.so" | grep -E ' [^w] __(asan|tsan_func|ubsan|sanitizer)' >/dev/null; then
	skip 'ThreadSanitizer in the program alone' 'the library is built with a sanitizer'
	plan
	exit
fi

echo 'int main(void) { return 0; }' >"$scratch/empty.c"
tried=0
for compiler in gcc clang; do
	if ! command -v "$compiler" >/dev/null || ! builds "$compiler" "$scratch/empty.c" "$scratch/program" || ! run "$scratch/program"; then
		skip "$compiler" 'it builds no program with ThreadSanitizer that runs here'
		continue
	fi
	tried=$((tried + 1))
	succeeds "$compiler builds the program" \
		builds "$compiler" tests/flow/tools/tsan.c "$scratch/program" -Wall -Wextra -Werror -L"$build_root" -lspmt -lpthread
	right "$compiler"
	for name in ring meetings reductions kernels; do
		wrong "$compiler" "$name"
	done
done
nothing_in 'one of the compilers has ThreadSanitizer' "$([ "$tried" -gt 0 ] || echo 'neither gcc nor clang')"
plan

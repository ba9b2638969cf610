#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every function of the library's kernels in which threads meet says so (SPMTD_MEETS): else clang may call it apart for threads that come
# by different ways, and they never meet. Of its IR, in which nothing is inlined yet.
. "$(dirname "$0")/../lib.sh"

# meet NAME CLANG'S ARGUMENT..
meet() {
	local name="where threads meet a function says so, $1" found
	shift
	if ! command -v clang-19 >/dev/null; then
		skip "$name" "no clang-19"
		return
	fi
	found=$(clang-19 -std=gnu11 -I. -ffreestanding -nogpulib -O3 -DSPMTD_NEAR=1 -S -emit-llvm -Xclang -disable-llvm-passes "$@" -o "$scratch/ir" 2>&1) &&
		found=$(python3 tests/abi/device/meets.py "$scratch/ir" 2>&1)
	nothing_in "$name" "$found"
}
meet "sm_90" --target=nvptx64-nvidia-cuda -march=sm_90 src/kernels/device_image.c
meet "sm_80" --target=nvptx64-nvidia-cuda -march=sm_80 src/kernels/device_image.c
meet "gfx942" --target=amdgcn-amd-amdhsa -mcpu=gfx942 src/kernels/device_image.c

# and what does not is found
cat >"$scratch/meet.c" <<'C'
#include "include/spmt_device.h"
static int vote(int x)
{
	return spmtd_any_block_(x);
}
int apart(int x)
{
	return x ? vote(x) : vote(0);
}
C
if command -v clang-19 >/dev/null; then
	clang-19 -std=gnu11 -I. -ffreestanding -nogpulib -O3 -S -emit-llvm -Xclang -disable-llvm-passes --target=nvptx64-nvidia-cuda -march=sm_90 \
		"$scratch/meet.c" -o "$scratch/ir"
	nothing_in "one that does not is found" "$(diff <(python3 tests/abi/device/meets.py "$scratch/ir" 2>&1) <(printf 'apart\nvote\n'))"
fi
echo "1..$tests"

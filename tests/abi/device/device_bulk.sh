#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Bulk copies for sm_90 are what compilers make of them: the engine's instructions, which an assembler takes. Other chips get none.
. "$(dirname "$0")/../lib.sh"

kernels=tests/abi/device/device_bulk.c
strict="-Wall -Wextra -Wpedantic -Werror"
engine='cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes cp.async.bulk.global.shared::cta.bulk_group
	cp.async.bulk.commit_group cp.async.bulk.wait_group.read cp.async.bulk.wait_group fence.proxy.async.global fence.proxy.async.shared::cta mbarrier.init
	mbarrier.arrive.expect_tx mbarrier.try_wait.parity mbarrier.inval'

# What it folds, and no other: PTX has no minimum of float.
for each in add.{u32,s32,u64,f32,f64,noftz.f16,noftz.bf16} {min,max}.{u32,s32,u64,s64,f16,bf16} {and,or,xor}.b{32,64}; do
	engine+=" cp.reduce.async.bulk.global.shared::cta.bulk_group.$each"
done

# absent FILE: which of them are not in it
absent() {
	local each
	for each in $engine; do
		grep -qF -- "$each" "$1" || echo "$each"
	done
}

cp "$kernels" "$scratch/bulk.cu"
# shellcheck disable=SC2086 # a list of options
compiles "clang-19 C, sm_90" clang-19 -std=c11 --target=nvptx64-nvidia-cuda -march=sm_90 -Xclang -target-feature -Xclang +ptx80 \
	-DSPMTD_BULK=1 -nogpulib -ffreestanding -O3 $strict -Iinclude -S "$kernels" -o "$scratch/sm_90.s"
# by_view FILE: what that kernel has of the engine
by_view() {
	sed -n '/entry puts_by_view/,/^}/p' "$1" | grep -E 'cp[.]async[.]bulk|mbarrier'
}

# shellcheck disable=SC2086
compiles "clang-19 C, sm_90, puts by the view" clang-19 -std=c11 --target=nvptx64-nvidia-cuda -march=sm_90 -Xclang -target-feature \
	-Xclang +ptx80 -DSPMTD_BULK=1 -DSPMTD_BULK_BY_VIEW -nogpulib -ffreestanding -O3 $strict -Iinclude -S "$kernels" -o "$scratch/view.s"
if [ -e "$scratch/view.s" ]; then
	nothing_in 'they go by the engine' "$(by_view "$scratch/view.s" | grep -q 'cp[.]async[.]bulk[.]global' || echo 'no store in bulk')"
	nothing_in 'nor do they without the define' "$(by_view "$scratch/sm_90.s" | head -n 3)"
	compiles 'ptxas, sm_90, puts by the view' ptxas -arch=sm_90 "$scratch/view.s" -o "$scratch/o"
else
	skip 'they go by the engine' 'no clang-19'
	skip 'nor do they without the define' 'no clang-19'
fi
if [ -e "$scratch/sm_90.s" ]; then
	nothing_in 'it has all of the engine' "$(absent "$scratch/sm_90.s")"
	compiles 'ptxas, sm_90' ptxas -arch=sm_90 "$scratch/sm_90.s" -o "$scratch/o"
else
	skip 'it has all of the engine' 'no clang-19'
fi
# shellcheck disable=SC2086
compiles "clang-19 C, sm_80" clang-19 -std=c11 --target=nvptx64-nvidia-cuda -march=sm_80 -nogpulib -ffreestanding -O3 $strict \
	-Iinclude -S "$kernels" -o "$scratch/sm_80.s"
if [ -e "$scratch/sm_80.s" ]; then
	nothing_in 'for sm_80 there is none' "$(grep -E 'cp[.](reduce[.])?async|mbarrier' "$scratch/sm_80.s" | head -n 3)"
else
	skip 'for sm_80 there is none' 'no clang-19'
fi
compiles 'nvcc, sm_90' nvcc -arch=sm_90 -Werror all-warnings -Iinclude -ptx "$scratch/bulk.cu" -o "$scratch/nvcc.ptx"
if [ -e "$scratch/nvcc.ptx" ]; then
	nothing_in 'nvcc asks for nothing to have it' "$(absent "$scratch/nvcc.ptx")"
else
	skip 'nvcc asks for nothing to have it' 'no nvcc'
fi
plan

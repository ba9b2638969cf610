#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What orders memory on GPUs, in what compilers make of spmt_device.h and in the library's images. What is not installed or was
# not built is skipped by name.
# shellcheck disable=SC2086 # $AMD is a list of options
. "$(dirname "$0")/../lib.sh"


# ---- AMD: whoever writes its cache back waits until that is done
# A release writes back, waits, then stores. Compilers have left the wait out (see spmtd_written_back_), and hardware says nothing.
# unwaited FILE: lines of assembly that come between a write-back and the wait for it; the last line: how many write-backs there are.
unwaited() {
	awk '
		{ text = $0; sub(/(;|\/\/).*/, "", text) }
		text ~ /(buffer_wbl2|global_wb)/ { n++; if (pending) print NR ": " text; pending = 1; next }
		text ~ /s_waitcnt.*vmcnt\(0\)|s_waitcnt +0$|s_wait_storecnt 0x0/ { pending = 0 }
		pending && text ~ /(buffer|global|flat|scratch)_|s_(c?branch|barrier|setpc|swappc|endpgm)|^[^ \t].*:/ {
			print NR ": " text
			pending = 0
		}
		END { print n + 0 }' "$1"
}
# waits NAME FILE: and there are some
waits() {
	local found n
	found=$(unwaited "$2")
	n=${found##*$'\n'}
	found=$(head -n -1 <<<"$found")
	[ "$n" -gt 0 ] || found="no write-back at all"
	nothing_in "$1" "$found"
}

images=$(find "$build_root" -name '*.hsaco' | sort)
[ -n "$images" ] || skip "every release waits, in every image for AMD GPUs" "no device images in $build_root"
for image in $images; do
	name="every release waits, image ${image#"$build_root"/}"
	if ! command -v llvm-objdump-19 >/dev/null; then
		skip "$name" "no llvm-objdump-19"
		continue
	fi
	if ! llvm-objdump-19 -d "$image" >"$scratch/image.s" 2>"$scratch/errors" || ! grep -q s_endpgm "$scratch/image.s"; then
		nothing_in "$name" "no kernel to be read: $(cat "$scratch/errors")"
		continue
	fi
	case $image in
	*spmt-gfx90a* | *spmt-gfx942*) waits "$name" "$scratch/image.s" ;;
	*) nothing_in "$name" "$(unwaited "$scratch/image.s" | head -n -1)" ;; # no cache to write back, or no release in it
	esac
done

cat >"$scratch/order.c" <<'END'
#include "spmt_device.h"
#if defined(__CUDACC__) && !defined(__clang__)
#define KERNEL extern "C" __global__ void
#elif defined(__HIP__)
#define KERNEL extern "C" __attribute__((global)) void
#elif defined(__AMDGCN__)
#define KERNEL __attribute__((amdgpu_kernel, visibility("protected"))) void
#else
#define KERNEL __attribute__((nvptx_kernel)) void
#endif
struct args {
	struct spmt_view v;
	uint64_t *sig;
	int *rc;
};
#define EACH(name, what) KERNEL name(struct args a); KERNEL name(struct args a) { what; }
EACH(quiet, *a.rc = spmtd_quiet(&a.v))
EACH(quiet_warp, *a.rc = spmtd_quiet_warp(&a.v))
EACH(quiet_block, *a.rc = spmtd_quiet_block(&a.v))
EACH(barrier, *a.rc = spmtd_barrier(&a.v))
EACH(barrier_warp, *a.rc = spmtd_barrier_warp(&a.v))
EACH(barrier_block, *a.rc = spmtd_barrier_block(&a.v))
EACH(fence, spmtd_fence(&a.v))
EACH(fence_warp, spmtd_fence_warp(&a.v))
EACH(fence_block, spmtd_fence_block(&a.v))
EACH(signals, spmtd_signal_op(&a.v, a.sig, 1, SPMT_SIGNAL_ADD, 1); spmtd_signal_op(&a.v, a.sig, 1, SPMT_SIGNAL_SET, 1))
EACH(put_block, spmtd_putmem_signal_block(&a.v, a.sig, a.rc, 64, a.sig, 1, SPMT_SIGNAL_SET, 1))
EACH(put_pair, spmtd_putmem_signal(&a.v, a.sig, a.rc, 8, a.sig + 1, 1, SPMT_SIGNAL_SET, 1))
EACH(relaxed, spmtd_signal_op_relaxed(&a.v, a.sig, 1, SPMT_SIGNAL_SET, 1); spmtd_signal_op_relaxed(&a.v, a.sig, 1, SPMT_SIGNAL_ADD, 1))
EACH(await, *a.rc = spmtd_signal_wait_until(&a.v, a.sig, SPMT_CMP_EQ, 1))
END
cp "$scratch/order.c" "$scratch/order.hip"
cp "$scratch/order.c" "$scratch/order.cu"
# assembles NAME COMPILER ARGUMENT..: $scratch/order.s, by that compiler; 1: there is none, or it has failed, which is told
assembles() {
	local name=$1 out
	shift
	if ! command -v "$1" >/dev/null; then
		skip "$name" "no $1"
		return 1
	fi
	if ! out=$("$@" -Iinclude -o "$scratch/order.s" 2>&1); then
		nothing_in "$name" "${out:-failed}"
		return 1
	fi
}
AMD="--target=amdgcn-amd-amdhsa -std=c17 -nogpulib -S $scratch/order.c"
HIP="-x hip --cuda-device-only -nogpuinc -nogpulib -S $scratch/order.hip"
for arch in gfx90a gfx942 gfx1200; do
	for how in -O1 -O3; do
		name="every release waits, clang-19 C $how, $arch"
		assembles "$name" clang-19 $AMD -mcpu=$arch $how && waits "$name" "$scratch/order.s"
	done
done
for cc in clang clang-15 clang-19; do
	name="every release waits, $cc -x hip, gfx90a"
	assembles "$name" $cc $HIP --offload-arch=gfx90a -O3 && waits "$name" "$scratch/order.s"
done

# ---- NVIDIA
# within FILE KERNEL PATTERN: the lines of that kernel's PTX that match
within() {
	awk -v name="$2" -v pattern="$3" '
		/[.](entry|func) / { inside = $0 ~ "[.]entry " name "[(]" }
		inside && $0 ~ pattern' "$1"
}
# completes NAME FILE KERNEL..: each makes fence.sc.sys, and no weaker one
completes() {
	local name=$1 file=$2 kernel wrong=
	shift 2
	for kernel in "$@"; do
		[ -n "$(within "$file" "$kernel" 'fence[.]sc[.]sys')" ] || wrong+="$kernel has no fence.sc.sys"$'\n'
		[ -z "$(within "$file" "$kernel" 'fence[.]acq_rel')" ] || wrong+="$kernel has a fence.acq_rel"$'\n'
	done
	nothing_in "$name" "$wrong"
}
reads_ptx() {
	completes "quiet and barrier make fence.sc.sys, $1" "$scratch/order.s" quiet quiet_warp quiet_block barrier \
		barrier_warp barrier_block
	nothing_in "fence makes fence.acq_rel.sys, $1" "$(for kernel in fence fence_warp fence_block; do
		[ -n "$(within "$scratch/order.s" $kernel 'fence[.]acq_rel[.]sys')" ] || echo "$kernel does not"
	done)"
	nothing_in "a relaxed signal makes no fence and releases nothing, $1" "$(
		within "$scratch/order.s" relaxed 'fence|release'
		[ "$(within "$scratch/order.s" relaxed '(st|red)[.]relaxed[.]sys' | wc -l)" = 2 ] || echo 'or is not there'
	)"
	# the only 32-bit word that a wait for a signal looks at
	# In one access for all of a warp that are here: without a vote, which would make them wait for each other, and by one address. How
	# seldom is below.
	nothing_in "a wait looks at the stop word in the loop and at the deadline, $1" "$(
		stop=$(within "$scratch/order.s" await 'ld[.]relaxed[.]sys[.]global[.][ub]32')
		[ "$(wc -l <<<"$stop")" = 2 ] || echo "$stop"
		within "$scratch/order.s" await 'vote[.]sync|activemask|laneid'
	)"
}
for arch in sm_80 sm_90; do
	assembles "order of memory, clang-19 C, $arch" clang-19 -std=c11 --target=nvptx64-nvidia-cuda -march=$arch -nogpulib -O3 \
		-S "$scratch/order.c" && reads_ptx "clang-19 C, $arch"
done
if assembles "order of memory, nvcc" nvcc -arch=sm_90 -ptx "$scratch/order.cu"; then
	reads_ptx nvcc
	nothing_in "data and signal in the same 16 bytes are one store, nvcc" \
		"$(within "$scratch/order.s" put_pair 'st[.]relaxed[.]sys[.]global[.]b128' | grep -q . || echo 'they are not')"
fi
images=$(find "$build_root" -name 'spmt-sm_*.ptx' | sort)
[ -n "$images" ] || skip "the library's barrier makes fence.sc.sys" "no device images in $build_root"
# (a weaker one as well, where it gives up: what it tells its host comes before the stop word)
for image in $images; do
	nothing_in "the library's barrier makes fence.sc.sys, ${image##*/}" \
		"$([ -n "$(within "$image" spmt_kernel_barrier 'fence[.]sc[.]sys')" ] || echo 'none')"
done

# ---- who fences, and who posts
# section PART TITLE: the functions below that title
section() {
	awk -v title="/* ---- $2 -" 'index($0, "/* ---- ") == 1 { on = index($0, title) == 1 } /^#undef|^SPMTD_END/ { on = 0 } on' \
		"include/spmt_device/$1.h"
}
{
	section view 'threads of a scope'
	section fifo order
	section wait waits | sed '/^\/\* The lock is device memory/,$d'
	section sync 'barrier and sync'
} >"$scratch/device_order.h"
lanes() {
	gcc -std=gnu11 -O1 -fsanitize=undefined,address -fno-sanitize-recover=all -Wall -I"$scratch" -Iinclude tests/abi/device/device_order.c \
		-o "$scratch/lanes" && "$scratch/lanes" | grep -v '^ok\|^1\.\.'
	[ "${PIPESTATUS[0]}" = 0 ]
}
succeeds "fences, posts and patience, lane by lane" lanes
plan

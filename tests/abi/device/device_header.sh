#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# spmt_device.h with every compiler there is: it compiles without a warning, has every name as a
# function, and its copies keep the accesses in flight that they promise. What is not installed is
# skipped by name.
# shellcheck disable=SC2086 # $strict is a list of options
. "$(dirname "$0")/../lib.sh"

single=$scratch/single # in its folder the header is one file, as spmt_device_all.h is
mkdir "$single"
awk -f include/one_file.awk include/spmt_device.h >"$single/spmt_device.h"
sed -nE 's/.*[ *](spmtd_[a-z0-9_]*)\(.*;$/\1/p' docs/device_api.md >"$scratch/names"
kernels=tests/abi/device/device_kernels.c
strict="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wcast-qual -Wundef -Wvla -Werror"

# One function's address each, so that all are compiled, and none is a macro.
# names HEADER LIST
names() {
	echo "#include \"$1\""
	sed 's/.*/#ifdef &\n#error & is a macro\n#endif/' "$2"
	echo 'typedef void (*any_fn)(void);'
	echo 'any_fn table_of_all(int i);'
	echo 'any_fn table_of_all(int i) {'
	echo 'switch (i) {'
	awk '{ print "case " NR ": return (any_fn)" $1 ";" }' "$2"
	echo 'default: return (any_fn)0; } }'
}
names spmt_device.h "$scratch/names" >"$scratch/names.c"
# For GPUs, where each is inlined and takes a twentieth of a second: of functions that differ by type alone those of five types, and of
# reductions, which differ by type and op, some.
grep -vE '_reduce(_at)?(_shared)?(_nbi)?(_warp|_block|_group)?$|^$|_(uint16|uint64|schar|int8|int16|int32|double|bfloat16)_' \
	"$scratch/names" >"$scratch/some"
grep -E '^spmtd_((bulk|channel|switch)_)?(float_sum|half_max|uint(8|32)_xor|int64_min)_' "$scratch/names" >>"$scratch/some"
names spmt_device.h "$scratch/some" >"$scratch/some.c"
# What machine.h promises on every target.
{
	printf 'spmtd_%s_\n' {load,store,gload,gstore,peek,poke}16b order complete release_set release_add acquired settle meet_warp meet_block \
		any_warp any_block warp_size
	for bits in 8 16 32 64; do
		printf "spmtd_%s${bits}_\n" load store gload gstore peek poke look swap cas {,noret_}{add,and,or,xor}
	done
	printf 'spmtd_%s_\n' {uint{8,16,32,64},int{8,16,32,64},schar,float,double}_{bits,of}
} >"$scratch/machine"
names spmt_device/machine.h "$scratch/machine" >"$scratch/machine.c"
cp "$scratch/machine.c" "$scratch/machine.cpp"
for ext in c cpp cu hip; do
	cp "$kernels" "$scratch/kernels.$ext"
	cmp -s "$scratch/names.c" "$scratch/names.$ext" || cp "$scratch/names.c" "$scratch/names.$ext"
done

# ---- host
# clang and gcc call the table's casts what they are meant to be. Of a second standard the language is looked at alone, and so is it of all
# names, of which one compiler makes code: that takes up to half a minute.
host() { # SUFFIX STANDARDS COMPILER..
	local ext=$1 first=${2%% *} std cc how names_how
	for std in $2; do
		how="-O1 -c -o $scratch/o"
		[ "$std" = "$first" ] || how=-fsyntax-only
		for cc in "${@:3}"; do
			names_how=-fsyntax-only
			[ "$cc, $std" != 'clang, c11' ] || names_how="-O0 -c -o $scratch/o"
			compiles "$cc, $std" "$cc" -std=$std $strict $how -Iinclude "$scratch/kernels.$ext"
			compiles "$cc, $std, all names" "$cc" -std=$std $strict -Wno-cast-function-type $names_how -Iinclude "$scratch/names.$ext"
		done
	done
}
host c 'c11 c17' gcc clang clang-19
host cpp 'c++11 c++17' g++ clang++ clang++-19

# ---- where all ranks have addresses: the structures end earlier, and nothing is posted but by ports
cat >"$scratch/near.c" <<-END
#include <spmt_device.h>
_Static_assert(sizeof(struct spmt_view) == 136 && sizeof(struct spmt_mem_view) == 56, "near");
END
for cc in gcc clang clang-19; do
	compiles "$cc, near" "$cc" -std=c11 $strict -DSPMT_NEAR -O1 -Iinclude -c "$kernels" -o "$scratch/o"
	compiles "$cc, near: sizes" "$cc" -std=c11 $strict -DSPMT_NEAR -O1 -Iinclude -c "$scratch/near.c" -o "$scratch/o"
done
for target in 'amdgcn-amd-amdhsa -mcpu=gfx942' 'nvptx64-nvidia-cuda -march=sm_90'; do
	compiles "clang-19 C, near, ${target#*=}" clang-19 -std=c11 --target=$target -nogpulib -O3 $strict -DSPMT_NEAR -Iinclude -S "$kernels" -o "$scratch/near.s"
done
if [ -e "$scratch/near.s" ]; then
	nothing_in 'with SPMT_NEAR no kernel posts' "$(grep -o 'spmtd_far_[a-z_]*_by_\|spmtd_far_ask_' "$scratch/near.s" | sort -u)"
fi

# ---- C for devices, as a user calls it: no options but the target
for arch in gfx90a gfx942 gfx1100; do
	compiles "clang-19 C, $arch" clang-19 -std=c17 --target=amdgcn-amd-amdhsa -mcpu=$arch -nogpulib -O3 $strict \
		-Iinclude -S "$kernels" -o "$scratch/$arch.s"
done
for arch in sm_80 sm_90; do
	compiles "clang-19 C, $arch" clang-19 -std=c11 --target=nvptx64-nvidia-cuda -march=$arch -nogpulib -O3 $strict \
		-Iinclude -S "$kernels" -o "$scratch/$arch.s"
	if [ -e "$scratch/$arch.s" ]; then
		compiles "ptxas, $arch" ptxas -arch=$arch "$scratch/$arch.s" -o "$scratch/o"
	fi
done
compiles "clang-19 C, gfx942, all names" clang-19 -std=c17 --target=amdgcn-amd-amdhsa -mcpu=gfx942 -nogpulib -O1 \
	-ffreestanding -Iinclude -S "$scratch/some.c" -o "$scratch/gfx942.all.s"
grep atomic "$scratch/some" >"$scratch/atomics"
names spmt_device.h "$scratch/atomics" >"$scratch/atomics.c"
compiles "clang-19 C, gfx1100, atomics" clang-19 -std=c17 --target=amdgcn-amd-amdhsa -mcpu=gfx1100 -nogpulib -O1 \
	-ffreestanding -Iinclude -S "$scratch/atomics.c" -o "$scratch/gfx1100.all.s"
compiles "clang-19 C, sm_90, all names" clang-19 -std=c17 --target=nvptx64-nvidia-cuda -march=sm_90 -nogpulib -O1 \
	-ffreestanding -Iinclude -S "$scratch/some.c" -o "$scratch/o"

compiles "the machine, gcc" gcc -std=c11 $strict -Wno-cast-function-type -O0 -Iinclude -c "$scratch/machine.c" -o "$scratch/o"
compiles "the machine, g++" g++ -std=c++11 $strict -Wno-cast-function-type -O0 -Iinclude -c "$scratch/machine.cpp" -o "$scratch/o"
for target in "amdgcn-amd-amdhsa -mcpu=gfx942" "nvptx64-nvidia-cuda -march=sm_90"; do
	compiles "the machine, ${target#*=}" clang-19 -std=c11 --target=$target -nogpulib -O1 -ffreestanding -Iinclude -S \
		"$scratch/machine.c" -o "$scratch/o"
done

# ---- the library's kernels, for whatever chip; code is made of them by the build, for device_archs
for target in {gfx90a,gfx942,gfx1030,gfx1100}:amdgcn-amd-amdhsa\ -mcpu= sm_{80,90}:nvptx64-nvidia-cuda\ -march=; do
	compiles "kernels, ${target%%:*}" clang-19 -std=gnu11 --target=${target#*:}${target%%:*} -ffreestanding -nogpulib -DSPMTD_NEAR=1 -Wall \
		-Wextra -Werror -I. -fsyntax-only src/kernels/device_image.c
done

# ---- HIP and CUDA
for cc in clang-15 clang-19; do
	for arch in gfx90a gfx1100; do
		compiles "$cc -x hip, $arch" "$cc" -x hip --cuda-device-only -nogpuinc -nogpulib --offload-arch=$arch -O3 \
			-Wall -Wextra -Werror -Iinclude -S "$scratch/kernels.hip" -o "$scratch/o"
	done
done
compiles "clang-19 -x hip, gfx942" clang-19 -x hip --cuda-device-only -nogpuinc -nogpulib --offload-arch=gfx942 -O3 \
	-Wall -Wextra -Werror -Iinclude -S "$scratch/kernels.hip" -o "$scratch/o"
compiles "clang -x hip, gfx90a" clang -x hip --cuda-device-only -nogpuinc -nogpulib --offload-arch=gfx90a -O3 -Wall \
	-Wextra -Werror -Iinclude -S "$scratch/kernels.hip" -o "$scratch/o"
compiles "clang-19 -x cuda, sm_90" clang-19 -x cuda --cuda-device-only -nocudainc -nocudalib \
	--cuda-path=/nonexistent --cuda-gpu-arch=sm_90 -O3 -Wall -Wextra -Werror -Iinclude -S "$scratch/kernels.cu" -o "$scratch/o"
compiles "clang -x cuda, sm_80" clang -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-path=/nonexistent \
	--cuda-gpu-arch=sm_80 -emit-llvm -O3 -Wall -Wextra -Werror -Iinclude -c "$scratch/kernels.cu" -o "$scratch/o"
for arch in sm_80 sm_90; do
	compiles "nvcc, $arch" nvcc -arch=$arch -Werror all-warnings -Iinclude -c "$scratch/kernels.cu" -o "$scratch/o"
done
compiles "hipcc, gfx90a" hipcc -O3 --offload-arch=gfx90a --offload-device-only -Wall -Wextra -Werror -Iinclude -c \
	"$scratch/kernels.hip" -o "$scratch/o"

# ---- one file
# same_words NAME COMPILER ARGUMENT..: what the compiler sees of the parts and of the one file is the same.
same_words() {
	local name="from one file: $1"
	shift
	if ! command -v "$1" >/dev/null; then
		skip "$name" "no $1"
		return
	fi
	"$@" -E -Iinclude -o "$scratch/of_parts" >"$scratch/errors" 2>&1 && "$@" -E "-I$single" -o "$scratch/of_one" >>"$scratch/errors" 2>&1
	nothing_in "$name" "$(cat "$scratch/errors"; diff <(words "$scratch/of_parts") <(words "$scratch/of_one") 2>&1 | head)"
}
# words FILE: without where they stood
words() {
	grep -vE '^#(line)? [0-9]' "$1" | tr -s '[:space:]' '\n' | grep . || echo "nothing in $1: $RANDOM"
}
same_words gcc gcc -std=c11 "$kernels"
same_words g++ g++ -std=c++11 "$scratch/kernels.cpp"
same_words "clang-19 C, gfx942" clang-19 -std=c17 --target=amdgcn-amd-amdhsa -mcpu=gfx942 -nogpulib "$kernels"
same_words "clang-19 C, sm_90" clang-19 -std=c17 --target=nvptx64-nvidia-cuda -march=sm_90 -nogpulib "$kernels"
same_words "clang-19 -x hip, gfx942" clang-19 -x hip --cuda-device-only -nogpuinc -nogpulib --offload-arch=gfx942 "$scratch/kernels.hip"
same_words "clang-19 -x cuda, sm_90" clang-19 -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-path=/nonexistent \
	--cuda-gpu-arch=sm_90 "$scratch/kernels.cu"
same_words nvcc nvcc -arch=sm_90 "$scratch/kernels.cu"

# ---- the run-time compilers, found as libraries; they have the one file
rtc() {
	gcc -std=gnu11 -Wall -Wextra -Werror tests/abi/device/device_rtc.c -ldl -o "$scratch/rtc" &&
		timeout 120 "$scratch/rtc" "$1" "$kernels" "$single/spmt_device.h"
}
for which in nvrtc hiprtc; do
	rc=0
	out=$(rtc $which 2>&1) || rc=$?
	if [ $rc = 77 ]; then
		skip "$which" "$out"
	else
		[ $rc = 0 ] && out=
		nothing_in "$which" "$out"
	fi
done

# ---- accesses in flight: per loop, the longest run of 16-byte loads before a store or a wait
# flight FILE FUNCTION LOAD STOP: one number for each loop that loads, the least first. Which block belongs to which loop the
# compiler says behind the block's label.
flight() {
	awk -v name="$2" -v take="$3" -v stop="$4" '
		function settle() {
			if (run > most[loop])
				most[loop] = run
			run = 0
		}
		$0 ~ "^([.]visible )?([.]func +)?" name "([(:]|$)" { inside = 1; loop = "" }
		inside && /^([$.]L_*BB[0-9_]+:|(;|\/\/) %bb[.])/ {
			in_loop = ""
			if (/Loop Header: Depth=/) {
				in_loop = $1
				gsub(/^[$.]L_*|:/, "", in_loop)
			} else if (match($0, /Header=BB[0-9_]+/))
				in_loop = substr($0, RSTART + 7, RLENGTH - 7)
			if (in_loop != loop)
				settle()
			loop = in_loop
		}
		inside && $0 ~ take { run++ }
		inside && $0 ~ stop { settle() }
		inside && /^(}|[.]Lfunc_end)/ { settle(); inside = 0 }
		END { for (l in most) if (l != "" && most[l]) print most[l] }' "$1" | sort -n | xargs
}
# in_flight LEAST NAME FILE FUNCTION LOAD STOP: as many loops as LEAST has numbers, each with at least its number
in_flight() {
	local got i wrong=
	local -a least loops
	if [ ! -e "$3" ]; then
		skip "$2" "no clang-19"
		return
	fi
	got=$(flight "$3" "$4" "$5" "$6")
	read -ra least <<<"$1"
	read -ra loops <<<"$got"
	[ ${#loops[@]} = ${#least[@]} ] || wrong=yes
	for i in "${!least[@]}"; do
		[ "${loops[i]:-0}" -ge "${least[i]}" ] || wrong=yes
	done
	nothing_in "$2" "${wrong:+in flight, loop by loop: ${got:-none}}"
}
# Whole units: rounds of 8, and of 4 where many threads put or no more is left. Shifted ones: 4 from two units each.
printf '%s\n' '#include "spmt_device.h"' 'void in_line(uint64_t dst, uint64_t src, uint64_t n);' \
	'void in_line(uint64_t dst, uint64_t src, uint64_t n) {' \
	'spmtd_block_put_(dst, src, n, spmtd_lane_(SPMTD_BLOCK_), spmtd_lanes_(SPMTD_BLOCK_)); }' >"$scratch/in_line.c"
for arch in sm_80 sm_90 gfx90a gfx942 gfx1100; do
	case $arch in
	sm_*)
		target=nvptx64-nvidia-cuda\ -march=$arch
		any='ld[.]v2[.][bu]64'
		global='ld[.]global[.]v2[.][bu]64'
		stop='st[.](global[.])?v2[.][bu]64'
		;;
	*)
		target=amdgcn-amd-amdhsa\ -mcpu=$arch
		any='(flat|global)_load_(dwordx4|b128)'
		global='global_load_(dwordx4|b128)'
		stop='s_waitcnt.*vmcnt|store_(dwordx4|b128)'
		;;
	esac
	put=8
	[ $arch = gfx942 ] && put=6 # the compiler makes 6, 1 and 1 of a put's 8
	in_flight "4 $put" "put keeps 4 and $put loads of 16 bytes in flight, $arch" "$scratch/$arch.s" spmtd_units_put_ "$any" "$stop"
	in_flight "4 8" "get keeps 4 and 8 loads of 16 bytes in flight, $arch" "$scratch/$arch.s" spmtd_units_get_ "$global" "$stop"
	in_flight 8 "shifted put keeps 8 loads of 16 bytes in flight, $arch" "$scratch/$arch.s" spmtd_shifted_put_ "$any" "$stop"
	compiles "clang-19 C, $arch, put by a block" clang-19 -std=c11 --target=$target -nogpulib -O3 $strict -Iinclude -S "$scratch/in_line.c" -o "$scratch/in_line.s"
	in_flight "4 $put" "put by a block keeps 4 and $put loads of 16 bytes in flight, $arch" "$scratch/in_line.s" in_line "$any" "$stop"
	in_flight 6 "shifted put by a block keeps 6 loads of 16 bytes in flight, $arch" "$scratch/$arch.s" spmtd_apart_put_ "$any" "$stop"
	in_flight 8 "shifted get keeps 8 loads of 16 bytes in flight, $arch" "$scratch/$arch.s" spmtd_shifted_get_ "$global" "$stop"
done

# ---- puts by a full block, call after call as bench/compare has them: nothing of a loop's own goes through memory between two calls
# spilled: of the kernels of puts by a block, what ptxas -v says is stored or loaded
spilled() {
	awk '/Function properties for/ { name = $NF }
		/spill/ && name ~ /^(k_bw_put|k_put_block)$/ {
			n++
			if ($0 !~ / 0 bytes spill stores, 0 bytes spill loads/) print name ": " $0
		}
		END { if (n != 2) print n + 0 " kernels" }'
}
puts=bench/compare.d
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
ptxas=$(command -v ptxas || echo /usr/local/cuda/bin/ptxas)
printf '#include "%s"\n' "$PWD/$puts/ops_spmt.cuh" "$PWD/$puts/kernels.cuh" >"$scratch/puts.cu"
if [ -x "$nvcc" ]; then
	nothing_in "puts by a block keep a loop's values in registers, nvcc" \
		"$("$nvcc" -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -Xptxas -v -cubin "$scratch/puts.cu" -o "$scratch/o" 2>&1 | spilled)"
else
	skip "puts by a block keep a loop's values in registers, nvcc" "no nvcc"
fi
if [ -x "$ptxas" ] && command -v clang-19 >/dev/null; then
	clang-19 -std=gnu11 -ffreestanding -nogpulib -O3 --target=nvptx64-nvidia-cuda -march=sm_90 -S -o "$scratch/puts.s" $puts/kernels_clang.c
	python3 src/kernels/images.py ptx "$scratch/puts.s" "$scratch/puts.ptx"
	nothing_in "puts by a block keep a loop's values in registers, clang-19" \
		"$("$ptxas" -v -arch=sm_90 -O3 "$scratch/puts.ptx" -o "$scratch/o" 2>&1 | spilled)"
else
	skip "puts by a block keep a loop's values in registers, clang-19" "no clang-19 or ptxas"
fi

# ---- the counter that keeps deadlines: 25 MHz up to MI200, 100 MHz from MI300 on and on RDNA
printf '%s\n' '#include "spmt_device.h"' 'uint64_t ns(void); uint64_t ns(void) { return spmtd_clock_(); }' >"$scratch/clock.c"
for each in gfx908:40 gfx90a:40 gfx942:10 gfx1030:10 gfx1100:10 gfx1200:10; do
	if ! command -v clang-19 >/dev/null; then
		skip "ns a tick, ${each%:*}" "no clang-19"
		continue
	fi
	got=$(clang-19 -std=c17 --target=amdgcn-amd-amdhsa -mcpu=${each%:*} -nogpulib -O1 -Iinclude -S -emit-llvm \
		"$scratch/clock.c" -o - 2>&1 | sed -n 's/.* = mul i64 %[^,]*, //p')
	wrong="ns: $got"
	[ "$got" = "${each#*:}" ] && wrong=
	nothing_in "${each#*:} ns a tick, ${each%:*}" "$wrong"
done

# ---- what PCIe does not carry
for arch in gfx942 gfx1100; do
	if [ -e "$scratch/$arch.all.s" ]; then
		nothing_in "no atomic but add, swap and compare-and-swap, $arch" \
			"$(grep -oE '(flat|global|buffer)_atomic_[a-z0-9_]*' "$scratch/$arch.all.s" | sort -u | grep -vE '_atomic_(add|swap|cmpswap)(_x2|_[ub](32|64)|)$')"
	else
		skip "no atomic but add, swap and compare-and-swap, $arch" "no clang-19"
	fi
done

# ---- sums of floats that NVIDIA GPUs have: all but sm_80's of bf16
{
	echo '#include "spmt_device.h"'
	for each in float:float double:double {half,bfloat16}:uint16_t {half,bfloat16}_pair:uint32_t; do
		echo "${each#*:} ${each%:*}(const struct spmt_view *v, ${each#*:} *dst, ${each#*:} x);" \
			"${each#*:} ${each%:*}(const struct spmt_view *v, ${each#*:} *dst, ${each#*:} x) {" \
			"spmtd_${each%:*}_atomic_add(v, dst, x, 1); return spmtd_${each%:*}_atomic_fetch_add(v, dst, x, 1); }"
	done | sed -E 's/\b(float|double)\(/a_\1(/g'
} >"$scratch/floats.c"
for each in 'sm_80:f32 f64 noftz.f16 noftz.f16x2' 'sm_90:f32 f64 noftz.bf16 noftz.bf16x2 noftz.f16 noftz.f16x2'; do
	if ! command -v clang-19 >/dev/null; then
		skip "sums of floats are instructions, ${each%:*}" "no clang-19"
		continue
	fi
	clang-19 -std=c11 --target=nvptx64-nvidia-cuda -march=${each%:*} -nogpulib -O1 $strict -DSPMT_NEAR -Iinclude -S \
		"$scratch/floats.c" -o "$scratch/floats.s" >"$scratch/errors" 2>&1
	for kind in red atom; do
		got=$(sed -nE "s/.*[[:space:]]${kind}[.]relaxed[.]sys[.]global[.]add[.]([a-z0-9.]*) .*/\\1/p" "$scratch/floats.s" | sort | xargs)
		wrong="$(cat "$scratch/errors")$got"
		[ "$wrong" = "${each#*:}" ] && wrong=
		nothing_in "sums of floats are instructions, $kind, ${each%:*}" "$wrong"
	done
	if command -v ptxas >/dev/null; then
		compiles "sums of floats, ptxas, ${each%:*}" ptxas -arch=${each%:*} "$scratch/floats.s" -o "$scratch/o"
	fi
done

# ---- the copies as devices have them, run here
copies() {
	gcc -std=gnu11 -O1 -fsanitize=undefined,address -fno-sanitize-recover=all -Wall -Wno-unknown-pragmas \
		-Wno-unused-function -Iinclude tests/abi/device/device_copies.c -o "$scratch/copies" && "$scratch/copies" | grep -v '^ok\|^1\.\.'
	[ "${PIPESTATUS[0]}" = 0 ]
}
succeeds "device copies and small atomics, lane by lane" copies

# ---- and it takes nothing along
nothing_in "includes nothing but stddef.h and stdint.h" \
	"$(grep -n '^#include' "$single/spmt_device.h" | grep -v '<std\(def\|int\)\.h>')"
plan

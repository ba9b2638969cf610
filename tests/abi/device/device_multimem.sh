#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A switch's multicast for sm_90 is what compilers make of it: the instructions, which an assembler takes, in functions of their own, which
# kernels call where a switch channel has such an address. Kernels of other chips, and the library's own, have none.
. "$(dirname "$0")/../lib.sh"

kernels=tests/abi/device/device_multimem.c
strict="-Wall -Wextra -Wpedantic -Werror"
fold=multimem.ld_reduce.relaxed.sys.global
wanted='multimem.st.relaxed.sys.global.v4.f32 fence.proxy.alias'

# What PTX has, and no other: no product, no minimum of float, nothing of less than 32 bits but halves.
for each in add.{u32,s32,u64,f64,v4.f32,acc::f32.v4.f16x2,acc::f32.v4.bf16x2} {min,max}.{u32,s32,u64,s64,v4.f16x2,v4.bf16x2}; do
	wanted+=" $fold.$each"
done

# absent FILE: which of them are not in it
absent() {
	local each
	for each in $wanted; do
		grep -qF -- "$each " "$1" || grep -qF -- "$each;" "$1" || echo "$each"
	done
}

# elsewhere FILE: functions that have such an instruction, but for those that nothing is inlined into
elsewhere() {
	awk '/^\.func|^\.visible \.entry|^\.entry|^\.visible \.func/ { name = $0 } /multimem\.(ld|st|red)/ { print name }' "$1" |
		grep -v 'spmtd_multimem_\(fold\|spread\)_' | sort -u | head -n 3
}

# registers LOG: of each kernel, as ptxas -v says
registers() {
	awk '/Compiling entry/ { name = $7 } /Used [0-9]+ registers/ { print name, $5 }' "$1" | sort
}

# more LOG LOG: kernels that take above 8 registers more with it, or any memory for them
more() {
	join <(registers "$1") <(registers "$2") | awk '$3 > $2 + 8'
	grep spill "$2" | grep -v ' 0 bytes spill stores, 0 bytes spill loads'
	registers "$2" | grep -q . || echo 'no kernels'
}

# assembled FILE: what ptxas -v says is left in FILE.log
assembled() {
	ptxas -v -arch=sm_90 "$1" -o "$scratch/o" >"$1.log" 2>&1 || { cat "$1.log"; return 1; }
}

clang=(clang-19 -std=c11 --target=nvptx64-nvidia-cuda -nogpulib -ffreestanding -O3 -Iinclude)
# shellcheck disable=SC2086 # a list of options
compiles 'clang-19 C, sm_90' "${clang[@]}" -march=sm_90 -Xclang -target-feature -Xclang +ptx82 -DSPMTD_MULTIMEM=1 -DSPMTD_BULK=1 $strict \
	-S "$kernels" -o "$scratch/sm_90.s"
# shellcheck disable=SC2086
compiles 'clang-19 C, sm_90, without the define' "${clang[@]}" -march=sm_90 -Xclang -target-feature -Xclang +ptx82 -DSPMTD_BULK=1 $strict \
	-S "$kernels" -o "$scratch/plain.s"
# shellcheck disable=SC2086
compiles 'clang-19 C, sm_80' "${clang[@]}" -O1 -march=sm_80 $strict -S "$kernels" -o "$scratch/sm_80.s"
if [ -e "$scratch/sm_90.s" ]; then
	nothing_in 'it has all that PTX has' "$(absent "$scratch/sm_90.s")"
	nothing_in 'in functions of its own' "$(elsewhere "$scratch/sm_90.s")"
	nothing_in 'none without the define, and none for sm_80' "$(grep -hE 'multimem|proxy[.]alias' "$scratch/plain.s" "$scratch/sm_80.s" | head -n 3)"
else
	skip 'it has all that PTX has' 'no clang-19'
	skip 'in functions of its own' 'no clang-19'
	skip 'none without the define, and none for sm_80' 'no clang-19'
fi
if [ -e "$scratch/sm_90.s" ] && command -v ptxas >/dev/null; then
	succeeds 'ptxas, sm_90' assembled "$scratch/sm_90.s"
	succeeds 'ptxas, sm_90, without the define' assembled "$scratch/plain.s"
	nothing_in 'kernels take no more for it' "$(more "$scratch/plain.s.log" "$scratch/sm_90.s.log")"
else
	skip 'ptxas, sm_90' 'no clang-19 or ptxas'
	skip 'ptxas, sm_90, without the define' 'no clang-19 or ptxas'
	skip 'kernels take no more for it' 'no clang-19 or ptxas'
fi

# In bulk, by PTX 9.1, which clang does not write: the instruction as such, and that an assembler which knows 9.1 takes it.
# shellcheck disable=SC2086
compiles 'clang-19 C, sm_90, in bulk' "${clang[@]}" -march=sm_90 -Xclang -target-feature -Xclang +ptx82 -DSPMTD_MULTIMEM=1 -DSPMTD_BULK=1 \
	-DSPMTD_BULK_SPREAD=1 $strict -S "$kernels" -o "$scratch/bulk.s"
spread=multimem.cp.async.bulk.global.shared::cta.bulk_group
if [ -e "$scratch/bulk.s" ]; then
	nothing_in 'the engine stores to a multicast' "$(grep -qF "$spread" "$scratch/bulk.s" || echo "no $spread")"
	nothing_in 'and without the define to each rank' "$(grep -F "$spread" "$scratch/sm_90.s" | head -n 3)"
	sed -i 's/^\.version .*/.version 9.1/' "$scratch/bulk.s"
else
	skip 'the engine stores to a multicast' 'no clang-19'
	skip 'and without the define to each rank' 'no clang-19'
fi
if [ ! -e "$scratch/bulk.s" ] || ! command -v ptxas >/dev/null; then
	skip 'ptxas, sm_90, in bulk' 'no clang-19 or ptxas'
elif ! assembled "$scratch/bulk.s" >/dev/null && grep -q 'Unsupported .version' "$scratch/bulk.s.log"; then
	skip 'ptxas, sm_90, in bulk' 'no assembler of PTX 9.1'
else
	nothing_in 'ptxas, sm_90, in bulk' "$(grep -v '^ptxas info\|^ *[0-9]* bytes' "$scratch/bulk.s.log")"
fi

cp "$kernels" "$scratch/switch.cu"
compiles 'nvcc, sm_90' nvcc -arch=sm_90 -Werror all-warnings -Iinclude -ptx "$scratch/switch.cu" -o "$scratch/nvcc.ptx"
if [ -e "$scratch/nvcc.ptx" ]; then
	nothing_in 'nvcc asks for nothing to have it' "$(absent "$scratch/nvcc.ptx")"
	nothing_in 'in functions of its own there, too' "$(elsewhere "$scratch/nvcc.ptx")"
else
	skip 'nvcc asks for nothing to have it' 'no nvcc'
	skip 'in functions of its own there, too' 'no nvcc'
fi

images=$(find "$build_root" -name 'spmt-sm_*.ptx' | sort)
if [ -n "$images" ]; then
	# shellcheck disable=SC2086 # a list of files
	nothing_in "the library's kernels have none" "$(grep -lE 'multimem|proxy[.]alias' $images)"
else
	skip "the library's kernels have none" "no images in $build_root"
fi
plan

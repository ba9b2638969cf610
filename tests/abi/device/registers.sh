#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Kernels of `ll`, `push2`, `twoshot` and plans of packets put no register into memory: they are made small for that. In the library's images as they were built; what is not
# installed or was not built is skipped by name.
. "$(dirname "$0")/../lib.sh"

# amd FILE: those that have memory of each thread's own, or put vector registers there; and of all kernels, where more than 1024 bytes are
# a thread's: a compiler that does not see how deep calls go guesses 16 KiB.
amd() {
	llvm-readelf-19 --notes "$1" | awk '
		/ \.name: +spmt_kernel_/ { name = $2 }
		/\.private_segment_fixed_size:/ { bytes = $2 }
		/\.vgpr_spill_count:/ {
			if (bytes > 1024) print name ": " bytes " bytes of memory"
			if (name !~ /^spmt_kernel_(ll|ll12|push2|twoshot|plan_packets)_/) next
			n++
			if (bytes || $2) print name ": " bytes " bytes of memory, " $2 " registers there"
		}
		END { if (n != 80) print n + 0 " kernels of ll, push2, twoshot and packets" }'
}

# stacks FILE: of each kernel of a cubin its name, and the bytes of stack that a thread of it has: what ptxas puts into memory is there.
# A record of .nv.info: format, what, size, and here a symbol and its bytes.
stacks() {
	local at size
	read -r at size < <(readelf -SW "$1" 2>/dev/null | sed -n 's/.* \.nv\.info  *[^ ]* *[^ ]* \([^ ]*\) \([^ ]*\) .*/\1 \2/p')
	{
		readelf -sW "$1" 2>/dev/null
		od -An -v -t u1 -w1 -j "$((16#${at:-0}))" -N "$((16#${size:-0}))" "$1"
	} | awk '
			/^ *[0-9]+: / { name[$1 + 0] = $NF }
			NF == 1 { b[n++] = $1 }
			function word(at) { return b[at] + 256 * b[at + 1] + 65536 * b[at + 2] }
			END {
				for (i = 0; i + 4 <= n; i += 4 + size) {
					size = b[i] == 4 ? b[i + 2] + 256 * b[i + 3] : 0
					if (b[i] == 4 && b[i + 1] == 17) print name[word(i + 4)], word(i + 8)
				}
			}'
}

# nvidia CUBIN: those that have a stack
nvidia() {
	stacks "$1" | awk '
		$1 !~ /^spmt_kernel_(ll|ll12|push2|twoshot|plan_packets)_/ { next }
		{ n++ }
		$2 { print $1 ": " $2 " bytes of memory" }
		END { if (n != 107) print n + 0 " kernels of ll, ll12, push2, twoshot and packets" }'
}

# large_stacks CUBIN: where kernels want more stack than CUDA sets aside for each thread, 1024 bytes (cudaLimitStackSize): to launch one
# makes the driver wait for every kernel that runs.
large_stacks() {
	stacks "$1" | awk '$2 > 1024 { print $1 ": " $2 " bytes" } END { if (NR < 80) print NR " kernels" }'
}

images=$(find "$build_root" \( -name 'spmt-gfx*.hsaco' -o -name 'spmt-sm_*.ptx' \) | sort)
[ -n "$images" ] || skip "no register goes to memory, in every image" "no device images in $build_root"
for image in $images; do
	name="no register goes to memory, image ${image#"$build_root"/}"
	arch=$(basename "$image" .ptx)
	case $image in
	*.hsaco)
		if command -v llvm-readelf-19 >/dev/null; then
			nothing_in "$name" "$(amd "$image")"
		else
			skip "$name" "no llvm-readelf-19"
		fi
		;;
	*)
		if [ -e "${image%.ptx}.cubin" ]; then
			nothing_in "$name" "$(nvidia "${image%.ptx}.cubin")"
			nothing_in "no kernel of spmt-${arch#spmt-} has more than a driver's 1024 bytes a thread" \
				"$(large_stacks "${image%.ptx}.cubin")"
		else
			skip "$name" "no ptxas when it was built"
		fi
		;;
	esac
done
echo "1..$tests"

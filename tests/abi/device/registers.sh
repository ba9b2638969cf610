#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Kernels of `ll` and `twoshot` put no register into memory: they are made small for that. In the library's images as they were built; what is not
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
			if (name !~ /^spmt_kernel_(ll|ll2|twoshot)_/) next
			n++
			if (bytes || $2) print name ": " bytes " bytes of memory, " $2 " registers there"
		}
		END { if (n != 54) print n + 0 " kernels of ll and twoshot" }'
}

# nvidia FILE ARCH: what ptxas says that is stored or loaded
nvidia() {
	local entries
	mapfile -t entries < <(sed -n 's/^\.visible \.entry \(spmt_kernel_\(ll\|ll2\|twoshot\)_[a-z0-9_]*\)(.*/--entry=\1/p' "$1")
	[ ${#entries[@]} = 54 ] || echo "${#entries[@]} kernels of ll and twoshot"
	[ ${#entries[@]} = 0 ] || "$ptxas" -v -arch="$2" -O3 "${entries[@]}" "$1" -o "$scratch/cubin" 2>&1 |
		awk '/Function properties for/ { name = $NF } /spill/ && !/ 0 bytes spill stores, 0 bytes spill loads/ { print name ": " $0 }'
}

# large_stacks FILE: where a cubin's kernels want more stack than CUDA sets aside for each thread, 1024 bytes (cudaLimitStackSize): to
# launch one makes the driver wait for every kernel that runs. A record of .nv.info: format, what, size, and here a symbol and its bytes.
large_stacks() {
	local at size
	read -r at size < <(readelf -SW "$1" 2>/dev/null | sed -n 's/.* \.nv\.info  *[^ ]* *[^ ]* \([^ ]*\) \([^ ]*\) .*/\1 \2/p')
	od -An -v -t u1 -w1 -j "$((16#${at:-0}))" -N "$((16#${size:-0}))" "$1" | awk '
			{ b[NR - 1] = $1 }
			END {
				for (i = 0; i + 4 <= NR; i += 4 + size) {
					size = b[i] == 4 ? b[i + 2] + 256 * b[i + 3] : 0
					if (b[i] == 4 && b[i + 1] == 17) {
						n++
						bytes = b[i + 8] + 256 * b[i + 9] + 65536 * b[i + 10]
						if (bytes > 1024) print bytes " bytes"
					}
				}
				if (n < 54) print n + 0 " kernels"
			}' | sort -u
}

ptxas=$(command -v ptxas || echo /usr/local/cuda/bin/ptxas)
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
		if [ -x "$ptxas" ]; then
			nothing_in "$name" "$(nvidia "$image" "${arch#spmt-}")"
			nothing_in "no kernel of spmt-${arch#spmt-} has more than a driver's 1024 bytes a thread" \
				"$(large_stacks "${image%.ptx}.cubin")"
		else
			skip "$name" "no ptxas"
		fi
		;;
	esac
done
echo "1..$tests"

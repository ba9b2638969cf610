#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The public headers compile alone, whatever the language, standard and compiler.
. "$(dirname "$0")/lib.sh"

warnings=(-Wall -Wextra -Wpedantic -Wundef -Wconversion -Werror)

# alone HEADER COMPILER LANGUAGE STANDARD
alone() {
	local name="$1 with $2 as $4"
	if ! command -v "$2" >/dev/null; then
		skip "$name" "no $2"
		return
	fi
	printf '#include "%s"\n#include "%s"\nint main(void);\nint main(void) { return 0; }\n' "$1" "$1" >"$scratch/probe"
	succeeds "$name" "$2" -x "$3" "-std=$4" "${warnings[@]}" -Iinclude -fsyntax-only "$scratch/probe"
}

mapfile -t parts < <(cd include && printf '%s\n' spmt_device/*.h)
for header in spmt.h spmt_channel.h spmt_device.h spmt_plan.h; do
	for compiler in gcc clang; do
		for standard in c11 c17; do
			alone "$header" "$compiler" c "$standard"
		done
	done
	for compiler in g++ clang++; do
		for standard in c++11 c++17; do
			alone "$header" "$compiler" c++ "$standard"
		done
	done
done
for header in "${parts[@]}"; do # parts of those: each compiler and each standard once
	alone "$header" gcc c c11
	alone "$header" clang c c17
	alone "$header" g++ c++ c++17
	alone "$header" clang++ c++ c++11
done

# All of them are installed, and the one file that is made of the device header.
if [ -e "$build_root/meson-info/intro-installed.json" ]; then
	for header in spmt.h spmt_channel.h spmt_device.h spmt_device_all.h spmt_plan.h "${parts[@]}"; do
		grep -qE "\"[^\"]*/include/$header\"" "$build_root/meson-info/intro-installed.json" || echo "$header"
	done >"$scratch/missing"
	nothing_in 'every public header is installed' "$(cat "$scratch/missing")"
	nothing_in 'spmt_device_all.h is what the parts are' \
		"$(awk -f include/one_file.awk include/spmt_device.h | diff - "$build_root/include/spmt_device_all.h" 2>&1 | head)"
else
	skip 'every public header is installed' "no build in $build_root"
fi

# macros COMPILER FLAG..: what a strict C++ program says of the macros and of the bodies
macros() {
	local compiler="$1"
	shift
	if ! command -v "$compiler" >/dev/null; then
		skip "macros with $compiler" "no $compiler"
		return
	fi
	cat >"$scratch/probe.cpp" <<-'END'
		#include "spmt.h"
		#include "spmt_device.h"
		#include "spmt_plan.h"
		int f(spmt_comm *c, const spmt_view *v, uint64_t *w);
		int f(spmt_comm *c, const spmt_view *v, uint64_t *w)
		{
			spmt_attr attr = SPMT_ATTR_INIT;
			SPMT_GUARD(c); SPMT_GUARD(c);
			{ SPMT_GUARD(c); }
			spmtd_uint64_p(v, w, 1, 0);
			return spmt_quiet_on_stream(c, SPMT_STREAM_LEGACY) + attr.device +
				spmt_quiet_on_stream(c, SPMT_STREAM_PER_THREAD);
		}
	END
	succeeds "macros with $compiler" "$compiler" -std=c++11 "${warnings[@]}" -Wshadow -Wold-style-cast "$@" -Iinclude -c \
		-o /dev/null "$scratch/probe.cpp"
}
macros g++ -Wuseless-cast
macros clang++

# The device header's macros stay, for those who build on it, and begin as its names do.
# prefixed LABEL COMPILER FLAG..
printf '#include <stddef.h>\n#include <stdint.h>\n' >"$scratch/bare.c"
echo '#include "spmt_device.h"' >"$scratch/whole.c"
prefixed() {
	local name="macros of spmt_device.h begin with SPMT, $1" which
	shift
	if ! command -v "$1" >/dev/null; then
		skip "$name" "no $1"
		return
	fi
	for which in bare whole; do
		"$@" -Iinclude -E -dM "$scratch/$which.c" | sed -nE 's/^#define ([A-Za-z0-9_]+).*/\1/p' | sort >"$scratch/$which"
	done
	comm -13 "$scratch/bare" "$scratch/whole" >"$scratch/own"
	nothing_in "$name" "$(grep -vE '^SPMTD?_' "$scratch/own"; grep -qx SPMTD_FN "$scratch/own" || echo 'there is no SPMTD_FN')"
}
prefixed host gcc -std=c11
prefixed gfx942 clang-19 -std=c11 --target=amdgcn-amd-amdhsa -mcpu=gfx942 -nogpulib -ffreestanding
prefixed sm_90 clang-19 -std=c11 --target=nvptx64-nvidia-cuda -march=sm_90 -nogpulib -ffreestanding

# device HEADER LABEL FLAG..: a device header for a GPU, bodies included
device() {
	local header=$1 name="$1 for $2"
	shift 2
	if ! command -v clang-19 >/dev/null; then
		skip "$name" 'no clang-19'
		return
	fi
	echo "#include \"$header\"" >"$scratch/probe.c"
	succeeds "$name" clang-19 -std=c11 "$@" -ffreestanding -nogpulib -Wall -Wextra -Werror -Iinclude -fsyntax-only "$scratch/probe.c"
}
for header in spmt_channel.h spmt_device.h "${parts[@]}"; do
	device "$header" 'gfx942, C' --target=amdgcn-amd-amdhsa -mcpu=gfx942
	device "$header" 'sm_90, C' --target=nvptx64-nvidia-cuda -march=sm_90
done
plan

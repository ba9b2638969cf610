#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A folder is a layer: src <- heap <- transports <- spmt, and inside spmt address <- bootstrap <- job <- control <- lane <- comm <- nodes <- proxy <- calls <- collective <- plan <- plan/rows <- life. Quoted includes point down or stay, tests and tools may see all,
# the public headers see each other only.
. "$(dirname "$0")/lib.sh"

declare -A layer=([include]=0 [src]=1 [heap]=2 [transports]=3
	[spmt/address]=4 [spmt/bootstrap]=5 [spmt/job]=6 [spmt/control]=7 [spmt/lane]=8 [spmt/comm]=9 [spmt/nodes]=10 [spmt/proxy]=11 [spmt/calls]=12 [spmt/collective]=13 [spmt/plan]=14 [spmt/plan/rows]=15 [spmt/life]=16)

# floor = the layer of a file: of its folder in spmt, else of the top folder.
layer_of() {
	local folder=${1%/*}
	floor=${layer[$folder]:-${layer[${1%%/*}]:-99}}
}

# "file<TAB>included path", for quoted and angle-bracket includes alike
includes() {
	sources "$@" | xargs grep -nHoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<][^">]+' |
		sed -E 's/^([^:]+):[0-9]+:.*(["<])([^">]+)$/\1\t\2\t\3/'
}

# target = the included file as a path from the top, empty if it is none of ours.
resolve() {
	local path
	target=''
	for path in "${1%/*}/$2" "$2" "include/$2"; do
		if [ -f "$path" ]; then
			target=$path
			break
		fi
	done
	while [[ $target =~ ^(.*/)?[^/.]+/\.\./(.*)$ ]]; do
		target=${BASH_REMATCH[1]}${BASH_REMATCH[2]}
	done
}

upward='' unknown=''
while IFS=$'\t' read -r file kind path; do
	resolve "$file" "$path"
	if [ -z "$target" ]; then
		[ "$kind" = '<' ] || unknown+="$file includes \"$path\", which is not in the tree"$'\n'
		continue
	fi
	layer_of "$file" && from=$floor
	layer_of "$target" && to=$floor
	[ "$to" -le "$from" ] || upward+="$file includes $target"$'\n'
done < <(includes include src heap transports spmt)
nothing_in 'includes point down only' "${upward%$'\n'}"
nothing_in 'every quoted include is a file of the tree' "${unknown%$'\n'}"

# The same of what is called: a function without a header of its own hides where it is.
calls_up=$(nm "$build_root/libspmt-core.a" 2>/dev/null | awk -v order='src heap transports spmt_address spmt_bootstrap spmt_job spmt_control spmt_lane spmt_comm spmt_nodes spmt_proxy spmt_calls spmt_collective spmt_plan spmt_plan_rows spmt_life' '
	BEGIN { n = split(order, folder, " ") }
	/:$/ { file = $1; sub(/:$/, "", file); sub(/.*\//, "", file); floor = 0; for (i = 1; i <= n; i++) if (index(file, folder[i] "_") == 1) floor = i }
	NF == 3 && $2 ~ /[TDBRVC]/ { defined_in[$3] = file; at[$3] = floor }
	NF == 2 && $1 == "U" { uses[file "\t" $2] = floor }
	END { if (at["spmt_init"] != n) print "spmt_init is not on the top floor"
		for (u in uses) { split(u, part, "\t"); if (uses[u] && at[part[2]] > uses[u]) print part[1] " uses " part[2] " of " defined_in[part[2]] } }' | sort)
nothing_in 'calls point down only' "$calls_up"

vendor='^(hip|hsa|cuda|cuda_runtime|nvrtc|rocm|roctracer|nccl|rccl|nvml|level_zero)([/_.].*)?$|^(cuda|hip|cu)[A-Za-z_]*[.]h$|/opt/rocm'
found=$(includes include src heap transports spmt tools | awk -F'\t' -v re="$vendor" '$2 == "<" && $3 ~ re { print $1 " includes " $3 }')
nothing_in 'no vendor header' "$found"

# A part may include its neighbours; the program's folder is not theirs.
found=$(includes include/spmt_device.h include/spmt_device | awk -F'\t' '$3 != "stdint.h" && $3 != "stddef.h" &&
	!($2 == "\"" && $3 ~ ($1 ~ /spmt_device[.]h$/ ? "^spmt_device/[a-z]+[.]h$" : "^[a-z]+[.]h$")) { print $1 " includes " $3 }')
nothing_in 'spmt_device.h includes its parts, stdint.h and stddef.h only' "$found"
found=$(includes include/spmt.h | awk -F'\t' '$3 != "stdint.h" && $3 != "stddef.h" && $3 != "spmt_device.h" { print $3 }')
nothing_in 'spmt.h includes stdint.h, stddef.h and spmt_device.h only' "$found"

# MIN_OF and MAX_OF read what they take twice: of a clock, or of a word of other threads, that may be another one.
twice=$(sources src heap transports spmt bindings tools |
	xargs grep -nE '\<(MIN|MAX)_OF\(.*\<(process_(now|left)|atomic_[a-z_]+)\(')
nothing_in 'MIN_OF and MAX_OF are given no clock and no word that others write' "$twice"

# Each header stands on its own. What a source includes before all else does so where that is compiled.
firsts=$(includes src heap transports spmt tests tools | awk -F'\t' '$1 ~ /[.]c$/ && !seen[$1]++ && $2 == "\"" { print $1 "\t" $3 }' |
	while IFS=$'\t' read -r file path; do resolve "$file" "$path"; done | sort -u)
for header in $(sources src heap transports spmt tests tools | grep '[.]h$' | grep -vxF "$firsts"); do
	succeeds "$header compiles alone" gcc -std=gnu11 -D_GNU_SOURCE -DSPMT_HAVE_HWLOC=0 -Wall -Wextra -Werror \
		-I. -Iinclude -Itests -fsyntax-only -x c "$header" -Wno-unused
done
plan

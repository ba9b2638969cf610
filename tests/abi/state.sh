#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Mutable file-scope state is on a list, tests/abi/state.allow: "file variable reason", one a line.
. "$(dirname "$0")/lib.sh"

allow=tests/abi/state.allow
most=14

grep -vE '^(#|$)' "$allow" >"$scratch/allow"
awk '{ gsub("/", "_", $1); print $1 " " $2 }' "$scratch/allow" | sort >"$scratch/allowed"

# objects of the static core in .data and .bss as "file variable"; .data.rel.ro is constant
objdump -t "$build_root/libspmt-core.a" | awk '
	/file format/ { file = $1; sub(/.*\//, "", file); sub(/:$/, "", file); sub(/\.o$/, "", file) }
	$0 ~ / O \.(data|bss)(\.[^r][^ ]*)?\t/ || $0 ~ / O \*COM\*\t/ { print file " " $NF }
	' | grep -vE ' __(asan|tsan|ubsan|sancov)' | sort >"$scratch/found"

nothing_in 'no mutable state outside the list' "$(comm -13 "$scratch/allowed" "$scratch/found")"
nothing_in 'no line of the list without its variable' "$(comm -23 "$scratch/allowed" "$scratch/found")"
nothing_in 'one variable a file' "$(cut -d' ' -f1 "$scratch/found" | uniq -d)"
nothing_in "at most $most entries" "$([ "$(wc -l <"$scratch/allow")" -le "$most" ] || wc -l <"$scratch/allow")"
nothing_in 'every line gives a reason' "$(awk 'NF < 4' "$scratch/allow")"
plan

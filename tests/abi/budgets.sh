#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lengths: files, private headers, functions, folders. Macros that hide control flow.
. "$(dirname "$0")/lib.sh"

library='src heap transports spmt'

# over LIMIT FILE..
over() {
	local limit=$1
	shift
	wc -l "$@" | awk -v limit="$limit" '$2 != "total" && $1 > limit { print $2 ": " $1 " lines" }'
}

# "lines file:line name excused" for every function body; the opening brace stands alone in column one
functions() {
	awk '
	FNR == 1 { open = 0; excused = 0; head = "" }
	/^\{/ && head != "" { open = FNR }
	/^\}/ && open { print FNR - open - 1, FILENAME ":" open, head, excused; open = 0; excused = 0; head = "" }
	!open && /^(\/\*| \*|\t| )/ { if (/long because/) excused = 1; next }
	!open && /^[a-zA-Z].*\(/ { head = $0; sub(/\(.*/, "", head); sub(/.*[ *]/, "", head) }
	!open && /^$/ { excused = 0; head = "" }
	' "$@"
}

# shellcheck disable=SC2086 # lists of folders
{
	mapfile -t c_files < <(sources $library tools tests bench | grep '[.]c$')
	mapfile -t library_files < <(sources $library | grep '[.]c$')
	mapfile -t headers < <(sources $library tools tests bench | grep '[.]h$')
}

nothing_in '.c files have at most 600 lines' "$(over 600 "${c_files[@]}")"
nothing_in 'private headers have at most 150 lines' "$(over 150 "${headers[@]}")"

# shellcheck disable=SC2086
nothing_in 'a folder has at most 25 sources' "$(sources $library include tools tests bench examples | grep -vE '(^|/)meson[.]build$' | sed 's|/[^/]*$||' | sort | uniq -c |
	awk '$1 > 25 { print $2 ": " $1 }')"

functions "${c_files[@]}" >"$scratch/all"
nothing_in 'functions over 80 lines say why they are long' \
	"$(awk '$1 > 80 && !$4 { print $2 ": " $3 " has " $1 " lines" }' "$scratch/all")"
functions "${library_files[@]}" | sort -n >"$scratch/library"
n=$(wc -l <"$scratch/library")
median=$(awk -v at=$(((n + 1) / 2)) 'NR == at { print $1 }' "$scratch/library")
p90=$(awk -v at=$((n * 9 / 10)) 'NR == at { print $1 }' "$scratch/library")
nothing_in 'the library has functions to measure' "$([ "$n" -ge 10 ] || echo "$n found")"
nothing_in "the median function has at most 12 lines ($median)" "$([ "${median:-99}" -le 12 ] || echo "$median")"
nothing_in "nine in ten have at most 40 ($p90)" "$([ "${p90:-99}" -le 40 ] || echo "$p90")"

# A macro that defines whole functions is named DEFINE_..; its returns are theirs.
# shellcheck disable=SC2086
hidden=$(sources $library | xargs awk '
	FNR == 1 { inside = 0 }
	/^[ \t]*#[ \t]*define/ { inside = $2 !~ /^DEFINE_/; name = $2 }
	inside && /(^|[^a-zA-Z0-9_"])(return|goto)([^a-zA-Z0-9_]|$)/ { print FILENAME ":" FNR ": " name }
	inside && !/\\$/ { inside = 0 }
	')
nothing_in 'no macro hides a return or a goto' "$hidden"
plan

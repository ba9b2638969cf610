#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What README.md, CHANGELOG.md, docs/ and tests/README.md name is there: files, names of the library, options of its tools, links.
. "$(dirname "$0")/lib.sh"

documents=(README.md CHANGELOG.md docs/*.md tests/README.md)

# "file<TAB>span": what stands between backticks, outside of fenced blocks
spans() {
	awk 'FNR == 1 { fenced = 0 }
		/^```/ { fenced = !fenced; next }
		fenced { next }
		{ n = split($0, part, "`"); for (i = 2; i <= n; i += 2) if (i < n) print FILENAME "\t" part[i] }' "$@"
}

# The lines of fenced blocks likewise.
fences() {
	awk 'FNR == 1 { fenced = 0 } /^```/ { fenced = !fenced; next } fenced { print FILENAME "\t" $0 }' "$@"
}

# "file<TAB>match" for every match of a regular expression in what spans and fences give, once.
matches() { # RE FILE..
	local re=$1
	shift
	{ spans "$@"; fences "$@"; } | awk -F '\t' -v re="$re" '{ rest = $2
		while (match(rest, re)) { print $1 "\t" substr(rest, RSTART, RLENGTH); rest = substr(rest, RSTART + RLENGTH) } }' | sort -u
}

# not_among FILE: of "file<TAB>word" lines those whose word is not in FILE, as "file: word"
not_among() {
	awk -F '\t' 'NR == FNR { known[$1]; next } !($2 in known) { print $1 ": " $2 }' "$1" -
}

# A path begins with a folder of the tree. <name> stands for any.
no_such_file() {
	local file path
	matches '(^|[^A-Za-z0-9_./<>-])([.]ci|bench|bindings|docs|examples|heap|include|spmt|src|tests|tools|transports)/[A-Za-z0-9_./*<>+-]*' "$@" |
		while IFS=$'\t' read -r file path; do
			path=${path#[!a-z.]}
			# tests/flow-streams is what is built of tests/flow/streams/streams.c
			[[ $path = *'<'* ]] || compgen -G "${path/-//*/}.c" >/dev/null || compgen -G "${path%.}" >/dev/null || echo "$file: $path"
		done
}

# The words of the headers as a compiler sees them, which makes the typed names of kernels, and those of the tree. A name that ends
# with _ stands for those that begin so: spmt_wait_until_*.
printf '#include "spmt.h"\n#include "spmt_device.h"\n#include "spmt_plan.h"\n' >"$scratch/probe.c"
name_re='\b(spmtd?|SPMTD?)_[A-Za-z0-9_]+'
{
	gcc -std=gnu11 -Iinclude -E -P "$scratch/probe.c"
	cat src/libspmt.map tests/abi/lib.sh tests/plans/published
	sources include src heap transports spmt bindings tools tests | xargs cat
	cat bindings/python/spmt/*.py
} | grep -oE "$name_re" | sort -u >"$scratch/exact"
awk '{ print; for (i = 5; i < length($0); i++) if (substr($0, i, 1) == "_") print substr($0, 1, i) }' "$scratch/exact" | sort -u >"$scratch/known"
nothing_in 'names of the library are known at all' "$(grep -qx spmtd_uint64_atomic_fetch_add "$scratch/known" || echo 'none for kernels')"
no_such_name() {
	matches '(^|[^A-Za-z0-9_])(spmtd?|SPMTD?)_[A-Za-z0-9_]+' "$@" | sed -E 's/\t[^sS]/\t/' | sort -u | not_among "$scratch/known"
}

# Names inside the library: `struct link`, `enum map_kind`, `coll_run`, `link->base`. Those of others begin as theirs do.
{ sources include src heap transports spmt bindings tests | xargs cat; cat bindings/python/spmt/*.py; } | grep -oE '\b[A-Za-z_][A-Za-z0-9_]*' | sort -u >"$scratch/words"
no_such_word() {
	spans "$@" | awk -F '\t' '$2 ~ /^((struct|enum|union) )?[a-z][a-z0-9_]*(->[a-z_]+)?$/ && $2 ~ /[ _>]/ &&
		$2 !~ /^(nvshmemx?|shmem|nccl|hip|cuda|memfd|spmtd?)_/ {
			sub(/^(struct|enum|union) /, "", $2); sub(/->/, "\t", $2)
			n = split($2, word, "\t"); for (i = 1; i <= n; i++) print $1 "\t" word[i] }' | sort -u |
		not_among <(cat "$scratch/words"; find tests/flow tests/unit -name '*.c' -exec basename -s .c {} +)
}

# Options of the tools, from their own help.
help_of() {
	case $1 in
	bench/* | tools/* | tests/*) "$1" --help ;;
	*) LD_LIBRARY_PATH=$build_root "$build_root/$1" --help ;;
	esac 2>&1
}
no_such_option() {
	local file command tool
	matches '(spmt-info|spmt-perf|spmt-demo|tools/(test|mutate)|tests/gpu/run|bench/[a-z-]+) --[a-z-]+' "$@" | while IFS=$'\t' read -r file command; do
		tool=${command%% *}
		help_of "$tool" | grep -F -- "${command#* }" >/dev/null || echo "$file: $command"
	done
}

# A heading as an anchor: lower case, letters, digits, - and _, a - for each blank.
anchors() {
	grep -E '^#+ ' "$1" | sed -E 's/^#+ //' | tr '[:upper:]' '[:lower:]' | tr -cd 'a-z0-9_ \n-' | tr ' ' '-'
}
no_such_link() {
	local file to path
	grep -oHE '\]\([^)]+\)' "$@" | sed -E 's/^([^:]*):\]\((.*)\)$/\1\t\2/' | while IFS=$'\t' read -r file to; do
		[[ $to != *://* ]] || continue
		path=${to%%#*}
		path=$(dirname "$file")/${path:-$(basename "$file")}
		if [ ! -e "$path" ]; then
			echo "$file: $to"
		elif [[ $to = *#* ]] && ! anchors "$path" | grep -qx -- "${to#*#}"; then
			echo "$file: $to: no such heading"
		fi
	done
}

# suite/test of Criterion's, where a document names no file by it
no_such_test() { # FILE
	local file name
	spans "$1" | grep -E $'\t[a-z0-9_]+/[a-z0-9_]+$' | while IFS=$'\t' read -r file name; do
		[ -e "$name" ] || [ "$name" = suite/test ] || grep -rqE "^Test\(${name%/*}, *${name#*/}\>" tests || echo "$file: $name"
	done
}

nothing_in 'files that are named are there' "$(no_such_file "${documents[@]}")"
nothing_in 'names of the library that are named are there' "$(no_such_name "${documents[@]}")"
nothing_in 'names inside the library likewise' "$(no_such_word "${documents[@]}")"
nothing_in 'options of tools that are named are there' "$(no_such_option "${documents[@]}")"
nothing_in 'links lead somewhere' "$(no_such_link "${documents[@]}")"
nothing_in 'tests that are named are there' "$(no_such_test docs/mended.md)"
nothing_in 'fenced blocks are closed' "$(for file in "${documents[@]}"; do [ $(($(grep -c '^```' "$file") % 2)) = 0 ] || echo "$file"; done)"
nothing_in 'docs/README.md leads to every document' "$(for file in docs/*.md CHANGELOG.md tests/README.md; do
	[ "$file" = docs/README.md ] || grep -qF "${file#docs/})" docs/README.md || echo "$file"
done)"
nothing_in 'and to every example' "$(for file in examples/*; do grep -qF "\`$file\`" docs/README.md || echo "$file"; done)"
lines=$(wc -l <README.md)
nothing_in "README.md has at most 150 lines ($lines)" "$([ "$lines" -le 150 ] || echo "$lines")"
version=$(sed -nE "s/^  version: '(.*)',/\1/p" meson.build)
nothing_in "CHANGELOG.md has $version" "$(grep -q "^## $version" CHANGELOG.md || grep '^## ' CHANGELOG.md)"

# It sees what is wrong.
bad=$scratch/bad.md
# shellcheck disable=SC2016 # backticks
printf '%s\n' 'See `src/none.c`, `tests/none/all*`, `spmt_nothing()`, `spmtd_int7_put`, `struct nothing_of_it`, `no_such_row`,' \
	'`told/nothing_of_it`, `spmt-info --nothing`, [there](none.md) and [here](#none).' '# Something else' >"$bad"
sees() { # NAME FOUND WANTED..
	nothing_in "seen: $1" "$(diff <(echo "${2//$scratch\//}") <(printf '%s\n' "${@:3}"))"
}
sees 'a file that is not there' "$(no_such_file "$bad")" 'bad.md: src/none.c' 'bad.md: tests/none/all*'
sees 'a name that is not there' "$(no_such_name "$bad")" 'bad.md: spmt_nothing' 'bad.md: spmtd_int7_put'
sees 'a word that is not there' "$(no_such_word "$bad")" 'bad.md: no_such_row' 'bad.md: nothing_of_it'
sees 'a test that is not there' "$(no_such_test "$bad")" 'bad.md: told/nothing_of_it'
sees 'an option that is not there' "$(no_such_option "$bad")" 'bad.md: spmt-info --nothing'
sees 'a link that leads nowhere' "$(no_such_link "$bad")" 'bad.md: none.md' 'bad.md: #none: no such heading'
plan

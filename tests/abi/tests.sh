#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A test that is written is run: every source of a test is one of meson's tests or targets. tests/README.md has a row for every folder and
# every step.
. "$(dirname "$0")/lib.sh"

# Of this build, which may lack Criterion; what it lacks by its options stands in meson.build.
meson introspect --tests "$build_root" | grep -oE '"name": "[^"]*"' | cut -d '"' -f 4 | sort -u >"$scratch/run"
nothing_in 'meson has tests' "$([ "$(wc -l <"$scratch/run")" -gt 30 ] || cat "$scratch/run")"
# What runs over stand-ins alone wants the library's images as well, and tests/fakes/meson.build names its file.
is_run() { # KIND: of lines with a path each those that are no test
	local kind=$1 path name
	while read -r path; do
		name=$(basename "${path%.*}")
		grep -qxF -- "$kind-$name" "$scratch/run" || grep -qE "'(\.\./$kind/$name\.c|$name', '(cuda|hip))'" tests/fakes/meson.build || echo "$path: no test $kind-$name"
	done
}
written() { # PATTERN FOLDER
	find "$2" -name '*.c' -exec grep -lE "$1" {} + | sort
}

if grep -q '^unit-' "$scratch/run"; then
	for kind in unit flow fault; do
		written '^(Parameterized)?Test\(' "tests/$kind" >"$scratch/written"
		nothing_in "tests/$kind has suites" "$([ -s "$scratch/written" ] || echo none)"
		nothing_in 'and each is run' "$(is_run "$kind" <"$scratch/written")"
	done
else
	skip 'suites of Criterion are run' 'no Criterion'
fi
written '^int main\(' tests/stress >"$scratch/written"
nothing_in 'tests/stress has programs' "$([ -s "$scratch/written" ] || echo none)"
nothing_in 'and each is run' "$(is_run stress <"$scratch/written")"
for kind in abi flow; do
	# A script that others source, or that is asked for by name with arguments, has no plan of its own.
	find "tests/$kind" -name '*.sh' -exec grep -LE '^# Sourced by|^# vendor[.]sh ' {} + | sort >"$scratch/written"
	nothing_in "tests/$kind has scripts" "$([ -s "$scratch/written" ] || echo none)"
	nothing_in 'and each is run' "$(is_run "$kind" <"$scratch/written")"
done
sed -n '/^fuzz_targets = \[/,/^\]/p' tests/meson.build | grep -oE "'.*'" | tr -d "'" | sort >"$scratch/targets"
nothing_in 'the fuzz targets are those of meson.build' "$(diff <(find tests/fuzz -name '*.c' -exec basename -s .c {} + | sort) "$scratch/targets")"
sed -n '/^gpu_programs = {/,/^}/p' tests/gpu/meson.build | sed -nE "s/^  '([a-z_]+)'.*/\1/p" | sort >"$scratch/programs"
nothing_in 'the GPU programs of meson.build are those that tests/gpu/run runs' \
	"$(sed -nE 's/^all_programs=\((.*)\)/\1/p' tests/gpu/run | tr ' ' '\n' | sort | diff - "$scratch/programs")"

text=$(<tests/README.md)
nothing_in 'every folder has its row in tests/README.md' "$(for folder in tests/*/; do
	grep -qF "| \`${folder%/}" <<<"$text" || grep -qE "^\|.*\| \`${folder%/}" <<<"$text" || echo "$folder"
done)"
grep -oE '^\| (`[a-z]+`,? ?)+\|' tests/README.md | grep -oE '[a-z]+' | sort >"$scratch/steps"
bash tools/test --list | grep -xE '[a-z]+' | grep -vx gpu | sort >"$scratch/list"
nothing_in 'every step of tools/test is in its table' "$(diff "$scratch/list" "$scratch/steps")"
plan

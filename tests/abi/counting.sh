#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What tools/test counts, on a stand-in for meson: lines of tests, and that a filter or a folder which gives nothing is a failure.
. "$(dirname "$0")/lib.sh"
. tools/lib.sh

counts=$scratch/counts failures=$scratch/failures unsteady=$scratch/unsteady
: >"$failures"
: >"$unsteady"

# Writes the log of one test with $lines; when it is asked for again, with $then. Fails as meson does, or with $broken whatever the test.
broken=''
meson() {
	local told=$lines
	echo "$*" >>"$scratch/runs"
	[ "${*: -1}" != t ] || told=$then
	mkdir -p "$scratch/meson-logs"
	printf '{"name": "p:s / t", "stdout": "%s", "result": "OK", "returncode": 0, "duration": 0.1, "stderr": ""}\n' "$told" \
		>"$scratch/meson-logs/testlog.json"
	[[ -z $broken && $told != *'not ok'* ]]
}

# counted NAME FUNCTION STATUS COUNTS LINES [LINES OF A SECOND RUN]
counted() {
	local rc=0 lines=$5 then=${6:-$5}
	: >"$counts"
	"$2" "$scratch" >/dev/null || rc=$?
	nothing_in "$1" "$([ "$rc, $(paste -sd' ' "$counts")" = "$3, $4" ] || echo "$rc, $(cat "$counts")")"
}

# told_in FILE OTHER: what is wrong where the test is to be in one alone.
told_in() {
	grep -q 'p:s / t' "$1" || echo 'not told'
	cat "$2"
}

ran='ok - a\nok - b # SKIP not here\n' none='ok - a # SKIP\nok - b # SKIP\n' bad='not ok - a\n'
counted 'what passed and what was skipped' meson_test 0 '1 0 1' "$ran"
counted 'nothing but skipped tests is fine where nobody asked for one' meson_test 0 '0 0 2' "$none"
counted 'one that was asked for has run' meson_test_some 0 '1 0 1' "$ran"
counted 'one that fails twice has failed' meson_test_some 1 '0 1 0' "$bad"
nothing_in 'as is told at the end' "$(told_in "$failures" "$unsteady")"
: >"$failures"
counted 'one that passes when it runs once more has passed' meson_test 0 '1 0 0' "$bad" 'ok - a\n'
nothing_in 'and is told apart' "$(told_in "$unsteady" "$failures")"
: >"$scratch/runs"
broken=yes
counted 'where meson fails and no test has' meson_test 1 '1 0 0' 'ok - a\n'
nothing_in 'nothing runs again' "$([ "$(wc -l <"$scratch/runs")" = 1 ] || cat "$scratch/runs")"
broken=''
again_most=0
counted 'where many fail none runs again' meson_test 1 '0 1 0' "$bad" 'ok - a\n'
nothing_in 'no failure is told but of tests' "$(grep 'no test' "$failures")"
counted 'one that was asked for and is filtered out is a failure' meson_test_some 1 '0 0 2 0 1 0' "$none"
nothing_in 'which is told again at the end' "$(grep -q 'no test of that name has run' "$failures" || cat "$failures")"

mkdir "$scratch/sh"
touch "$scratch/sh"/{a,b,c}.sh

# looked NAME COUNTS PATTERN FOLDER..: what `true` is asked of.
looked() {
	local name=$1 want=$2
	shift 2
	: >"$counts"
	find_in_each "$@" 2>/dev/null | check_each look true >/dev/null
	nothing_in "$name" "$([ "$(sort -n "$counts" | paste -sd' ')" = "$want" ] || cat "$counts")"
}
looked 'files are looked at, one check each' '3 0 0' '*.sh' "$scratch/sh"
looked 'a folder without such files is a failure beside them' '0 1 0 3 0 0' '*.sh' "$scratch/sh" "$scratch/none"
looked 'and so is one whose files have other names' '0 1 0 0 1 0' '*.c' "$scratch/sh"
TMPDIR=$scratch/none looked 'and what cannot keep what was found' '0 1 0' '*.sh' "$scratch/sh" 2>/dev/null
plan

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What tools/test counts, on a stand-in for meson: lines of tests, and that a filter or a folder which gives nothing is a failure.
. "$(dirname "$0")/lib.sh"
. tools/lib.sh

counts=$scratch/counts failures=$scratch/failures
: >"$failures"

# Writes the log of one test with $lines.
meson() {
	mkdir -p "$scratch/meson-logs"
	printf '{"name": "t", "stdout": "%s", "result": "OK", "returncode": 0, "duration": 0.1, "stderr": ""}\n' "$lines" \
		>"$scratch/meson-logs/testlog.json"
}

# counted NAME FUNCTION STATUS COUNTS LINES
counted() {
	local rc=0 lines=$5
	: >"$counts"
	"$2" "$scratch" >/dev/null || rc=$?
	nothing_in "$1" "$([ "$rc, $(paste -sd' ' "$counts")" = "$3, $4" ] || echo "$rc, $(cat "$counts")")"
}

ran='ok - a\nok - b # SKIP not here\n' none='ok - a # SKIP\nok - b # SKIP\n' bad='not ok - a\n'
counted 'what passed and what was skipped' meson_test 0 '1 0 1' "$ran"
counted 'nothing but skipped tests is fine where nobody asked for one' meson_test 0 '0 0 2' "$none"
counted 'one that was asked for has run' meson_test_some 0 '1 0 1' "$ran"
counted 'one that failed has run, too' meson_test_some 0 '0 1 0' "$bad"
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
plan

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What tools/test counts, on a stand-in for meson: lines of tests, and that a filter which nothing matches is a failure.
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
plan

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Worlds over two nodes with real verbs: two virtual machines (two), each of which has a share of every world's ranks (scenes.sh). Two
# start for what is right, two for what is missing and for ends, the last of which is a machine's. SPMT_TEST_LONG=1: every call, too.
# two.sh once: whole worlds alone, for builds with sanitizers.
. "$(dirname "$0")/../abi/lib.sh"

# count MACHINES NAME..: so many have said that it is well.
log=''
count() {
	local wanted=$1 name
	shift
	for name; do
		nothing_in "$name" "$([ "$(grep -cFx "ok $name" <<<"$log")" = "$wanted" ] || { echo "exit status $status"; grep -F "ok $name" <<<"$log"; })"
	done
}

# machines LIMIT SCENE..: what they said, as a comment, too.
machines() {
	local limit=$1
	shift
	log=$(SPMT_BUILD=$build_root tests/vm/two --limit "$limit" tests/vm/scenes.sh "$@" 2>&1)
	status=$?
	grep -v '^ok ' <<<"$log" | sed 's/^/# /'
	if [ "$status" = 77 ]; then
		skip 'worlds over two virtual machines' "${log##*skipped: }"
		plan
		exit 0
	fi
}

if [ "${1:-}" = once ]; then
	machines 400 once reports
	count 2 '2 nodes of a rank' '2 nodes of 4 ranks' '2 nodes of 2 processes of 2 ranks' 'the example' 'no report of a sanitizer'
	plan
	exit 0
fi
machines 400 once suites
count 2 '2 nodes of a rank' '2 nodes of 4 ranks' '2 nodes of 2 processes of 2 ranks' 'the example' 'single calls' \
	'order and atomics under stress' 'up to 64 MiB'
if [ "${SPMT_TEST_LONG:-0}" != 0 ]; then # minutes
	machines 800 every_call
	count 2 'every call, 2 nodes of 4 ranks' 'every call, 2 nodes of 2 processes of 2 ranks'
fi
machines 300 missing ends
count 2 'no such device there' 'no libibverbs here' 'no libibverbs beside' 'a network that is gone'
count 1 'a killed process' 'a machine that is gone'
plan

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Execution plans of the kinds that MSCCL++ publishes (tests/fixtures/plans), and, with SPMT_MSCCLPP_PLANS=DIR, its own.
. "$(dirname "$0")/../../abi/lib.sh"

published=tests/plans/published
export SPMT_BUILD=$build_root

verdict() { # FILE PATTERN
	nothing_in "$1" "$(grep -qE -- "^$1.json	$2" "$scratch/out" || { echo "no $2 in:"; cat "$scratch/out"; })"
}

rc=0
"$published" tests/fixtures/plans >"$scratch/out" 2>&1 || rc=$?
nothing_in 'all are read' "$([ "$rc" = 0 ] || cat "$scratch/out")"
verdict allreduce-signals 'allreduce of 2 ranks: right$'
verdict allreduce-packets 'allreduce of 2 ranks: right$'
verdict allreduce-switch 'allreduce of 2 ranks: right$'
verdict allreduce-switch-load 'allreduce of 2 ranks: right$'
verdict allgather-switch-packets 'allgather of 2 ranks: right$'
verdict allgather-port 'allgather of 2 ranks: right$'
verdict allgather-packet-groups 'allgather of 2 ranks: right$'
verdict allreduce-packet-groups 'allreduce of 2 ranks: right$'
verdict allgather-groups-race 'refused: plan race: race: .*\(copy i0\+2 to s0\+2, part 0 of 2\).*\(get rank 0 s0 to o0, part 1 of 2\)'
files=$(find tests/fixtures/plans -name '*.json' | wc -l)
nothing_in 'each has a verdict above' "$([ "$((tests - 1))" = "$files" ] || echo "$files files")"

# What cannot be read, or says that it is what it is not, is told by the exit status.
mkdir "$scratch/bad" "$scratch/none"
echo '{"name": 3}' >"$scratch/bad/bad.json"
rc=0
"$published" "$scratch/bad" >"$scratch/out" 2>&1 || rc=$?
nothing_in 'a file that is none exits 1' "$([ "$rc" = 1 ] || echo "$rc")"
verdict bad 'NOT READ: .*line 1: name is no string'
rc=0
"$published" "$scratch/none" >"$scratch/out" 2>&1 || rc=$?
nothing_in 'a folder without any exits 77' "$([ "$rc" = 77 ] || echo "$rc")"

if [ -d "${SPMT_MSCCLPP_PLANS:-}" ]; then
	rc=0
	"$published" >"$scratch/out" 2>&1 || rc=$?
	sed 's/^/# /' "$scratch/out"
	nothing_in "MSCCL++'s own" "$([ "$rc" = 0 ] || grep -vE 'right$|refused:' "$scratch/out")"
else
	skip "MSCCL++'s own" 'SPMT_MSCCLPP_PLANS names no folder'
fi
plan

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every program of examples/ does what its comment says, on virtual devices, and says what failed where something does.
. "$(dirname "$0")/../../abi/lib.sh"

export LD_LIBRARY_PATH=$build_root SPMT_BACKEND=host
unset "${!SPMT_HOST_@}" SPMT_MAPS SPMT_MOVES SPMT_FAULT SPMT_LOG SPMT_CHECK

declare -A tried=()
# prints NAME LINE..: NAME exits 0 and prints these lines, in whatever order.
prints() {
	local name=$1 rc=0
	shift
	tried[$name]=yes
	timeout 120 "$build_root/tests/$name" >"$scratch/out" 2>"$scratch/err" || rc=$?
	nothing_in "$name exits 0" "$([ "$rc" = 0 ] || { echo "$rc"; cat "$scratch/err"; })"
	nothing_in "$name prints what it should" "$(diff <(sort "$scratch/out") <(printf '%s\n' "$@" | sort))"
}

# lines N FORMAT: one for each rank, with the rank in place of %1, its left neighbour in that of %2.
lines() {
	local rank
	for ((rank = 0; rank < $1; rank++)); do
		sed "s/%1/$rank/g; s/%2/$(((rank + $1 - 1) % $1))/g" <<<"$2"
	done
}

mapfile -t ring < <(lines 8 'rank %1 of 8 received 10%2')
prints ring "${ring[@]}"
mapfile -t kernel < <(lines 8 'rank %1 of 8 has 1000 words of rank %2, put by a kernel')
prints ring_kernel "${kernel[@]}"
mapfile -t stencil < <(lines 4 "rank %1: 50 steps, 0 of 16 cells differ from one rank's")
prints stencil "${stencil[@]}"
mapfile -t streams < <(lines 4 'rank %1: the sum of its left neighbour is 10')
prints streams "${streams[@]}"
mapfile -t sums < <(lines 4 'rank %1 of 4: 1024 sums, 0 wrong')
prints channel "${sums[@]}"
prints switch "${sums[@]}"
mapfile -t passed < <(lines 4 'rank %1 of 4: the sum of all blocks is 40960')
prints port "${passed[@]}"
prints plan "${sums[@]}"
prints registered 'the buffers of 4 ranks add up to 30000'
mapfile -t split < <(for r in 0 1 2 3 4 5 6 7; do
	echo "rank $r: row $((r / 4)) has sum $((r / 4 ? 22 : 6)), column $((r % 4)) has sum $((2 * (r % 4) + 4))"
done)
prints split "${split[@]}"
prints shrink 'rank 0 of 4 is now rank 0 of 3' 'rank 2 of 4 is now rank 1 of 3' 'rank 3 of 4 is now rank 2 of 3'
nothing_in 'shrink: the survivors know who died' "$([ "$(grep -c '1 of 4 ranks died: 1$' "$scratch/err")" = 3 ] || cat "$scratch/err")"

# complains NAME: where memory for the world is short, which nothing can do without, it exits 1 and has the sentence, after its own name.
complains() {
	local rc=0
	SPMT_FAULT=alloc:2 timeout 120 "$build_root/tests/$1" >"$scratch/out" 2>"$scratch/err" || rc=$?
	nothing_in "$1 says what failed" "$({ [ "$rc" = 1 ] && grep -qE "^$1: .*(memory|ENOMEM)" "$scratch/err"; } || { echo "exit status $rc"; cat "$scratch/err"; })"
}
for name in "${!tried[@]}"; do
	complains "$name"
done

# What a launcher starts; mpirun.sh and srun.sh have the rest.
rc=0
env -u PMIX_NAMESPACE -u PMIX_RANK timeout 60 "$build_root/tests/job" >"$scratch/out" 2>"$scratch/err" || rc=$?
tried[job]=yes
nothing_in 'job, without a launcher, says that it needs one' "$({ [ "$rc" = 1 ] && grep -q '^job: .*mpirun' "$scratch/err"; } || { echo "exit status $rc"; cat "$scratch/err"; })"

# On one host, found by name. Of the second run rank 1 waits for its own file, and finds none of the first's.
tried[hosts]=yes
for run in first second; do
	timeout 60 "$build_root/tests/hosts" 1 2 "$scratch/uid" >"$scratch/out" 2>"$scratch/err" &
	sleep 0.3
	timeout 60 "$build_root/tests/hosts" 0 2 "$scratch/uid" >"$scratch/out2" 2>>"$scratch/err"
	rc=$?
	wait $! || rc=$?
	nothing_in "hosts: two processes with a file between them, the $run run" "$([ "$rc" = 0 ] || { echo "$rc"; cat "$scratch/err"; }
		diff <(cat "$scratch/out2" "$scratch/out") <(printf 'rank %s\n' '0 of 2 received 101' '1 of 2 received 100'))"
done
rc=0
timeout 60 "$build_root/tests/hosts" 0 2 "$scratch/none/uid" >"$scratch/out" 2>"$scratch/err" || rc=$?
nothing_in 'hosts says which file it cannot write' "$({ [ "$rc" = 1 ] && grep -q 'none/uid: No such file' "$scratch/err"; } || { echo "exit status $rc"; cat "$scratch/err"; })"

nothing_in 'each example was run here' "$(for file in examples/*; do name=$(basename "${file%.*}"); [ -n "${tried[$name]:-}" ] || echo "$file"; done)"
# A user's compiler may be told to know nothing but the standard, and hides POSIX then: a call without a declaration returns half a pointer.
for cc in gcc clang; do
	for std in c99 c11 c2x; do
		compiles "examples by $cc -std=$std" "$cc" -x c "-std=$std" -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only examples/*
	done
done
plan

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Worlds over two nodes by map rdma: network namespaces as in two_nodes.sh, and the stand-in for libibverbs with its wires from process to
# process. tests/vm/two.sh is the same over real verbs, where machines can be had.
title='worlds over two nodes by verbs' net=33 one=spmt-near-$$ two=spmt-far-$$
. "$(dirname "$0")/namespaces.sh"
programs=$build_root/tests program=$build_root/tests/far_nodes
[ -e "$programs/fakes/fake-verbs.so" ] || leave 'no stand-in for libibverbs was built'
export SPMT_HOST_DEVICES=8 SPMT_TEST_SLOW=1 SPMT_TIMEOUT_MS=60000
export SPMT_VERBS_LIB=$programs/fakes/fake-verbs.so SPMT_FAKE_WIRE=$scratch/wire
# A machine that stands still is no node that vanishes.
export SPMT_SOCKET_LOST_MS=60000
unset SPMT_MAPS SPMT_MOVES SPMT_RDMA_DEVICE
soon='[0-5]?[0-9]{1,4}' # ms: before the deadline

# NAME PROGRAM ARGUMENT..: a suite on both, each with its share of every world (tests/lib/machines.h).
suite() {
	local name=$1 rc=0
	shift
	mkdir -p "$scratch/both"
	SPMT_TEST_FOLDER=$scratch/both SPMT_TEST_MACHINE=1 timeout -k 5 200 ip netns exec "$two" "$programs/$1" "${@:2}" >"$scratch/two" 2>&1 &
	SPMT_TEST_FOLDER=$scratch/both SPMT_TEST_MACHINE=0 timeout -k 5 200 ip netns exec "$one" "$programs/$1" "${@:2}" >"$scratch/one" 2>&1 || rc=$?
	wait $! || rc=$?
	grep -q '^ok' "$scratch/one" && grep -q '^ok' "$scratch/two" || rc=${rc/#0/none}
	nothing_in "$name" "$([ "$rc" = 0 ] || { echo "exit status $rc"; cat "$scratch/one" "$scratch/two"; })"
	rm -rf "$scratch/both"
}

process "$one" once 2 0 &
process "$two" once 2 1 &
wait
expect '2 nodes of a rank' '0 ' 0 1

process "$one" once 8 0 1 2 3 &
process "$two" once 8 4 5 6 7 &
wait
expect '2 nodes of 4 ranks' '0 ' {0..7}

process "$one" once 8 0 2 &
process "$one" once 8 4 6 &
process "$two" once 8 1 3 &
process "$two" once 8 5 7 &
wait
expect '2 nodes of 2 processes of 2 ranks' '0 ' {0..7}

if [ -e "$programs/flow-processes" ]; then
	suite 'every call, 2 nodes of 4 ranks' flow-processes --tap=- -j1 --filter processes/two_of_4
	suite 'every call, 2 nodes of 2 processes of 2 ranks' flow-processes --tap=- -j1 --filter processes/permuted
fi

if [ -e "$programs/stress-rma_stress" ]; then
	suite 'order and atomics under stress' stress-rma_stress
fi

timeout -k 5 90 ip netns exec "$two" "$programs/hosts" 1 2 "$scratch/uid" >>"$scratch/out" 2>&1 &
timeout -k 5 90 ip netns exec "$one" "$programs/hosts" 0 2 "$scratch/uid" >>"$scratch/out" 2>&1
wait
nothing_in 'the example' "$(sort "$scratch/out" | diff - <(echo 'rank 0 of 2 received 101'; echo 'rank 1 of 2 received 100'))"
rm -f "$scratch/uid" "$scratch/out"

# What is missing on one node is told on both.
process "$one" once 4 0 1 &
SPMT_RDMA_DEVICE=other0 process "$two" once 4 2 3 &
wait
expect 'no such device there' '-113 0 .*rdma.*SPMT_RDMA_DEVICE=other0 names none of 2 devices, the first is fake0' 0 1 2 3

process "$one" once 4 0 1 &
process "$two" once 4 2 &
SPMT_VERBS_LIB=/nowhere/libibverbs.so process "$two" once 4 3 &
wait
expect 'no libibverbs beside' '-113 0 .*rdma.*no libibverbs' 0 1 2 3

process "$one" die 4 0 1 &
process "$two" die 4 2 3 2>/dev/null &
wait 2>/dev/null
expect 'a killed process' "-10003 $soon .*2 of 4 ranks died: 2, 3" 0 1

# Between meetings, with the connection of the rendezvous patient: the device is what tells.
process "$one" puts 4 0 1 &
ip netns exec "$two" "$program" puts "$scratch/uid" 4 2 3 >>"$scratch/out" 2>&1 &
gone=$!
ready 4
kill -KILL "$gone"
wait 2>/dev/null
expect 'a killed process to which data moves' "-10003 $soon .*(2 of 4 ranks died: 2, 3|to rank [23]: fake[01] port 2 to fake[01] port 2: .*\(verbs status 12,)" 0 1

process "$one" shrink 6 0 1 &
process "$two" shrink 6 2 3 &
process "$two" shrink 6 4 5 2>/dev/null &
wait 2>/dev/null
expect_on 'who goes on after a killed process' 0 1 2 3
expect 'the world in which they go on' '0 ' 0 1 2 3

# A node that loses power: the device tells before the connection of the rendezvous does, and who is told goes on at once.
export SPMT_SOCKET_LOST_MS=2000
process "$one" vanish 4 0 1 &
ip netns exec "$two" "$program" vanish "$scratch/uid" 4 2 3 >>"$scratch/out" 2>&1 &
gone=$!
ready 4
ip -n "$two" link set spmt0 down
kill -KILL "$gone"
wait 2>/dev/null
expect_on 'who goes on when the device has told of it' 0 1
expect 'the world in which they go on then' '0 ' 0 1
plan

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Worlds over two nodes, which two network namespaces are: data, agreement, and what each rank hears when a node is gone.
title='worlds over two nodes' net=32 one=spmt-1st-$$ two=spmt-2nd-$$
. "$(dirname "$0")/namespaces.sh"
program=$build_root/tests/two_nodes
mkdir "$scratch/parcels"
export SPMT_TEST_PARCELS=$scratch/parcels SPMT_HOST_DEVICES=8
# A machine that stands still is no node that vanishes; where one does, this is as it is for users.
export SPMT_SOCKET_LOST_MS=60000
soon='[0-5]?[0-9]{1,4}' # ms: before the deadline

process "$one" once 2 0 &
process "$two" once 2 1 &
wait
expect 'two nodes of 1' '0 ' 0 1

process "$one" once 4 0 1 &
process "$two" once 4 2 3 &
wait
expect 'two nodes of 2' '0 ' 0 1 2 3

process "$one" once 8 0 2 &
process "$one" once 8 4 6 &
process "$two" once 8 1 3 &
process "$two" once 8 5 7 &
wait
expect 'two nodes of two processes of 2' '0 ' {0..7}

for where in none0,10.77.32.0/24 fd77:32::/64 10.0.0.0/30,fd77::/16; do
	SPMT_SOCKET_IFNAME=$where process "$one" once 2 0 &
	SPMT_SOCKET_IFNAME=$where process "$two" once 2 1 &
	wait
	expect "two nodes that meet at $where" '0 ' 0 1
done

process "$one" odd 4 0 1 &
process "$two" odd 4 2 3 &
wait
expect 'arguments that differ' '-10004 [0-9]+ spmt_malloc: size differs: rank 3 passed 64, rank 0 passed 128; differing from most ranks: 3' 0 1 2 3

process "$one" late 4 0 1 &
process "$two" late 4 2 3 &
wait
expect 'a rank that does not come' '-100[0-9]+ [0-9]+ .*: (rank 3 .*; )?1 of 4 ranks missing after [0-9.]+ s: 3$' 0 1 2 3

process "$one" die 4 0 1 &
process "$two" die 4 2 3 2>/dev/null &
wait 2>/dev/null
expect 'a killed process' "-10003 $soon .*2 of 4 ranks died: 2, 3" 0 1

process "$one" die 4 0 1 &
SPMT_TEST_LEAVES=1 process "$two" die 4 2 3 2>/dev/null &
wait 2>/dev/null
expect 'a killed process that has left a child behind' "-10003 $soon .*2 of 4 ranks died: 2, 3" 0 1

process "$one" once 4 0 1 &
process "$two" once 4 2 &
SPMT_TEST_ENDS_AT_NODE=1 process "$two" once 4 3 2>/dev/null &
wait 2>/dev/null
expect 'a process that is killed while its node gathers' '-10003 0 .*1 of 4 ranks died: 3' 0 1 2

process "$one" shrink 6 0 1 &
process "$two" shrink 6 2 3 &
process "$two" shrink 6 4 5 2>/dev/null &
wait 2>/dev/null
expect_on 'who goes on after a killed process' 0 1 2 3
expect 'the world in which they go on' '0 ' 0 1 2 3

# NAME LOST RANK..: those who say that they go on, in the places of the LOST ranks before them.
expect_up() {
	local name=$1 lost=$2
	shift 2
	nothing_in "$name" "$(for r; do grep -q "^$r on $((r - lost)) of $#\$" "$scratch/out" || { echo "not rank $r"; cat "$scratch/out"; }; done)"
}

process "$one" lead 6 0 1 2>/dev/null &
process "$two" lead 6 2 3 &
process "$two" lead 6 4 5 &
wait 2>/dev/null
expect_up 'who goes on after the node that led' 2 2 3 4 5
expect 'the world of the others' '0 ' 2 3 4 5

SPMT_TEST_LEAVES=1 process "$one" lead 6 0 1 2>/dev/null &
process "$two" lead 6 2 3 &
process "$two" lead 6 4 5 &
wait 2>/dev/null
expect_up 'who goes on after a process that led and has left a child behind' 2 2 3 4 5
expect 'the world without both' '0 ' 2 3 4 5

process "$one" lead 6 0 1 2>/dev/null &
process "$one" lead 6 2 3 &
process "$two" lead 6 4 5 &
wait 2>/dev/null
expect_up 'who goes on after the process that led' 2 2 3 4 5
expect 'the world of both nodes' '0 ' 2 3 4 5

# The other node calls who follows where it has found the first, and the next world there.
SPMT_SOCKET_IFNAME=lo,spmt0 process "$one" lead 6 0 1 2>/dev/null &
SPMT_SOCKET_IFNAME=lo,spmt0 process "$one" lead 6 2 3 &
process "$two" lead 6 4 5 &
wait 2>/dev/null
expect_up 'who goes on where the first address is of no use to others' 2 2 3 4 5
expect 'the world of both nodes, with that address' '0 ' 2 3 4 5

unset SPMT_SOCKET_LOST_MS
process "$one" loop 4 0 1 &
process "$two" loop 4 2 3 &
ready 4
ip -n "$two" link set spmt0 down
wait
expect 'a node that vanishes' "-10003 $soon .*2 of 4 ranks died: (2, 3|0, 1)" 0 1 2 3
ip -n "$two" link set spmt0 up

process "$one" part 4 0 1 &
process "$two" part 4 2 3 &
ready 4
ip -n "$two" link set spmt0 down
wait
expect_on 'who goes on after a node has vanished' 0 1
expect_up 'who goes on without it on that node' 2 2 3
expect 'the worlds of one node each' '0 ' 0 1 2 3
plan

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

# A process: NODE HOW NRANKS RANK..; all of a world run at once.
process() {
	local node=$1 how=$2
	shift 2
	timeout -k 5 90 ip netns exec "$node" "$program" "$how" "$scratch/uid" "$@" >>"$scratch/out" 2>&1
}

# NAME NRANKS PATTERN: each rank has said so, after its number.
expect() {
	local name=$1 n=$2 pattern=$3
	for ((r = 0; r < n; r++)); do
		grep -Eq "^$r $pattern" "$scratch/out" || echo "not of rank $r"
	done >"$scratch/wrong"
	[ -s "$scratch/wrong" ] && cat "$scratch/out" >>"$scratch/wrong"
	nothing_in "$name" "$(cat "$scratch/wrong")"
	rm -f "$scratch/uid" "$scratch/out"
}

process "$one" once 2 0 &
process "$two" once 2 1 &
wait
expect 'two nodes of 1' 2 '0 '

process "$one" once 4 0 1 &
process "$two" once 4 2 3 &
wait
expect 'two nodes of 2' 4 '0 '

process "$one" once 8 0 2 &
process "$one" once 8 4 6 &
process "$two" once 8 1 3 &
process "$two" once 8 5 7 &
wait
expect 'two nodes of two processes of 2' 8 '0 '

for where in none0,10.77.32.0/24 fd77:32::/64 10.0.0.0/30,fd77::/16; do
	SPMT_SOCKET_IFNAME=$where process "$one" once 2 0 &
	SPMT_SOCKET_IFNAME=$where process "$two" once 2 1 &
	wait
	expect "two nodes that meet at $where" 2 '0 '
done

process "$one" odd 4 0 1 &
process "$two" odd 4 2 3 &
wait
expect 'arguments that differ' 4 '-10004 [0-9]+ spmt_malloc: size differs: rank 3 passed 64, rank 0 passed 128; differing from most ranks: 3'

process "$one" late 4 0 1 &
process "$two" late 4 2 3 &
wait
expect 'a rank that does not come' 4 '-100[0-9]+ [0-9]+ .*: (rank 3 .*; )?1 of 4 ranks missing after [0-9.]+ s: 3$'

ready() {
	for ((i = 0; i < 20000; i++)); do
		[ "$(grep -c '^ready' "$scratch/out" 2>/dev/null)" = "$1" ] && return
		sleep 0.01
	done
}

process "$one" die 4 0 1 &
process "$two" die 4 2 3 2>/dev/null &
wait 2>/dev/null
expect 'a killed process' 2 "-10003 $soon .*2 of 4 ranks died: 2, 3"

process "$one" once 4 0 1 &
process "$two" once 4 2 &
SPMT_TEST_ENDS_AT_NODE=1 process "$two" once 4 3 2>/dev/null &
wait 2>/dev/null
expect 'a process that is killed while its node gathers' 3 '-10003 0 .*1 of 4 ranks died: 3'

process "$one" shrink 6 0 1 &
process "$two" shrink 6 2 3 &
process "$two" shrink 6 4 5 2>/dev/null &
wait 2>/dev/null
nothing_in 'who goes on after a killed process' "$(for r in 0 1 2 3; do grep -q "^$r on $r of 4" "$scratch/out" || echo "not rank $r"; done)"
expect 'the world in which they go on' 4 '0 '

unset SPMT_SOCKET_LOST_MS
process "$one" loop 4 0 1 &
process "$two" loop 4 2 3 &
ready 4
ip -n "$two" link set spmt0 down
wait
expect 'a node that vanishes' 4 "-10003 $soon .*2 of 4 ranks died: (2, 3|0, 1)"
ip -n "$two" link set spmt0 up

process "$one" part 4 0 1 &
process "$two" part 4 2 3 &
ready 4
ip -n "$two" link set spmt0 down
wait
nothing_in 'who goes on after a node has vanished' "$(for r in 0 1; do grep -q "^$r on $r of 2" "$scratch/out" || echo "not rank $r"; done)"
nothing_in 'who cannot' "$(for r in 2 3; do grep -q "^$r -10003 .*the process that led the rendezvous has died" "$scratch/out" || echo "not of rank $r"; done)"
expect 'the world of one node' 2 '0 '
plan

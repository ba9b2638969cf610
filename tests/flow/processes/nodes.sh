#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Ranks on two nodes, which two network namespaces are: they find each other over TCP, and each is told whom it cannot reach.
title='ranks on two nodes' net=31 one=spmt-one-$$ two=spmt-two-$$
. "$(dirname "$0")/namespaces.sh"
nodes=$build_root/tests/nodes

# A process: NODE NRANKS RANK..; all of a world run at once.
process() {
	local node=$1
	shift
	timeout -k 5 90 ip netns exec "$node" "$nodes" "$scratch/uid" "$@" >>"$scratch/out" 2>&1 || echo "process of rank $2: exit status $?" >>"$scratch/out"
}

boot_id=/proc/sys/kernel/random/boot_id
# As process, where that file is empty.
process_blind() {
	local node=$1
	shift
	timeout -k 5 90 ip netns exec "$node" unshare -m sh -c 'mount --bind /dev/null "$0" && exec "$@"' "$boot_id" "$nodes" "$scratch/uid" "$@" >>"$scratch/out" 2>&1
}

# "here: elsewhere" of each rank, in order
expect() {
	local name=$1 line
	shift
	for line in "$@"; do
		local rank=${line%%:*} list=${line#*: } n
		n=$(($(tr -cd , <<<"$list" | wc -c) + 1))
		grep -E "^$rank -113 [0-4]?[0-9] spmt_init: rank $rank: $n of $total ranks are on another node, .*\(rdma\) is not to be had here \(no RDMA device, or no libibverbs\): $list\$" "$scratch/out" >/dev/null ||
			echo "not as wanted: $line"
	done >"$scratch/wrong"
	[ -s "$scratch/wrong" ] && cat "$scratch/out" >>"$scratch/wrong"
	nothing_in "$name" "$(cat "$scratch/wrong")"
	rm -f "$scratch/uid" "$scratch/out"
}

total=2 nameless=
process "$one" 2 0 &
process "$two" 2 1 &
wait
expect 'a rank on either node' '0: 1' '1: 0'

total=6
process "$one" 6 0 1 &
process "$one" 6 2 &
process "$two" 6 3 &
process "$two" 6 4 5 &
wait
expect 'several processes on either node' '0: 3, 4, 5' '1: 3, 4, 5' '2: 3, 4, 5' '3: 0, 1, 2' '4: 0, 1, 2' '5: 0, 1, 2'

# On one node, of which a process cannot say that it is this one.
name='a rank that does not know its node'
if unshare -m mount --bind /dev/null "$boot_id" 2>/dev/null; then
	total=2 nameless=", or count as such since rank 1 cannot read $boot_id"
	process "$one" 2 0 &
	process_blind "$one" 2 1 &
	wait
	expect "$name" '0: 1' '1: 0'
else
	skip "$name" 'nothing can be mounted over it'
fi

# the same where all ranks are on the node that the uid names: there it is no matter that they could be found elsewhere
process "$one" 3 0 &
process "$one" 3 2 1 &
wait
nothing_in 'one node, found by name' "$(grep -v '^[012] 0 ' "$scratch/out")$([ "$(wc -l <"$scratch/out")" = 3 ] || echo 'not three ranks')"
plan

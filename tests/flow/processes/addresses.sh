#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# By which addresses worlds over two nodes are found, where two network namespaces are the nodes.
title='addresses of a world' net=33 one=spmt-3rd-$$ two=spmt-4th-$$
. "$(dirname "$0")/namespaces.sh"
program=$build_root/tests/two_nodes
mkdir "$scratch/parcels"
export SPMT_TEST_PARCELS=$scratch/parcels SPMT_HOST_DEVICES=8 SPMT_SOCKET_LOST_MS=60000

# IFNAME: a rank on each node.
meet() {
	rm -f "$scratch/uid" "$scratch/out"
	SPMT_SOCKET_IFNAME=$1 timeout -k 5 90 ip netns exec "$one" "$program" once "$scratch/uid" 2 0 >>"$scratch/out" 2>&1 &
	timeout -k 5 90 ip netns exec "$two" "$program" once "$scratch/uid" 2 1 >>"$scratch/out" 2>&1 &
	wait
}

# NAME
expect_well() {
	nothing_in "$1" "$(for r in 0 1; do grep -Eq "^$r 0 " "$scratch/out" || cat "$scratch/out"; done)"
}

# From the second node all packets to 10.99.33.0/24 get lost: they go to a machine that is not there.
ip -n "$one" address add "10.99.$net.1/32" dev lo
ip -n "$one" address add "10.98.$net.1/32" dev lo
ip -n "$two" neigh add "10.77.$net.99" lladdr 02:00:00:00:00:99 nud permanent dev spmt0
ip -n "$two" route add "10.99.$net.0/24" via "10.77.$net.99"

meet "10.99.$net.0/24,spmt0"
expect_well 'the first of three addresses loses all packets'

meet "10.98.$net.0/24,10.99.$net.0/24,fd77::/16"
expect_well 'no route to the first, and the second loses all packets'

meet '^lo'
expect_well 'all interfaces but the loopback'

meet '=spmt0'
expect_well 'a name in full'

# A bridge for containers may have the same address on every node.
for node in "$one" "$two"; do
	ip -n "$node" address add "10.97.$net.1/32" dev lo
done
meet "10.97.$net.0/24,10.77.$net.0/24"
expect_well 'an address that both nodes have'

# Whether an address is a node's does not follow from its being bound.
for node in "$one" "$two"; do
	ip netns exec "$node" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_nonlocal_bind' 2>/dev/null
done
meet "10.77.$net.0/24"
expect_well 'nodes on which any address can be bound (ip_nonlocal_bind)'
for node in "$one" "$two"; do
	ip netns exec "$node" sh -c 'echo 0 >/proc/sys/net/ipv4/ip_nonlocal_bind' 2>/dev/null
done

# IFNAME NAME PATTERN: what the only rank to come says of the uid that it cannot make.
refused() {
	SPMT_SOCKET_IFNAME=$1 ip netns exec "$one" "$program" once "$scratch/none" 2 0 >"$scratch/out" 2>&1
	nothing_in "$2" "$(grep -q "$3" "$scratch/out" || cat "$scratch/out")"
}

refused nosuch0 'a name of nothing' "SPMT_SOCKET_IFNAME=nosuch0: no interface of that name or subnet .* there are: .*spmt0 10.77.$net.1"

rm -f "$scratch/uid" "$scratch/out"
export SPMT_TIMEOUT_MS=4000
SPMT_SOCKET_IFNAME=10.99.$net.0/24 ip netns exec "$one" "$build_root/tests/hosts" 0 2 "$scratch/uid" 2>/dev/null &
ip netns exec "$two" "$build_root/tests/hosts" 1 2 "$scratch/uid" 2>"$scratch/out"
wait
unset SPMT_TIMEOUT_MS
nothing_in 'no address that answers' "$(grep -Eq "rank 1: nobody leads the rendezvous at 10.99.$net.1 \(no answer\) after 4" "$scratch/out" || cat "$scratch/out")"

# ---- jobs that nobody launches: the uid by a file, or by the environment. Over the stand-in for libibverbs, as far_nodes.sh says.

# UID PROCESS NODE: each runs README's line.
job() {
	SPMT_UID=$1 SPMT_PROCESS=$2 SPMT_SOCKET_IFNAME='' timeout -k 5 90 ip netns exec "$3" "$build_root/tests/job" >>"$scratch/out" 2>&1
}

uid_of() {
	SPMT_SOCKET_IFNAME=$1 ip netns exec "$one" "$build_root/spmt-info" --uid
}

# NAME RANKS TOTAL
expect_job() {
	nothing_in "$1" "$(for ((r = 0; r < $2; r++)); do grep -q "^rank $r of $2 on device .*: the ranks add up to $3\$" "$scratch/out" || cat "$scratch/out"; done)"
	rm -f "$scratch/out"
}

if [ -e "$build_root/tests/fakes/fake-verbs.so" ]; then
	export SPMT_VERBS_LIB=$build_root/tests/fakes/fake-verbs.so SPMT_FAKE_WIRE=$scratch/wire SPMT_TIMEOUT_MS=60000
	rm -f "$scratch/out"
	# those that come first wait for the file
	job "$scratch/uid.text" 1/2/0 "$two" &
	job "$scratch/uid.text" 0/2/0 "$one" &
	(umask 077 && uid_of 10.77.0.0/16 >"$scratch/uid.text")
	wait
	expect_job 'a job by a file, on two nodes' 2 1

	uid=$(uid_of spmt0)
	job "$uid" 3/4/1 "$two" &
	job "$uid" 0/4 "$one" &
	job "$uid" 2/4/0 "$two" &
	job "$uid" 1/4 "$one" &
	wait
	expect_job 'a job by the environment, two processes on each of two nodes' 4 6

	# the first node has lost an address since; both have the other that is left in common
	lost=$(uid_of "10.97.$net.0/24,spmt0")
	ip -n "$one" address del "10.77.$net.1/24" dev spmt0
	job "$lost" 0/3 "$one" &
	job "$lost" 1/3 "$one" &
	job "$lost" 2/3 "$two" &
	wait
	expect_job 'a job at whose first node an address has gone' 3 3
	export SPMT_TIMEOUT_MS=1000
	job "$lost" 1/2 "$two"
	export SPMT_TIMEOUT_MS=60000
	nothing_in 'an address in common is not enough' "$(grep -q "; this node has 10.97.$net.1 of these and not the rest, so it does not lead" "$scratch/out" || cat "$scratch/out")"
	ip -n "$one" address add "10.77.$net.1/24" dev spmt0

	# of a job whose first node is another by now
	export SPMT_TIMEOUT_MS=3000
	SPMT_UID=$uid SPMT_PROCESS=1/2 ip netns exec "$two" "$build_root/tests/job" >"$scratch/out" 2>&1
	nothing_in 'a stale uid' "$(grep -Eq "nobody leads the rendezvous at 10.77.$net.1 \([^)]*\), fd77:$net::1 \([^)]*\) after" "$scratch/out" || cat "$scratch/out")"
	unset SPMT_VERBS_LIB SPMT_FAKE_WIRE SPMT_TIMEOUT_MS
else
	skip 'a job by a file, on two nodes' 'no stand-in for libibverbs was built'
fi

for node in "$one" "$two"; do
	ip -n "$node" -4 address flush dev spmt0
done
meet spmt0
expect_well 'IPv6 alone'

ip -n "$one" -6 address flush dev spmt0 scope global
refused spmt0 'a link-local address alone' 'an address that other nodes can use'
plan

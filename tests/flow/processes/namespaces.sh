# SPDX-License-Identifier: MIT
# Sourced by addresses.sh, nodes.sh, two_nodes.sh and far_nodes.sh: two nodes, which two network namespaces are. The script has set title,
# one, two and net, a number, and sets program for process(): the nodes have 10.77.$net.1 and .2, fd77:$net::1 and ::2, on interface spmt0.
# shellcheck shell=bash
. "$(dirname "$0")/../../abi/lib.sh"

# not even root may everywhere
make_nodes() {
	ip netns add "$one" && ip netns add "$two" || return 1
	ip link add spmt0 netns "$one" type veth peer name spmt0 netns "$two" || return 1
	ip -n "$one" address add "10.77.$net.1/24" dev spmt0 && ip -n "$two" address add "10.77.$net.2/24" dev spmt0 || return 1
	ip -n "$one" address add "fd77:$net::1/64" dev spmt0 nodad && ip -n "$two" address add "fd77:$net::2/64" dev spmt0 nodad || return 1
	for node in "$one" "$two"; do
		ip -n "$node" link set spmt0 up && ip -n "$node" link set lo up || return 1
	done
}

drop_nodes() {
	ip netns del "$one"
	ip netns del "$two"
}

leave() {
	skip "$title" "$1"
	plan
	exit 0
}

[ "$(id -u)" = 0 ] || leave 'not root: network namespaces cannot be made'
command -v ip >/dev/null || leave 'no ip (iproute2)'
trap 'drop_nodes 2>/dev/null; rm -rf "$scratch"' EXIT
make_nodes 2>"$scratch/why" || leave "network namespaces cannot be made: $(head -n 1 "$scratch/why")"
export SPMT_SOCKET_IFNAME=spmt0 SPMT_BACKEND=host

# A process: NODE HOW NRANKS RANK..; all of a world run at once.
process() {
	local node=$1 how=$2
	shift 2
	timeout -k 5 90 ip netns exec "$node" "$program" "$how" "$scratch/uid" "$@" >>"$scratch/out" 2>&1
}

# N: returns once N processes are where their test wants them.
ready() {
	for ((i = 0; i < 20000; i++)); do
		[ "$(grep -c '^ready' "$scratch/out" 2>/dev/null)" = "$1" ] && return
		sleep 0.01
	done
}

# NAME PATTERN RANK..: each has said so, after its number.
expect() {
	local name=$1 pattern=$2 rank
	shift 2
	for rank; do
		grep -Eq "^$rank $pattern" "$scratch/out" || echo "not of rank $rank"
	done >"$scratch/wrong"
	[ -s "$scratch/wrong" ] && cat "$scratch/out" >>"$scratch/wrong"
	nothing_in "$name" "$(cat "$scratch/wrong")"
	rm -f "$scratch/uid" "$scratch/out"
}

# NAME RANK..: those of the old world who say that they go on, as the first of the new one.
expect_on() {
	local name=$1
	shift
	nothing_in "$name" "$(for r; do grep -q "^$r on $r of $#\$" "$scratch/out" || { echo "not rank $r"; cat "$scratch/out"; }; done)"
}

# SPDX-License-Identifier: MIT
# Sourced by nodes.sh and two_nodes.sh: two nodes, which two network namespaces are. The script has set title, one, two and net, a
# number: the nodes have 10.77.$net.1 and .2, fd77:$net::1 and ::2, on interface spmt0.
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

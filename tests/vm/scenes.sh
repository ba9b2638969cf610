#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scenes.sh SCENE..: what tests/vm/two.sh runs on both machines at once. Each machine prints "ok NAME" or "not ok NAME" for what it has seen, and
# what went before in the second case. VM and VM_FOLDER are tests/vm/two's, SPMT_BUILD says where the programs are.
set -u -o pipefail

tests=$SPMT_BUILD/tests
here=$VM there=$((1 - VM))
export SPMT_SOCKET_IFNAME=net0 SPMT_BACKEND=host SPMT_TEST_MACHINE=$VM SPMT_TEST_SLOW=1 SPMT_TIMEOUT_MS=60000
# Machines that are emulated stand still for seconds. A time-out of the device's that is none makes Soft-RoCE of Linux 6.1 send again,
# which it gets wrong now and then, in the midst of a large block ("remote invalid request error").
export SPMT_RDMA_TIMEOUT=18 SPMT_SOCKET_LOST_MS=50000
unset SPMT_MAPS SPMT_MOVES SPMT_RDMA_DEVICE
# What a build with sanitizers finds comes where both machines and their host see it.
for which in ASAN UBSAN; do export "${which}_OPTIONS=$(printenv "${which}_OPTIONS"):log_path=$VM_FOLDER/report.$VM"; done
scene='' soon='[0-5]?[0-9]{1,4}' # ms

# said NAME TEXT: TEXT is what is wrong, empty: nothing.
said() {
	if [ -z "$2" ]; then
		echo "ok $1"
	else
		echo "not ok $1"
		printf '%s\n' "$2" | sed "s/^/# machine $here: /"
	fi
}

# Both are there.
together() {
	: >"$VM_FOLDER/$scene.$1.$here"
	for _ in $(seq 2000); do # longer than a suite or a world may take
		[ ! -e "$VM_FOLDER/$scene.$1.$there" ] || return 0
		sleep 0.1
	done
	echo "# machine $here: the other one has not come to $1 of $scene"
	return 1
}

# suite NAME LIMIT PROGRAM [FILTER]: with a folder of its own, so that what fails in one does not confuse the next.
suite() {
	local name=$1 limit=$2 program=$3 log rc=0
	export SPMT_TEST_FOLDER=$VM_FOLDER/${name// /-}
	mkdir -p "$SPMT_TEST_FOLDER"
	scene=${name// /-}
	together begin || return
	shift 3
	[ $# = 0 ] || set -- --tap=- -j1 --filter "$1"
	log=$(timeout "$limit" "$tests/$program" "$@" 2>&1) || rc=$?
	[ "$rc" = 0 ] && grep -q '^ok' <<<"$log" && rc=''
	said "$name" "${rc:+exit status $rc: $log}"
}

# world HOW NRANKS RANK..: this machine's process of a world.
world() {
	local how=$1
	shift
	timeout 90 "$tests/far_nodes" "$how" "$VM_FOLDER/$scene.uid" "$@" >>"/tmp/$scene" 2>&1
}

# expect NAME PATTERN RANK..: each rank has said so, after its number.
expect() {
	local name=$1 pattern=$2 rank wrong=''
	shift 2
	for rank; do
		grep -Eq "^$rank $pattern" "/tmp/$scene" || wrong+="not of rank $rank"$'\n'
	done
	said "$name" "${wrong:+$wrong$(cat "/tmp/$scene")}"
}

ready() {
	for _ in $(seq 3000); do
		[ "$(grep -c '^ready' "/tmp/$scene" 2>/dev/null)" = "$1" ] && return
		sleep 0.02
	done
	echo "# machine $here: not ready: $(cat "/tmp/$scene")"
}

mine=("$((2 * VM))" "$((2 * VM + 1))") # of four ranks

once() {
	scene=once-of-1
	world once 2 "$VM"
	expect '2 nodes of a rank' '0 ' "$VM"
	scene=once-of-4
	world once 8 $((4 * VM)) $((4 * VM + 1)) $((4 * VM + 2)) $((4 * VM + 3))
	expect '2 nodes of 4 ranks' '0 ' $((4 * VM)) $((4 * VM + 3))
	scene=once-of-2-of-2
	export SPMT_RDMA_CONNECTIONS=$((1 + 3 * VM)) # one end has more
	world once 8 "$VM" $((VM + 2)) &
	world once 8 $((VM + 4)) $((VM + 6))
	wait
	unset SPMT_RDMA_CONNECTIONS
	expect '2 nodes of 2 processes of 2 ranks' '0 ' "$VM" $((VM + 2)) $((VM + 4)) $((VM + 6))
	said 'the example' "$(timeout 60 "$tests/hosts" "$VM" 2 "$VM_FOLDER/example" 2>&1 | diff - <(echo "rank $VM of 2 received 10$there"))"
}

reports() {
	said 'no report of a sanitizer' "$(cat "$VM_FOLDER/report.$VM".* 2>/dev/null)"
}

suites() {
	suite 'single calls' 120 flow-rma 'rma/@(strides|no_bytes_still_signal|a_flag_may_be_put|copies_in_and_out|overlap_to_self)'
	suite 'order and atomics under stress' 120 stress-rma_stress
	suite 'up to 64 MiB' 120 stress-sizes
}

every_call() {
	suite 'every call, 2 nodes of 4 ranks' 300 flow-processes processes/two_of_4
	suite 'every call, 2 nodes of 2 processes of 2 ranks' 300 flow-processes processes/permuted
}

# What is missing on one machine is told on both.
missing() {
	scene=device
	[ "$VM" = 0 ] || export SPMT_RDMA_DEVICE=other0
	world once 4 "${mine[@]}"
	unset SPMT_RDMA_DEVICE
	expect 'no such device there' '-113 0 .*rdma.*SPMT_RDMA_DEVICE=other0 names none of 1 devices, the first is rxe0' "${mine[@]}"
	scene=library
	[ "$VM" = 1 ] || export SPMT_VERBS_LIB=/nowhere/libibverbs.so
	world once 4 "${mine[@]}"
	unset SPMT_VERBS_LIB
	expect 'no libibverbs here' '-113 0 .*rdma.*no libibverbs' "${mine[@]}"
	# Of two processes of a node one has it.
	scene=neighbour
	if [ "$VM" = 0 ]; then
		world once 4 0 1
	else
		SPMT_VERBS_LIB=/nowhere/libibverbs.so world once 4 3 &
		world once 4 2
		wait
	fi
	expect 'no libibverbs beside' '-113 0 .*rdma.*no libibverbs' "${mine[@]}"
}

# Whoever is gone, the code is there before the deadline of 60 s, with a sentence.
ends() {
	scene=process
	world die 4 "${mine[@]}" 2>/dev/null
	[ "$VM" = 1 ] || expect 'a killed process' "-10003 $soon .*2 of 4 ranks died: 2, 3" 0 1
	together end
	scene='link' what='a network that is gone'
	SPMT_RDMA_TIMEOUT=17 SPMT_SOCKET_LOST_MS=5000 world puts 4 "${mine[@]}" &
	ready 2
	together ready
	[ "$VM" = 0 ] || ip link set net0 down
	wait
	# its own port: the network is down; the peer's: a death, by whoever notices first
	if [ "$VM" = 0 ]; then
		expect "$what" "-10003 $soon .*(2 of 4 ranks died: 2, 3|to rank [23]: rxe0 port 1 to rxe0 port 1: .*\(verbs status 12,)" "${mine[@]}"
	else
		expect "$what" "-(100|10003) $soon .*(2 of 4 ranks died: 0, 1|to rank [01]: rxe0 port 1 \(down: .*\) to rxe0 port 1: .*\(verbs status [0-9]+,)" "${mine[@]}"
	fi
	[ "$VM" = 0 ] || ip link set net0 up
	together end
	# The connection of the rendezvous is patient here, so that the device is what tells.
	scene=machine
	SPMT_RDMA_TIMEOUT=17 world puts 4 "${mine[@]}" &
	ready 2
	together ready
	[ "$VM" = 0 ] || { sleep 0.5; echo b >/proc/sysrq-trigger; sleep 60; }
	wait
	expect 'a machine that is gone' "-10003 $soon .*to rank [23]: rxe0 port 1 to rxe0 port 1: .*\(verbs status 12," "${mine[@]}"
}

for scene_; do
	"$scene_"
done

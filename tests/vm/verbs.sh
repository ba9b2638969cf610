#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The flow suites over real verbs: ranks of a process by way of rxe0, and from rxe0 to rxe1, in a virtual machine (run). What takes
# minutes in an emulated machine is left out.
. "$(dirname "$0")/../abi/lib.sh"

programs=(
	'flow-rma rma/@(strides|no_bytes_still_signal|a_flag_may_be_put|copies_in_and_out|overlap_to_self)'
	'flow-wait waits/@(masks_and_what_is_left_in|deadlines_leave_the_world_usable|compares_at_the_edges)'
	'flow-wait_any wait_any/*'
)

# over DEVICES OPTION..: all of them in one machine
over() {
	local devices=$1 program script='' log status
	shift
	for program in "${programs[@]}"; do
		script+="timeout 400 '$build_root/tests/${program%% *}' --tap=- -j1 --filter '${program#* }' || exit; "
	done
	log=$(SPMT_MAPS=rdma SPMT_RDMA_DEVICE=$devices SPMT_TEST_SLOW=1 tests/vm/run --limit 400 "$@" bash -c "$script" 2>&1)
	status=$?
	case $status in
	0) nothing_in "suites over $devices" '' ;;
	77) skip "suites over $devices" "${log##*skipped: }" ;;
	*) nothing_in "suites over $devices" "exit status $status"$'\n'"$log" ;;
	esac
}

over rxe0
over rxe0,rxe1 --veth
plan

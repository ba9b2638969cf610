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

# Buffers that nobody has registered, where the device holds real pages; trusted, it is seen to move old ones.
log=$(SPMT_RDMA_TIMEOUT=18 tests/vm/run --limit 400 bash -c "for mode in auto off trust; do timeout 120 '$build_root/tests/fakes/stress-verbs_cache' \$mode rxe0 || exit; done" 2>&1)
status=$?
case $status in
0) nothing_in 'memory that is mapped anew' "$(grep '^not ok' <<<"$log")" ;;
77) skip 'memory that is mapped anew' "${log##*skipped: }" ;;
*) nothing_in 'memory that is mapped anew' "exit status $status"$'\n'"$log" ;;
esac
plan

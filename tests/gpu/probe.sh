#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What the programs here say of a driver before they test anything: its devices, or what is missing. And what tests/gpu/run says
# of names that are none.
. "$(dirname "$0")/../abi/lib.sh"

rma=$build_root/tests/gpu/gpu-rma fakes=$build_root/tests/fakes
unset "${!SPMT_@}"
export SPMT_FAKE_DEVICES=3

# says NAME STATUS PATTERN VARIABLE=.. COMMAND..: the status and the whole output
says() {
	local name=$1 want=$2 pattern=$3 out rc=0
	shift 3
	out=$(timeout 120 env "$@" 2>&1) || rc=$?
	nothing_in "$name" "$([ "$rc" = "$want" ] && grep -qxE -- "$pattern" <<<"$out" || echo "$rc: $out")"
}

says 'the host backend has no GPUs' 0 'host 0' SPMT_BACKEND=host "$rma" --probe
says 'devices of libcuda are counted' 0 'cuda 3' SPMT_BACKEND=cuda "SPMT_CUDA_LIB=$fakes/fake-cuda.so" "$rma" --probe
says 'devices of libamdhip64 are counted' 0 'hip 3' SPMT_BACKEND=hip "SPMT_HIP_LIB=$fakes/fake-hip7.so" "$rma" --probe

# The stand-in with another name in the place of one that the library does not need, but these programs do.
sed 's/cuCtxSetCurrent/cuCtxSetCurrenX/g' "$fakes/fake-cuda.so" >"$scratch/libcuda.so"
for arguments in --probe '-n 1'; do
	# shellcheck disable=SC2086 # words
	says "a call that a driver lacks is named ($arguments)" 1 'Bail out! cuda: the driver lacks cuCtxSetCurrent' \
		SPMT_BACKEND=cuda "SPMT_CUDA_LIB=$scratch/libcuda.so" "$rma" $arguments
done
says 'a kernel that does not load is no crash' 1 "Bail out! cuda: (a test's kernel does not load|.* without device images .*)" \
	SPMT_BACKEND=cuda "SPMT_CUDA_LIB=$fakes/fake-cuda.so" "$rma" -n 1

# A build of two programs that only talk.
mkdir "$scratch/build"
printf '#!/bin/sh\n[ "$1" = --probe ] && echo host 0 || echo ok 1 - rma\n' >"$scratch/build/gpu-rma"
printf '#!/bin/sh\necho ok 1 - one\n' >"$scratch/build/flow-one"
chmod +x "$scratch/build"/*
for suites in 'one|0|1 passed, 0 failed' 'one two|1|1 passed, 1 failed' 'two|1|0 passed, 1 failed' '|0|1 passed, 0 failed'; do
	IFS='|' read -r names status last <<<"$suites"
	# shellcheck disable=SC2086 # words
	says "tests/gpu/run --flow${names:+ $names}" "$status" "$last" SPMT_BUILD="$scratch/build" "$source_root/tests/gpu/run" --flow $names
done
mkdir "$scratch/tool"
printf '#!/bin/sh\nshift 4\nexec "$@"\n' >"$scratch/tool/compute-sanitizer"
chmod +x "$scratch/tool/compute-sanitizer"
for programs in 'rma|0|1 passed, 0 failed' 'rma typed|1|1 passed, 1 failed'; do
	IFS='|' read -r names status last <<<"$programs"
	# shellcheck disable=SC2086 # words
	says "tests/gpu/run --memcheck $names" "$status" "$last" SPMT_BUILD="$scratch/build" PATH="$scratch/tool:$PATH" \
		"$source_root/tests/gpu/run" --memcheck $names
done
rm "$scratch/build/flow-one"
says 'tests/gpu/run without a place for files' 1 'Bail out! no file can be made in /nonexistent' TMPDIR=/nonexistent "$source_root/tests/gpu/run"
says 'tests/gpu/run --flow without suites' 1 'not ok 1 - no flow suites in .*' SPMT_BUILD="$scratch/build" "$source_root/tests/gpu/run" --flow
plan

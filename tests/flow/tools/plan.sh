#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# spmt-plan as a user meets it: the library's collectives as plans, written, read again, checked, run; and what it refuses.
. "$(dirname "$0")/../../abi/lib.sh"

tool=$build_root/spmt-plan
export SPMT_BACKEND=host LD_LIBRARY_PATH=$build_root
unset "${!SPMT_HOST_@}" SPMT_MAPS SPMT_MOVES SPMT_FAULT SPMT_LOG SPMT_COLL

# exits STATUS ARGUMENT..: its output in $scratch/out and $scratch/err.
exits() {
	local want=$1 rc=0
	shift
	timeout 120 "$tool" "$@" >"$scratch/out" 2>"$scratch/err" || rc=$?
	nothing_in "spmt-plan ${*//$scratch\//} exits $want" "$([ "$rc" = "$want" ] || { echo "$rc"; cat "$scratch/err"; })"
}

says() { # NAME FILE PATTERN
	nothing_in "$1" "$(grep -qE -- "$3" "$scratch/$2" || { echo "no $3 in:"; tail -n 20 "$scratch/$2" | cut -c 1-160; })"
}

exits 0 --version
exits 0 --help
says 'the help says how' out '^usage: spmt-plan '
for words in '' show 'dance x' 'check a b' 'run a 1 2 3' 'run make:allreduce:2 x' 'run make:allreduce:2 64 -1'; do
	# shellcheck disable=SC2086 # words
	exits 2 $words
done
for made in allreduce allreduce-packets allgather reducescatter alltoall; do
	for n in 1 2 5; do
		exits 0 check "make:$made:$n"
		exits 0 run "make:$made:$n" 4096 2
		says "$made of $n is right" out ": right, "
	done
	exits 0 json "make:$made:4"
	cp "$scratch/out" "$scratch/$made.json"
	exits 0 run "$scratch/$made.json" 4096 2
	says "$made as a file is right" out ': right, '
	exits 0 json "$scratch/$made.json"
	nothing_in "$made written again is the same" "$(diff "$scratch/out" "$scratch/$made.json")"
done
SPMT_HOST_DEVICES=20 exits 0 run make:allreduce:20 4096 1
says 'of more ranks than an operation has terms, too' out ': right, '
exits 0 svg make:allreduce:3
says 'a picture' out '^<svg .*'
exits 0 show make:allreduce:2
says 'as text' out 'reduce o0, rank 1 o0 to o0'

# A plan without one of its signals.
sed -E '0,/\{"name": "signal"[^}]*\}/s//{"name": "nop"}/' "$scratch/allreduce.json" >"$scratch/less.json"
exits 1 check "$scratch/less.json"
says 'a signal that is missing is told' err 'waits for what nobody signals'
exits 1 run "$scratch/less.json"
exits 1 check "$scratch/none.json"
says 'a file that is not there' err 'none.json: No such file'
echo '{"name": 3}' >"$scratch/bad.json"
exits 1 check "$scratch/bad.json"
says 'a file that is no plan' err 'line 1: name is no string'
exits 1 check make:dance:3
exits 1 check make:allreduce:0
plan

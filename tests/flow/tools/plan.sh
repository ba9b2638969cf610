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
says 'and what a plan that is written relies on' out 'no closing signals$'
for words in '' show 'dance x' 'check a b' 'run a 1 2 3' 'run make:allreduce:2 x' 'run make:allreduce:2 64 -1'; do
	# shellcheck disable=SC2086 # words
	exits 2 $words
done
for made in allreduce allreduce-packets allreduce-twoshot allreduce-push allgather reducescatter alltoall; do
	for n in 1 2 5; do
		exits 0 check "make:$made:$n"
		exits 0 run "make:$made:$n" 4800 2
		says "$made of $n is right" out ": right, "
	done
	for words in "check make:$made:3:4" "run make:$made:3:4 49152 2"; do
		# shellcheck disable=SC2086 # words
		exits 0 $words
	done
	says "$made in four blocks is right" out ': right, '
	exits 0 json "make:$made:4"
	cp "$scratch/out" "$scratch/$made.json"
	exits 0 run "$scratch/$made.json" 4096 2
	says "$made as a file is right" out ': right, '
	exits 0 json "$scratch/$made.json"
	nothing_in "$made written again is the same" "$(diff "$scratch/out" "$scratch/$made.json")"
done
for made in allreduce allreduce-twoshot allreduce-push; do
	SPMT_HOST_DEVICES=20 exits 0 run "make:$made:20" 4800 1
	says "$made of more ranks than an operation has terms, too" out ': right, '
done
exits 1 run make:allreduce:9 7200 1
says 'of more ranks than there are devices, says what to do' err 'plan of 9 ranks needs as many devices; .*SPMT_HOST_DEVICES=9 '
SPMT_HEAP_SIZE=2M exits 1 run make:allreduce:2 4194304 1
says 'what does not fit the heap says so' err 'SPMT_HEAP_SIZE'
SPMT_HEAP_SIZE=64M exits 0 run make:allreduce:2 4194304 1
full=$tool
tool=$scratch/little
printf '#!/bin/sh\nulimit -v 900000\nexec "%s" "$@"\n' "$full" >"$tool"
chmod +x "$tool"
if ! nm -D "$build_root/libspmt.so" | grep -E ' [^w] __(asan|tsan_func|ubsan|sanitizer)' >/dev/null; then
	SPMT_HEAP_SIZE=2M exits 1 run make:allgather:4 268435456 1
	says 'without memory on the host says so' err 'no memory for the 1073741828 bytes that a rank fills'
else
	skip 'without memory on the host says so' 'the library is built with a sanitizer, which takes more addresses'
fi
tool=$full
exits 0 svg make:allreduce:3
says 'a picture' out '^<svg .*'
exits 0 show make:allreduce:2
says 'as text' out 'reduce i0, rank 1 i0 to o0'

# Larger than can be looked at, or than a plan may be.
exits 1 check make:allreduce:256
says 'the limit and what there is' err '200192 operations times 256 blocks of all ranks are 51249152, too many to look at: at most 50331648$'
exits 1 svg make:allreduce:256:64
says 'what the limit is' err 'has 4194304 operations, as many as a plan may have$'

# Sizes that a plan cannot have.
exits 2 run make:allreduce:8 0
says 'nothing to run' err '^spmt-plan: 0 is no size of inputs of allreduce: multiples of 64 are, as 64$'
exits 2 run make:allreduce:8 7
says 'less than a chunk' err '^spmt-plan: 7 is no size of inputs of allreduce: multiples of 64 are, as 64$'
exits 2 run make:allreduce:5 4096
says 'between two' err '^spmt-plan: 4096 is no size of inputs of allreduce: multiples of 40 are, as 4080 or 4120$'

# Output that cannot be written.
for words in --help 'check make:allreduce:2' 'show make:allreduce:2' 'svg make:allreduce:8' 'run make:allreduce:2 64 1'; do
	for to in '/dev/full:No space left on device' '&-:Bad file descriptor'; do
		rc=0
		timeout 120 sh -c "'$tool' $words >${to%%:*}" 2>"$scratch/err" || rc=$?
		nothing_in "spmt-plan $words >${to%%:*} exits 1" "$([ "$rc" = 1 ] || echo "$rc")"
		says 'and says why' err "stdout: ${to#*:}"
	done
done

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
exits 1 check - < <(head -c 300M /dev/zero)
says 'a file without end' err '^spmt-plan: -: more than 268435456 bytes, too many for a plan$'

# Of an allgather that is none, its result is not compared; in place, what is filled may be the output alone.
gpus() { # INPUT OUTPUT: of two, without operations
	echo "{\"id\": 0, \"input_chunks\": $1, \"output_chunks\": $2, \"scratch_chunks\": 0},"
	echo "{\"id\": 1, \"input_chunks\": $1, \"output_chunks\": $2, \"scratch_chunks\": 0}"
}
echo "{\"name\": \"n\", \"collective\": \"allgather\", \"gpus\": [$(gpus 1 1)]}" >"$scratch/small.json"
exits 0 run "$scratch/small.json" 67108864 0
says 'an output that is too small is not read beyond its end' out 'no collective that is known here'

# Sizes beyond all memory, and the ends of what a plan is for.
least() { # BYTES: that plan, for as many and more
	sed "s/\"gpus\"/\"min_message_size\": $1, &/" "$scratch/small.json" >"$scratch/least.json"
}
for bytes in 9223372036854775808 18446744073709551614; do
	least $bytes
	exits 1 run "$scratch/least.json"
	says "no buffer of $bytes bytes" err "least.json: the plan is for $bytes bytes and more, and no buffer can be so large\$"
done
exits 1 run "$scratch/least.json" 64
says 'less than a plan is for, which has no end' err "64 bytes are not in the plan's 18446744073709551614 and more$"
least '8, "max_message_size": 16'
exits 1 run "$scratch/least.json" 64
says 'more than a plan is for' err "64 bytes are not in the plan's 8 \.\. 16$"
sed -E 's/"input_chunks": 4/"input_chunks": 0/; s/"type": "i"/"type": "o"/g' "$scratch/allreduce.json" >"$scratch/output.json"
exits 0 run "$scratch/output.json" 4096 0
says 'an allreduce of its output alone is right' out ': right$'

# As a row of the collectives.
info() { # STATUS COLL ARGUMENT..: spmt-info --coll
	local rc=0
	SPMT_COLL=$2 "$build_root/spmt-info" --coll "${@:3}" >"$scratch/out" 2>"$scratch/err" || rc=$?
	nothing_in "spmt-info --coll exits $1" "$([ "$rc" = "$1" ] || { echo "$rc"; cat "$scratch/err"; })"
}
info 0 ''
says 'the rows of the table' out '^  pushed +one meeting, .* slots$'
says 'all of them' out '^  reduce +each folds '
nothing_in 'each in words' "$(grep -F '(null)' "$scratch/out")"
nothing_in 'what 2, 4 and 8 ranks take' "$([ "$(grep -oE '^  [0-9]+ ranks' "$scratch/out" | tr -d '\n')" = '  2 ranks  4 ranks  8 ranks' ] || cat "$scratch/out")"
info 0 '' 2
says 'few take one phase with more' out '^  all_reduce +ll up to 196608, ll12 up to 4194304, push2 +ll up to 64, reduce$'
says 'reduce does not meet by block' out '^  reduce +ll up to 98304, ll12 up to 4194304, reduce +ll up to 64, reduce$'
says 'a sum with factors has no such phase' out '^  all_reduce, premul +pushed up to 65536, twoshot +pushed up to 64, reduce$'
says 'counts by rank have a way of their own' out '^  all_to_all_v +varied +varied$'
nothing_in 'one number of ranks alone' "$([ "$(grep -cE '^  [0-9]+ ranks' "$scratch/out")" = 1 ] || cat "$scratch/out")"
info 0 '' 9
says 'many do not meet by block' out '^  all_gather +ll up to [0-9]+, direct up to [0-9]+, engine +ll up to 64, direct$'
info 0 'pushed' 2
says 'a wish is granted' out '^  all_gather +pushed up to [0-9]+, give up to [0-9]+, engine +pushed up to '
info 0 'push2' 4
says 'sums in two phases of stores' out '^  reduce_scatter +push2 +push2$'
says 'where there is a sum' out '^  all_reduce, premul +pushed up to 65536, twoshot +pushed up to 64, reduce$'
info 0 'll12' 4
says 'where slots have room for it' out '^  all_reduce +ll12 up to 4194816, push2 +ll12 up to 4194816, reduce$'
info 2 '' 0
info 2 '' 2 3
info 0 "plan:$scratch/allreduce.json,plan:$scratch/alltoall.json,direct,only"
says 'a plan among them' out 'allreduce.json: allreduce, spmt_all_reduce of 4 ranks, .*: right'
says 'another one' out 'alltoall.json: alltoall, spmt_all_to_all of 4 ranks, .*: right'
info 1 "plan:$scratch/less.json"
says 'one that is wrong' out 'less.json: .*waits for what nobody signals'
info 1 "plan:$scratch/bad.json"
says 'one that is none' out 'bad.json: refused: .*line 1: name is no string'
info 1 "danced"
info 1 'll,copy'
says 'what init refuses is said as it says it: two' out 'refused: SPMT_COLL: two algorithms, ll and copy: one beside plans$'
for words in only ll,only; do
	info 1 "$words"
	says "and $words" out 'refused: SPMT_COLL: only is for plans, and there is none beside it$'
done
info 1 'll,'
says 'and nothing beside a comma' out 'refused: SPMT_COLL: a name is missing beside a comma$'
SPMT_COLL=plan:$scratch/allreduce.json SPMT_LOG=info exits 0 run make:allgather:4 4096 1
says 'the log says what is taken' err 'SPMT_COLL: plan allreduce .*: spmt_all_reduce of '
SPMT_COLL=plan:$scratch/allreduce.json SPMT_LOG=info exits 0 run make:allgather:3 4096 1
says 'and what is not' err 'is for 4 ranks, the world has 3: not taken'
SPMT_COLL=plan:$scratch/bad.json exits 1 run make:allgather:4 4096 1
says 'a file that is no plan fails init' err 'spmt_init: rank [0-9]: SPMT_COLL: .*/bad.json: .*line 1: name is no string'
exits 2 check make:dance:3
for numbers in 0 257 1281 99999999999999999999 4x 4y3 ' 4' +4 4:3x '4: 3' 4: :3; do
	exits 2 check "make:allreduce:$numbers"
done
for blocks in '' 0 129 1281 2x 1:1; do
	exits 2 check "make:allreduce:2:$blocks"
	says "no blocks: '$blocks'" err 'is none of make:NAME:RANKS or make:NAME:RANKS:BLOCKS'
done
exits 0 show make:allgather:0012:0002
says 'all digits count' out '^allgather: allgather of 12 ranks, '
plan

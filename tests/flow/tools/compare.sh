#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What bench/compare makes of what its programs say: rows and verdicts. It needs no GPU for that.
. "$(dirname "$0")/../../abi/lib.sh"

# Of lines "PROGRAM OUTPUT" lines "ROW VARIANT BYTES VERDICT REMARK".
cat >"$scratch/judge.py" <<'END'
import importlib.machinery
import importlib.util
import sys

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("compare", "bench/compare")
compare = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
loader.exec_module(compare)
compare.say = lambda text: None
results = compare.Results()
for line in sys.stdin:
    program, output = line.split(None, 1)
    results.take(program, output.rstrip())
for row in compare.make_rows(results, int(sys.argv[1])):
    print(row["row"], row["variant"], row["size"], row["verdict"], row["remark"])
END

# judges NAME GPUS "PROGRAM ROW VARIANT BYTES NUMBER UNIT, .." VERDICT..: of the rows, in order
judges() {
	local name=$1 gpus=$2 lines=$3 got
	shift 3
	got=$(sed -E 's/, */\n/g' <<<"$lines" | sed -E 's/^([a-z]+) /\1 value /' | python3 "$scratch/judge.py" "$gpus" 2>&1)
	nothing_in "$name" "$([ "$(awk '{ print $4 }' <<<"$got" | xargs)" = "$*" ] || echo "not $*: $got")"
}

judges 'a call on a stream has microseconds' 2 'spmt ring stream 8 3.8 us, spmt ring stream 4096 3.81 us' met missed
judges 'of 32 KiB, too' 2 'spmt all_gather stream 32768 3.8 us, spmt all_gather stream 65536 3.9 us, spmt all_to_all stream 32768 3.9 us' met none missed
judges 'the same call in a graph has others, behind it' 2 'spmt ring graph-20 8 2.1 us, spmt ring stream 8 2.1 us' met missed
judges 'all_reduce in a graph, two GPUs' 2 \
	'spmt all_reduce graph-20 8 2.2 us, spmt all_reduce graph-20 4096 2.2 us, spmt all_reduce graph-20 32768 9 us, spmt all_reduce graph-20 65536 3.3 us' \
	met met none missed
judges 'and four' 4 'spmt all_reduce graph-20 8 2.3 us, spmt all_reduce graph-20 4096 9 us' missed none
judges 'packets' 2 \
	'spmt packets block-256 8 0.9 us, spmt packets block-256 4096 1.31 us, spmt packets block-256 65536 2.9 us, spmt packets block-1024 65536 3 us' \
	met missed met missed
judges 'a put with its signal is no slower than raw, but for noise' 2 \
	'spmt put_signal block-256 8 1.01 us, raw put_signal block-256 8 1 us, spmt put_signal block-256 65536 3.1 us, raw put_signal block-256 65536 3 us' \
	met missed
judges 'which is not known where there is none' 2 'spmt put_signal block-256 8 1.01 us' unknown
judges 'of one thread nothing is asked' 2 'spmt put_signal thread 8 9 us, raw put_signal thread 8 1 us' none
judges 'a plan is at most 3 % slower than what is built in' 2 \
	'plan all_reduce_plan stream 8 4.2 us, spmt all_reduce_plan stream 8 4 us, plan all_reduce_plan stream 16777216 61.7 us, spmt all_reduce_plan stream 16777216 60 us' \
	missed met
judges 'one that is not there is not known' 2 'spmt all_reduce_plan stream 8 4 us' unknown
got=$(printf '%s\n' 'spmt value ring stream 8 1 us' 'spmt wrong ring stream 8 rank 0: 1 words differ' | python3 "$scratch/judge.py" 2)
nothing_in 'wrong data is no result, and is said' "$([ "$got" = 'ring stream 8 unknown spmt: wrong data' ] || echo "$got")"
plan

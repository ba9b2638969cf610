#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What bench/compare makes of what its programs say: rows and verdicts. It needs no GPU for that.
. "$(dirname "$0")/../../abi/lib.sh"

# Of lines "PROGRAM OUTPUT" lines "ROW VARIANT BYTES VERDICT REMARK [PEER NUMBER ROW]" with the second peer, if there is one. Arguments: how
# many GPUs, and which programs were not there.
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
results.why = {name: "not there" for name in sys.argv[2:]}
for row in compare.make_rows(results, int(sys.argv[1])):
    print(row["row"], row["variant"], row["size"], row["verdict"], row["remark"], *(row["also"] or ()))
END

# judges NAME "GPUS [ABSENT..]" "PROGRAM ROW VARIANT BYTES NUMBER UNIT, .." VERDICT..: of the rows, in order
judges() {
	local name=$1 lines=$3 got given
	read -ra given <<<"$2"
	shift 3
	got=$(sed -E 's/, */\n/g' <<<"$lines" | sed -E 's/^([a-z]+) /\1 value /' | python3 "$scratch/judge.py" "${given[@]}" 2>&1)
	nothing_in "$name" "$([ "$(awk '{ print $4 }' <<<"$got" | xargs)" = "$*" ] || echo "not $*: $got")"
}

judges 'a call on a stream has microseconds' 2 'spmt ring stream 8 3.8 us, spmt ring stream 4096 3.81 us' met missed
judges 'of 32 KiB, too' 2 'spmt all_gather stream 32768 3.8 us, spmt all_gather stream 65536 3.9 us, spmt all_to_all stream 32768 3.9 us' met none missed
judges 'the same call in a graph has others, behind it' 2 'spmt ring graph-20 8 2.1 us, spmt ring stream 8 2.1 us' met missed
judges 'in a registered stream it stands beside what others take in any' 2 \
	'spmt all_reduce registered 8 3.9 us, nccl all_reduce stream 8 7.1 us, windows all_reduce stream 8 7 us, spmt all_reduce registered 4096 3.9 us, nccl all_reduce stream 4096 7 us, windows all_reduce stream 4096 7 us' \
	unknown unknown met missed
judges 'a put stands beside the copy of its own program in the same stream' 2 \
	'spmt put_on_stream stream 8 3 us, spmt put_copy stream 8 2 us, spmt put_on_stream registered 8 2.1 us, spmt put_copy registered 8 2.1 us, raw put_on_stream stream 8 1 us, spmt put_on_stream stream 4096 1 GB/s' \
	missed unknown met none none
judges 'all_reduce in a graph, two GPUs' 2 \
	'spmt all_reduce graph-20 8 2.2 us, spmt all_reduce graph-20 4096 2.2 us, spmt all_reduce graph-20 32768 9 us, spmt all_reduce graph-20 65536 3.3 us' \
	met met none missed
judges 'and four' 4 'spmt all_reduce graph-20 8 2.3 us, spmt all_reduce graph-20 4096 9 us' missed none
judges 'packets' '2 mscclpp' \
	'spmt packets block-256 8 0.9 us, spmt packets block-256 4096 1.31 us, spmt packets block-256 65536 2.9 us, spmt packets block-1024 65536 3 us' \
	met missed met missed
judges 'which are no slower than those of MSCCL++, but for noise' 2 \
	'spmt packets block-256 8 0.9 us, mscclpp packets block-256 8 0.89 us, spmt packets block-256 4096 1.2 us, mscclpp packets block-256 4096 1.1 us' \
	met missed
judges 'where it was to be and is not, that is not known' 2 'spmt packets block-256 8 0.8 us, nvshmem put_signal block-256 8 9 us' unknown unknown
judges 'nor by its puts with signals, where its packets have failed' 2 \
	'spmt packets block-256 8 0.8 us, mscclpp put_signal block-256 8 9 us, spmt put_signal block-256 8 2 us' unknown unknown
judges 'and ours are not, where ours have failed' 2 'mscclpp packets block-256 8 3 us, spmt put_signal block-256 8 0.8 us, raw put_signal block-256 8 0.8 us' \
	met unknown
judges 'of bulk copies raw has no bandwidth, but that of plain ones' 2 \
	'spmt bulk_bw 8x32 16777216 300 GB/s, raw put_bw 8x1024 16777216 301 GB/s' unknown met
judges 'its signals and bulk copies ask for nothing more' 2 \
	'spmt channel_signal relaxed 0 0.7 us, mscclpp channel_signal relaxed 0 0.1 us, spmt bulk_put thread 4096 1 us, mscclpp bulk_put thread 4096 0.1 us' \
	met met
judges 'a put with its signal is no slower than raw, but for noise' 2 \
	'spmt put_signal block-256 8 1.01 us, raw put_signal block-256 8 1 us, spmt put_signal block-256 65536 3.1 us, raw put_signal block-256 65536 3 us' \
	met missed
judges 'which is not known where there is none' 2 'spmt put_signal block-256 8 1.01 us' unknown
judges 'of one thread nothing is asked' 2 'spmt put_signal thread 8 9 us, raw put_signal thread 8 1 us' none
judges 'a plan is at most 3 % slower than what is built in' 2 \
	'plan all_reduce_plan stream 8 4.2 us, spmt all_reduce_plan stream 8 4 us, plan all_reduce_plan stream 16777216 61.7 us, spmt all_reduce_plan stream 16777216 60 us' \
	missed met
judges 'one that is not there is not known' 2 'spmt all_reduce_plan stream 8 4 us' unknown
judges 'of several turns the best counts' 2 \
	'spmt ring stream 8 3.7 us, spmt ring stream 8 4.9 us, spmt put_launch 8x1024 65536 99 GB/s, spmt put_launch 8x1024 65536 50 GB/s, nvshmem put_launch 8x1024 65536 98 GB/s' \
	met met
judges 'and no number that is refused' 2 \
	'spmt ring stream 8 0 us, spmt ring stream 8 3.7 us, spmt put_launch 8x1024 65536 99 GB/s, spmt put_launch 8x1024 65536 397 GB/s, nvshmem put_launch 8x1024 65536 98 GB/s' \
	met met
got=$(printf '%s\n' 'spmt value ring stream 8 1 us' 'spmt wrong ring stream 8 rank 0: 1 words differ' | python3 "$scratch/judge.py" 2)
nothing_in 'wrong data is no result, and is said' "$([ "$got" = 'ring stream 8 unknown spmt: wrong data' ] || echo "$got")"
got=$(printf '%s\n' 'spmt value packets block-256 8 1 us' 'nvshmem value put_signal block-256 8 3 us' 'mscclpp value packets block-256 8 2 us' \
	'mscclpp value put_signal block-256 8 4 us' | python3 "$scratch/judge.py" 2)
nothing_in 'NVSHMEM and MSCCL++ are both beside it' "$(diff <(echo "$got") <(printf '%s\n' 'put_signal block-256 8 unknown  mscclpp 4.0 ' \
	'packets block-256 8 missed  nvshmem 3.0 put_signal'))"

# ends NAME STATUS SCRIPT: of a program that has 30 seconds for group graph, and half a second to end in
cat >"$scratch/ends.py" <<'END'
import importlib.machinery
import importlib.util
import sys
import time

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("compare", "bench/compare")
compare = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
loader.exec_module(compare)
compare.END_SECONDS = 0.5
begin = time.monotonic()
status = compare.run_once("raw", ["bash", "-c", sys.argv[1], "program"], ["graph"], None, 30, compare.Results())
print("status", status, "soon" if time.monotonic() - begin < 20 else "late")
END

ends() {
	local got
	got=$(python3 "$scratch/ends.py" "$3" 2>&1)
	nothing_in "$1" "$([ "$(tail -n 1 <<<"$got")" = "status $2 soon" ] || echo "$got")"
}

ends 'a program that ends' 0 'echo done graph'
ends 'one that dies' -11 'kill -SEGV $$'
ends 'one that does not end once it has said everything' None 'echo done graph; exec sleep 60'

# What runs, with programs that say nothing and take no time.
cat >"$scratch/runs.py" <<'END'
import importlib.machinery
import importlib.util
import os
import sys

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("compare", "bench/compare")
compare = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
loader.exec_module(compare)
compare.find_gpus = lambda: [("GPU", "9.0")] * 2
absent = os.environ.get("ABSENT", "").split()
compare.build_all = lambda args, arch, libraries: ("/nonexistent", {name: [name] for name in args.only if name not in absent})
compare.plans = lambda *args: ("plan:FILE,only", None)


def run_once(name, command, groups, env, seconds, results):
    print("ran", name, ",".join(groups), env.get("SPMT_COLL", "-"))
    results.done[name] += groups
    return 0


compare.run_once = run_once
sys.exit(compare.main())
END

# runs NAME "PROGRAM GROUPS SPMT_COLL .." OPTION..
runs() {
	local name=$1 want=$2 got
	shift 2
	got=$(env -u SPMT_COLL python3 "$scratch/runs.py" --build "$scratch/built" "$@" 2>&1)
	nothing_in "$name" "$([ "$(sed -n 's/^ran //p' <<<"$got" | xargs)" = "$want" ] && grep -q '^targets: 0 met' <<<"$got" || echo "$got")"
}

runs 'a plan only where its group is asked for' \
	'raw graph - spmt graph - nvshmem graph - nccl graph - windows graph -' --groups graph
runs 'by SPMT_COLL, beside what is built in' 'spmt plan - plan plan plan:FILE,only' --groups plan
runs 'which is not measured for itself; groups in their order' 'spmt signal,stream - mscclpp signal -' --groups stream,signal,plan --only spmt,mscclpp --quick

# builds NAME STATUS ABSENT OPTION..: what could not be built is absent
builds() {
	local name=$1 want=$2 rc=0 out
	out=$(ABSENT=$3 python3 "$scratch/runs.py" --build "$scratch/built" --build-only "${@:4}" 2>&1) || rc=$?
	nothing_in "$name" "$([ "$rc" = "$want" ] || printf '%s\n' "$rc" "$out")"
}

builds 'programs are built, without one of another library' 0 nvshmem
builds 'that of libspmt is one of them' 1 spmt
builds 'unless others alone are asked for' 0 '' --only raw,nccl
builds 'all of which are needed' 1 nccl --only raw,nccl
plan

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# SPMT_TRACE: what the file holds of one process and of several, and that init fails where it cannot be written.
. "$(dirname "$0")/../../abi/lib.sh"

perf=$build_root/spmt-perf
export SPMT_BACKEND=host LD_LIBRARY_PATH=$build_root
unset "${!SPMT_HOST_@}" SPMT_MAPS SPMT_MOVES SPMT_FAULT SPMT_LOG SPMT_COLL

# look FILE CODE..: what python says of d, the trace, its events e and calls c
cat >"$scratch/look.py" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
e = d["traceEvents"]
c = [x for x in e if x["ph"] == "X"]
for x in c:
    assert x["ts"] > 0 and x["dur"] >= 0 and x["args"]["rank"] < x["args"]["nranks"], x
def named(name, **args):
    found = [x for x in c if x["name"] == name and all(x["args"].get(k) == v for k, v in args.items())]
    assert found, (name, args, [x["args"] for x in c if x["name"] == name][:3])
    return found
exec(sys.argv[2])
END
look() {
	nothing_in "$1" "$(python3 "$scratch/look.py" "$2" "$3" 2>&1 | tail -n 3)"
}

run() { # its status is $rc
	rc=0
	timeout 120 "$perf" --ranks 2 --iters 2 --rounds 3 --sizes 8:1M:8 "$@" >"$scratch/out" 2>"$scratch/err" || rc=$?
}

# ---- one process

trace=$scratch/trace.json
SPMT_TRACE=$trace run --tests put,pingpong,all_reduce,barrier
nothing_in 'a traced program ends well' "$([ $rc = 0 ] || cat "$scratch/err")"
look 'it is JSON, and has both ranks' "$trace" 'assert {x["pid"] for x in c} == {0, 1}; assert len({x["tid"] for x in c}) >= 2'
look 'rows are named' "$trace" 'assert {x["args"]["name"] for x in e if x["ph"] == "M"} == {"rank 0 of 2", "rank 1 of 2"}'
look 'init and finalize' "$trace" 'assert len(named("spmt_init")) >= 2 and len(named("spmt_finalize")) >= 2'
look 'a put: peer, bytes, route' "$trace" 'named("spmt_put", peer=1, bytes=8, map="p2p", mover="store")'
look 'a collective: its stream' "$trace" 'assert all(x["args"]["stream"] for x in named("spmt_all_reduce"))'
look 'a collective: bytes, algorithm' "$trace" 'named("spmt_all_reduce", bytes=8, algorithm="ll"); named("spmt_all_reduce", bytes=262144, algorithm="reduce")'
look 'a barrier' "$trace" 'named("spmt_barrier")'
look 'calls of a thread follow each other' "$trace" '
for t in {x["tid"] for x in c}:
    s = sorted((x for x in c if x["tid"] == t), key=lambda x: x["ts"])
    assert all(a["ts"] + a["dur"] <= b["ts"] + 0.002 for a, b in zip(s, s[1:]) if a["name"] != "spmt_init")'

# ---- moves, as they are counted

moved='
import collections
by = collections.Counter()
for x in c:
    if x["args"]["rank"] == 0 and x["args"].get("peer") == 1 and x["name"] != "spmt_put_signal_nbi":
        by[x["args"]["mover"]] += x["args"].get("bytes", 0)
counted = {k: int(v) for k, v in (w.split("=") for w in open(sys.argv[1] + ".counted").read().split())}
assert {k: by[k] for k in counted} == counted, (by, counted)
assert by["sdma"] and by["store"], by
assert len(named("spmt_iput", bytes=400) + named("spmt_iget", bytes=400)) == 4
named("spmt_mem_put", bytes=1000, mover="store", map="p2p")
named("spmt_mem_put_on_stream", bytes=2 << 20, mover="sdma", stream="own")
named("spmt_put_signal_nbi", bytes=(2 << 20) + 8, mover="sdma")'
rm -f "$trace"
nothing_in 'a program that moves ends well' "$(SPMT_TRACE=$trace timeout 120 "$build_root/tests/traced" 2>&1 >"$trace.counted" || echo "$?")"
look 'registered buffers, strides, signals: bytes and movers' "$trace" "$moved"

# ---- a plan

rm -f "$trace"
nothing_in 'a program that runs a plan ends well' "$(SPMT_TRACE=$trace timeout 120 "$build_root/spmt-plan" run make:allreduce:2 4096 2 2>&1 >/dev/null || echo "$?")"
look 'a run of a plan has bytes of its own and no peer, and says that it is one' "$trace" '
want = {"rank", "nranks", "bytes", "algorithm", "stream"}
for x in named("spmt_plan_run"):
    assert x["args"]["bytes"] == 4096 and x["args"]["algorithm"] == "plan" and set(x["args"]) <= want, x
for x in named("spmt_plan_begin"):
    assert set(x["args"]) <= {"rank", "nranks"}, x'

# ---- wrapped: more calls than a ring holds

SPMT_TRACE=$trace timeout 120 "$perf" --ranks 2 --iters 20000 --rounds 3 --sizes 8:8 --tests put >"$scratch/out" 2>&1
look 'the last calls are kept, the others counted' "$trace" 'assert 16384 <= len(c) <= 3 * 16384, len(c); named("spmt_finalize")
lost = [x for x in e if "not kept" in x["name"]]
assert lost and all(x["ts"] == min(y["ts"] for y in c if y["tid"] == x["tid"]) for x in lost), lost
assert {x["args"]["name"] for x in e if x["name"] == "process_name"} == {"rank 0 of 2", "rank 1 of 2"}'

# ---- several processes, and a file that was there

printf 'something else' >"$trace"
SPMT_TRACE=$trace run --layout 2x1 --tests put
nothing_in "processes end well" "$([ $rc = 0 ] || cat "$scratch/err")"
look "processes share the file" "$trace" "assert len({x[\"tid\"] for x in named(\"spmt_finalize\")}) >= 2; named(\"spmt_put\", map=\"ipc\")"

# ---- where it cannot be written

for path in /nonexistent/trace.json "$scratch" /dev/null; do
	SPMT_TRACE=$path run --tests put
	nothing_in "init fails with SPMT_TRACE=$path" "$([ $rc != 0 ] || echo it does not)"
	nothing_in 'and says why' "$(grep -qE "SPMT_TRACE=$path: [A-Za-z]" "$scratch/err" "$scratch/out" || cat "$scratch/err")"
done
exec 9>"$trace"
flock 9
SPMT_TIMEOUT_MS=300 SPMT_TRACE=$trace run --tests put
exec 9>&-
nothing_in 'init fails where another process keeps the file locked' "$([ $rc = 1 ] || echo it does not)"
nothing_in 'and says that' "$(grep -q 'trace.json: another process has it locked' "$scratch/err" || cat "$scratch/err")"
SPMT_TRACE=$scratch/full.json bash -c 'ulimit -f 0; exec "$@"' _ timeout 120 "$perf" --ranks 2 --tests put --iters 2 2>&1 | cat >"$scratch/err"
nothing_in 'init fails where a file may not grow' "$([ "${PIPESTATUS[0]}" != 0 ] || echo it does not)"
# Ranks that come late to each other share memory, which is a file too and may be the first to be refused.
nothing_in 'and says so' "$(grep -qE '(full\.json|memfd.*): File too large' "$scratch/err" || cat "$scratch/err")"
plan

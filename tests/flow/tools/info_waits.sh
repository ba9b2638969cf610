#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# spmt-info --waits: who waits where, for whom and since when, in processes that run, die, are others', or only look like it.
. "$(dirname "$0")/../../abi/lib.sh"

info=$build_root/spmt-info stuck=$build_root/tests/stuck perf=$build_root/spmt-perf
export SPMT_BACKEND=host LD_LIBRARY_PATH=$build_root
unset "${!SPMT_HOST_@}" SPMT_MAPS SPMT_MOVES SPMT_FAULT SPMT_LOG
pid=''

begin() { # ARGUMENT.. of the stuck program
	"$stuck" "$@" 2>"$scratch/said" &
	pid=$!
}

begin_forged() { # ARGUMENT..: until it is made, for 40 s
	: >"$scratch/said"
	begin forged "$@"
	for _ in $(seq 400); do
		grep -q '^made$' "$scratch/said" && return
		sleep 0.1
	done
}

end() {
	kill -9 "$pid" 2>/dev/null
	{ wait "$pid"; } 2>/dev/null
}

# Looks until the pattern is there, for 40 s; the last look is in $scratch/out.
look_for() { # NAME PATTERN
	local rc=0
	for _ in $(seq 400); do
		rc=0
		timeout 60 "$info" --waits "$pid" >"$scratch/out" 2>"$scratch/err" || rc=$?
		grep -qE -- "$2" "$scratch/out" && break
		sleep 0.1
	done
	nothing_in "$1" "$({ [ "$rc" = 0 ] && grep -qE -- "$2" "$scratch/out"; } || { echo "exit status $rc, no $2 in:"; cat "$scratch/out" "$scratch/err"; })"
}

says() { # NAME PATTERN
	nothing_in "$1" "$(grep -qE -- "$2" "$scratch/out" || { echo "no $2 in:"; cat "$scratch/out"; })"
}

refuses() { # NAME STATUS PATTERN PID
	local rc=0
	timeout 60 "$info" --waits "$4" >"$scratch/out" 2>"$scratch/err" || rc=$?
	nothing_in "$1" "$({ [ "$rc" = "$2" ] && grep -qE -- "$3" "$scratch/err" && [ ! -s "$scratch/out" ]; } || { echo "exit status $rc"; cat "$scratch/out" "$scratch/err"; })"
}

said=$("$info" --waits $$ 2>&1)
if ! grep -q 'has no world' <<<"$said"; then
	skip 'spmt-info --waits' "this process may not be looked at: $said"
	plan
	exit
fi

# ---- what is so

since='since [0-9]+\.[0-9] s'
for layout in one two; do
	begin $layout
	look_for "$layout: a rank that waits in a kernel as well" "^ +3 +[0-9]+  waits in a kernel $since\$"
	look_for "$layout: a barrier, and who is missing" "^ +0 +$pid  waits in spmt_barrier $since for rank 1, 2, 3, 4\$"
	look_for "$layout: a signal, what is wanted and what is there" "^ +1 +$pid  waits in spmt_signal_wait $since for the word at offset 0x8 >= 0x7, which is 0\$"
	look_for "$layout: a meeting of a part, and who is missing by its number in the world" "^ +2 +$pid  waits in spmt_malloc $since of a part of 3 ranks for rank 4, 0\$"
	look_for "$layout: a word of another type" "^ +3 +[0-9]+  waits in spmt_wait_until $since for the word at offset 0x10 > 2.5, which is 0\$"
	says "$layout: a rank that is elsewhere" '^ +4 +[0-9]+  in no wait$'
	nothing_in "$layout: a world is told once" "$([ "$(grep -cE '^world [0-9a-f]{16} of 5 ranks$' "$scratch/out")" = 1 ] || cat "$scratch/out")"
	nothing_in "$layout: ranks have the numbers of their processes" \
		"$([ "$(awk '/^ +[0-9]/ { print $2 }' "$scratch/out" | sort -u | wc -l)" = "$([ $layout = one ] && echo 1 || echo 2)" ] || cat "$scratch/out")"
	nothing_in "$layout: the process goes on" "$(kill -0 "$pid" 2>&1; cat "$scratch/said")"
	end
done
begin init
look_for 'in init: who has not come' "^ +0 +$pid  waits in spmt_init $since for what has not come here, rank 2, 3, 4\$"
says 'and has no process' '^ +4 +-  has not come$'
end

# ---- SPMT_LOG

wants_lines() { # NAME COUNT PATTERN, of $scratch/said within 40 s
	for _ in $(seq 400); do
		[ "$(grep -cE -- "$3" "$scratch/said")" = "$2" ] && break
		sleep 0.1
	done
	nothing_in "$1" "$([ "$(grep -cE -- "$3" "$scratch/said")" = "$2" ] || { echo "not $2 of $3 in:"; cat "$scratch/said"; })"
}
head='^spmt: info: world [0-9a-f]{16} of 5 ranks: '
tail='heaps of [0-9]+ [KM]iB \((vmm|static)\), routes of rank [03]: .*1 self by store,sdma.*; init took [0-9.]+ ms$'
broken='^spmt: error: world [0-9a-f]{16} of 5 ranks is broken '
SPMT_LOG=info begin one 700
wants_lines 'info: what a world is' 1 "${head}0-4 in process $pid, backend host, devices 0-4, $tail"
wants_lines 'the first failure, and which rank found out' 1 "$broken\(rank 0: a deadline passed\): spmt_barrier: .*4 of 5 ranks missing after [0-9.]+ s: 1, 2, 3, 4\$"
wants_lines 'the first failure of a part' 1 '^spmt: error: a part of 3 ranks of world [0-9a-f]{16} is broken \(rank 2: a deadline passed\): spmt_malloc: .*: 0, 2$'
look_for '--waits says that it is broken' '^broken \(a deadline passed\): spmt_barrier: .*4 of 5 ranks missing after [0-9.]+ s: 1, 2, 3, 4$'
end
SPMT_LOG=info begin two 700
wants_lines 'once a process: the first' 1 "${head}0-2 in process $pid, backend host, devices 0-2, $tail"
wants_lines 'and the other' 1 "${head}3-4 in process [0-9]+, backend host, devices 0-1, $tail"
wants_lines 'the process that found out says who' 1 "$broken\(rank 0: a deadline passed\): spmt_barrier: "
wants_lines 'the other one says what it was told' 1 "$broken\(a deadline passed\): spmt_barrier: "
end
SPMT_LOG=error begin one 700
wants_lines 'error: the failure alone' 1 "$broken"
nothing_in 'error: and no world' "$(grep info: "$scratch/said")"
end
begin one 700
look_for 'unasked' '^broken '
nothing_in 'unasked, nothing is said' "$(grep '^spmt: ' "$scratch/said")"
end

# ---- what is not

refuses 'no such process' 1 'there is no process 4194999' 4194999
for word in x -1 0 1x '' 99999999999999999999 2147483648; do
	refuses "'$word' is no process" 2 'wants the number of a process' "$word"
done
sleep 100 &
pid=$!
refuses 'a program without the library' 1 "process $pid has no world of libspmt\$" "$pid"
end
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && setpriv --reuid=65534 --clear-groups test -x "$info"; then
	begin one
	rc=0
	setpriv --reuid=65534 --regid=65534 --clear-groups "$info" --waits "$pid" >"$scratch/out" 2>&1 || rc=$?
	nothing_in "another user's process" "$({ [ $rc = 1 ] && grep -q "process $pid cannot be looked at: " "$scratch/out"; } || cat "$scratch/out")"
	end
else
	skip "another user's process" 'needs root, and a tree that others may read'
fi
for kind in 'version 0:another version of libspmt' 'cell 0:another version of libspmt' 'none 0:has no world' 'many 0:has no world' \
	'short 0:has no world' 'moved 0:has no world'; do
	# shellcheck disable=SC2086 # words
	begin_forged ${kind%:*}
	refuses "a block that is wrong: ${kind%% *}" 1 "process $pid .*${kind#*:}" "$pid"
	end
done
bad=''
for seed in $(seq 30); do
	begin_forged noise "$seed"
	rc=0
	timeout 60 "$info" --waits "$pid" >"$scratch/out" 2>"$scratch/err" || rc=$?
	{ [ $rc = 0 ] && grep -q '^world ' "$scratch/out" && ! LC_ALL=C grep -qP '[^ -~]' "$scratch/out" && [ "$(wc -l <"$scratch/out")" -le 40 ]; } ||
		bad+="seed $seed: exit status $rc: $(head -c 300 "$scratch/out" | cat -v) $(head -n 3 "$scratch/err")"$'\n'
	end
done
nothing_in 'noise is shown as text' "$bad"

# A process that dies meanwhile.
bad=''
for round in $(seq 8); do
	ways=(one two)
	begin "${ways[round % 2]}"
	(sleep "0.0$((round % 10))" && kill -9 "$pid") &
	for _ in $(seq 8); do
		rc=0
		timeout 60 "$info" --waits "$pid" >"$scratch/out" 2>"$scratch/err" || rc=$?
		[ $rc -le 1 ] || bad+="exit status $rc: $(head -n 3 "$scratch/err")"$'\n'
	done
	end
done 2>/dev/null
wait
nothing_in 'a process that dies is no trouble' "$bad"

# Whom it looks at notices nothing.
timeout 100 "$perf" --iters 5 --rounds 10 --tests barrier,pingpong,all_reduce >"$scratch/said" 2>&1 &
pid=$!
looks=0
while kill -0 "$pid" 2>/dev/null && [ $looks -lt 300 ]; do
	"$info" --waits "$pid" >/dev/null 2>&1
	looks=$((looks + 1))
done
rc=0
wait "$pid" || rc=$?
nothing_in "a program goes on under $looks looks" "$([ $rc = 0 ] || { echo "exit status $rc"; tail -n 3 "$scratch/said"; })"
plan

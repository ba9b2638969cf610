#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# spmt-perf, spmt-info, spmt-demo and the example as a user meets them: exit codes, output, and that wrong data is noticed.
. "$(dirname "$0")/../abi/lib.sh"

perf=$build_root/spmt-perf info=$build_root/spmt-info demo=$build_root/spmt-demo
export SPMT_BACKEND=host LD_LIBRARY_PATH=$build_root
unset "${!SPMT_HOST_@}" SPMT_MAPS SPMT_MOVES SPMT_FAULT SPMT_LOG

# exits STATUS COMMAND..: its output in $scratch/out and $scratch/err.
exits() {
	local want=$1 rc=0
	shift
	timeout 120 "$@" >"$scratch/out" 2>"$scratch/err" || rc=$?
	nothing_in "${*##*/} exits $want" "$([ "$rc" = "$want" ] || { echo "$rc"; cat "$scratch/err"; })"
}

says() { # NAME FILE PATTERN
	nothing_in "$1" "$(grep -qE -- "$3" "$scratch/$2" || { echo "no $3 in:"; tail -n 20 "$scratch/$2" | cut -c 1-160; })"
}

# ---- usage

for words in --bogus extra '--ranks 0' '--ranks x' '--sizes 8' '--sizes 64:8' '--sizes 8:64:1' '--sizes 9:64' '--tests nosuch' \
	'--tests put,' '--rounds 0' '--iters -1' '--pairs 2 --ranks 3' '--ranks 2000 --pairs 1000 --sizes' --json; do
	# shellcheck disable=SC2086 # words
	exits 2 "$perf" $words
done
says 'a usage error points to --help' err 'help|argument'
for words in --bogus extra '--routes 0' '--routes x' '--routes 9999' '--env extra' --topo; do
	# shellcheck disable=SC2086 # words
	exits 2 "$info" $words
done
version=$(sed -nE "s/^  version: '(.*)',/\1/p" meson.build)
for tool in "$perf" "$info"; do
	exits 0 "$tool" --version
	says 'the version is the tree'\''s' out "^${tool##*/} $version\$"
	exits 0 "$tool" --help
	says 'the help says how' out '^usage: '
done

# ---- spmt-perf

names=$("$perf" --help | awk 'inside { print $1 } /^tests:/ { inside = 1 }')
nothing_in 'the help lists the tests' "$([ "$(wc -w <<<"$names")" -ge 10 ] || echo "$names")"
exits 0 "$perf" --iters 2 --rounds 3 --sizes 8:4K:8 --json "$scratch/json"
nothing_in 'nothing on stderr where it is no terminal' "$(cat "$scratch/err")"
for name in $names; do
	says "$name has figures" out "^$name +[0-9]+ .* [0-9.e+-]+ +[0-9.]+%"
	says "$name is in the JSON" json "\"test\": \"$name\", \"ranks\": [0-9]+, .*\"median\": [0-9]"
done
for name in put get put8 pingpong fetch_add; do
	says "$name is compared with a peer" json "\"test\": \"$name\".*\"peer_name\": \"[A-Za-z0-9]+\", \"ratio\": [0-9]"
done
for ranks in 2 8 64; do
	says "barrier of $ranks beside pthread_barrier" out "^barrier +$ranks .* pthread "
done
if command -v python3 >/dev/null; then
	succeeds 'the JSON is JSON' python3 -m json.tool "$scratch/json" /dev/null
else
	skip 'the JSON is JSON' 'no python3'
fi
exits 0 "$perf" --iters 2 --rounds 1 --ranks 5 --pairs 2 --tests put,fetch_add,barrier --sizes 64:64
says 'pairs at once in a larger world' out '^put +5 '
exits 1 "$perf" --iters 1 --rounds 1 --tests put8 --json "$scratch/none/json"
says 'a file that cannot be written is named' err 'none/json: '
exits 1 "$perf" --tests put8 --backend nosuch
says 'an unknown backend is named' err nosuch
exits 0 env SPMT_HOST_DEVICES=4 "$perf" --iters 1 --rounds 1 --tests barrier
says 'what the devices do not suffice for is said' out '^barrier +8 +not measured: 4 devices'

rc=0
timeout 120 "$perf" --check --iters 2 --rounds 1 >"$scratch/out" 2>"$scratch/err" || rc=$?
missed=$(grep -cE '(<=|>=) .* NO$' "$scratch/out")
nothing_in 'every target has a verdict' "$([ "$(grep -cE '(<=|>=) .* (yes|NO)$' "$scratch/out")" = 10 ] || cat "$scratch/out")"
nothing_in "--check exits by them ($missed missed)" "$([ "$rc" = $((missed ? 3 : 0)) ] || echo "$rc")"

# ---- wrong data, and calls that fail

# Preloading goes before a sanitizer's own runtime.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
wrong() { # CALL TESTS
	exits 1 env CORRUPT="$1" LD_PRELOAD="$build_root/tests/corrupt.so" "$perf" --iters 1 --rounds 1 --sizes 8:512:64 --tests "$2"
	says "wrong data of $1 is reported by $2" err '^spmt-perf: wrong data: '
}
wrong put put
wrong put put8
wrong get get_lat
wrong put_signal pingpong
wrong all_reduce all_reduce
wrong atomic fetch_add
wrong atomic barrier
exits 0 env LD_PRELOAD="$build_root/tests/corrupt.so" "$perf" --iters 1 --rounds 1 --sizes 8:512:64
exits 1 env SPMT_FAULT=thread:1 "$perf" --iters 1 --rounds 1 --tests put8
says 'a failed call has its sentence' err '^spmt-perf: put8 with 2 ranks: .+: .+'

# ---- spmt-info

exits 0 "$info"
says 'it lists the host backend' out '^ +host +8 devices'
says 'it says why not the others' out '^ +(hip|cuda) +(no: .+|[0-9]+ device)'
exits 0 env SPMT_HEAP_SIZE=64M "$info" --env
nothing_in '--env has a line a variable' \
	"$(sed -nE 's/^\tX\([a-z_]+, "(SPMT_[A-Z_]+)".*/\1/p' src/env.h | sort | diff - <(awk 'NR > 1 { print $1 }' "$scratch/out" | sort))"
says 'with its value' out '^SPMT_HEAP_SIZE +SIZE +1G +64M '

# A row a rank; every code of the matrix is explained below it.
matrix() { # NAME RANKS
	awk -v ranks="$2" '/^routes of/ { inside = 1; next } /^code map/ { legend = 1; next } legend { explained[$1]; next }
		inside && NF == ranks + 1 { rows++; for (i = 2; i <= NF; i++) used[$i] }
		END {
			if (rows != ranks) print rows + 0 " rows"
			for (code in used) if (!(code in explained)) print code " is not explained"
		}' "$scratch/out" >"$scratch/matrix"
	nothing_in "$1" "$(cat "$scratch/matrix")"
}
exits 0 "$info" --routes
matrix 'a rank a device' 8
exits 0 "$info" --routes 3
matrix 'three ranks' 3
says 'self is a map' out '^s[0-9]+ +self '
says 'the others are reached by p2p' out '^p[0-9]+ +p2p +store'
exits 0 "$info" --routes=20
matrix 'more ranks than the default has devices' 20
exits 0 env SPMT_MOVES=store "$info" --routes 2
nothing_in 'a mover that is not wished for is not used' "$(grep -E '^p[0-9]+ +p2p +.*sdma ' "$scratch/out")"
exits 1 env SPMT_MAPS=-p2p "$info" --routes 2
says 'no route: why' err 'p2p'

# The matrix of $scratch/out against the routes recorded beside a machine.
as_recorded() { # FILE.routes
	awk 'NR == FNR {
			if (/^#/) next
			n = split($2, to, "-")
			for (i = to[1]; i <= to[n]; i++) want[$1 " to " i] = $3 " " $4
			next
		}
		/^routes of/ { inside = 1; next }
		/^code map/ { legend = 1; next }
		legend { said[$1] = $2 " " ($2 == "none" ? "-" : $3); next }
		inside && $2 ~ /^[a-z]/ { for (i = 2; i <= NF; i++) have[$1 " to " i - 2] = $i }
		END {
			for (pair in want) if (said[have[pair]] != want[pair]) print pair ": " said[have[pair]] ", want " want[pair]
			for (pair in have) if (!(pair in want)) print pair ": not recorded"
		}' "$1" "$scratch/out" | head -n 5
}
found=0
for file in tests/fixtures/*.topo; do
	[ -e "$file" ] || continue
	found=$((found + 1))
	exits 0 "$info" --topo "$file"
	ranks=$(sed -nE 's/^routes of ([0-9]+) ranks.*/\1/p' "$scratch/out")
	matrix "$file" "${ranks:-0}"
	nothing_in "$file has ranks" "$([ "${ranks:-0}" -gt 0 ] || echo none)"
	nothing_in "$file has the routes recorded beside it" "$(as_recorded "${file%.topo}.routes" 2>&1)"
done
nothing_in 'machines are recorded' "$([ "$found" -gt 0 ] || echo none)"
exits 1 "$info" --topo "$scratch/none"
says 'a missing recording is named' err "$scratch/none"
echo 'no topology' >"$scratch/bad.topo"
exits 1 "$info" --topo "$scratch/bad.topo"
says 'a broken recording: file and line' err 'bad.topo'
exits 0 "$info" --record "$scratch/here.topo"
exits 0 "$info" --topo "$scratch/here.topo"
matrix 'this machine, recorded' 8
exits 1 "$info" --record "$scratch/none/here.topo"

# ---- demonstration and example

exits 0 "$demo"
nothing_in 'its last line is demo: ok' "$([ "$(tail -n 1 "$scratch/out")" = 'demo: ok' ] || cat "$scratch/out")"
for step in ring all_reduce barrier kernel routes figures; do
	says "it shows: $step" out "^$step"
done
exits 0 env SPMT_HOST_DEVICES=1 "$demo"
exits 1 env SPMT_HOST_DEVICES=0 "$demo"
for call in put put_signal all_reduce; do
	exits 1 env CORRUPT="$call" LD_PRELOAD="$build_root/tests/corrupt.so" "$demo"
	says "wrong data of $call is reported" err '^demo: FAILED: wrong data: '
	nothing_in 'and nothing is ok' "$(grep 'demo: ok' "$scratch/out")"
done
exits 0 "$build_root/tests/ring"
nothing_in 'the example: each rank has what its left neighbour sent' \
	"$(sort -n -k 2 "$scratch/out" | diff - <(for r in 0 1 2 3 4 5 6 7; do echo "rank $r of 8 received $((100 + (r + 7) % 8))"; done))"
exits 1 env SPMT_HOST_DEVICES=2 "$build_root/tests/ring"
says 'the example: what failed' err '^ring: .+'
plan

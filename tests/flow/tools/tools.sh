#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# spmt-perf, spmt-info, spmt-demo and the example as a user meets them: exit codes, output, and that wrong data is noticed.
. "$(dirname "$0")/../../abi/lib.sh"

perf=$build_root/spmt-perf info=$build_root/spmt-info demo=$build_root/spmt-demo
export SPMT_BACKEND=host LD_LIBRARY_PATH=$build_root
unset "${!SPMT_HOST_@}" SPMT_MAPS SPMT_MOVES SPMT_FAULT SPMT_LOG

# exits STATUS COMMAND..: its output in $scratch/out and $scratch/err.
exits() {
	local want=$1 rc=0 call
	shift
	timeout 120 "$@" >"$scratch/out" 2>"$scratch/err" || rc=$?
	call=${*##*/}
	nothing_in "${call//$'\n'/ } exits $want" "$([ "$rc" = "$want" ] || { echo "$rc"; cat "$scratch/err"; })"
}

says() { # NAME FILE PATTERN
	nothing_in "$1" "$(grep -qE -- "$3" "$scratch/$2" || { echo "no $3 in:"; tail -n 20 "$scratch/$2" | cut -c 1-160; })"
}

# ---- usage

for words in --bogus extra '--ranks 0' '--ranks x' '--sizes 8' '--sizes 64:8' '--sizes 8:64:1' '--sizes 9:64' \
	'--sizes 17179869185G:17179869185G' '--sizes 8:65G' '--tests nosuch' \
	'--tests put,' '--rounds 0' '--iters -1' '--pairs 2 --ranks 3' '--ranks 2000 --pairs 1000 --sizes' --json; do
	# shellcheck disable=SC2086 # words
	exits 2 "$perf" $words
done
says 'a usage error points to --help' err 'help|argument'
for words in --bogus extra '--routes 0' '--routes 9999' '--env extra' '3 --coll' '--coll --env 3' '--coll 2 3 --env' --topo; do
	# shellcheck disable=SC2086 # words
	exits 2 "$info" $words
done
for words in --bogus extra --help=1; do
	# shellcheck disable=SC2086 # words
	exits 2 "$demo" $words
	says "spmt-demo $words gives the usage" err '^usage: spmt-demo '
	nothing_in "spmt-demo $words demonstrates nothing" "$(grep -E '^(ring|demo: )' "$scratch/out")"
done
version=$(sed -nE "s/^  version: '(.*)',/\1/p" meson.build)
for tool in "$perf" "$info" "$demo"; do
	exits 0 "$tool" --version
	says 'the version is the tree'\''s' out "^${tool##*/} $version\$"
	exits 0 "$tool" --help
	says 'the help says how' out '^usage: '
done

# ---- spmt-perf

names=$("$perf" --help | awk 'inside { print $1 } /^tests:/ { inside = 1 }')
nothing_in 'the help lists the tests' "$([ "$(wc -w <<<"$names")" -ge 10 ] || echo "$names")"
SPMT_CHECK=1 exits 0 "$perf" --iters 2 --rounds 3 --sizes 8:4K:8
nothing_in 'it frees what it has had' "$(cat "$scratch/err")"
exits 0 "$perf" --iters 1 --rounds 1 --tests put --sizes 8:128M:2
nothing_in 'each of many sizes is measured' "$([ "$(grep -c '^put ' "$scratch/out")" = 25 ] || cat "$scratch/out")"
SPMT_CHECK=1 exits 0 "$perf" --matrix --ranks 2
nothing_in 'and the matrix of pairs' "$(cat "$scratch/err")"
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
if script -qec true /dev/null >/dev/null 2>&1; then
	exits 0 script -qec "'$perf' --iters 2 --rounds 1 --sizes 64:64 --tests put,barrier" /dev/null
	says 'on a terminal: the test and the size that are under way' out $'\r\e\\[Kput, [0-9]+ ranks, 64 \.\.'
	says 'a test without sizes' out $'\r\e\\[Kbarrier, [0-9]+ ranks \.\.'
	nothing_in 'each is wiped away' "$(sed $'s/ \\.\\.\r\e\\[K//g' "$scratch/out" | grep -F ' ..')"
	exits 0 script -qec "'$perf' --iters 2 --rounds 1 --sizes 64:64 --tests put,barrier 2>'$scratch/none'" /dev/null
	nothing_in 'stdout on a terminal, stderr not: none' "$(cat "$scratch/none"; grep -F ' ..' "$scratch/out")"
else
	skip 'progress on a terminal' 'no script(1), or no terminal for it'
fi
exits 0 "$perf" --iters 2 --rounds 1 --ranks 5 --pairs 2 --tests put,fetch_add,barrier --sizes 64:64
says 'pairs at once in a larger world' out '^put +5 '
exits 1 "$perf" --iters 1 --rounds 1 --tests put8 --json "$scratch/none/json"
says 'a file that cannot be written is named' err 'none/json: '
nothing_in 'and before anything is measured' "$(grep '^put8' "$scratch/out")"
exits 1 "$perf" --tests put8 --backend nosuch
says 'an unknown backend is named' err nosuch
exits 0 env SPMT_HOST_DEVICES= "$perf" --iters 1 --rounds 1 --ranks 20 --tests barrier
exits 0 env SPMT_HOST_DEVICES=4 "$perf" --iters 1 --rounds 1 --tests barrier
says 'what the devices do not suffice for is said' out '^barrier +8 +not measured: 4 devices'

rc=0
timeout 120 "$perf" --check --iters 2 --rounds 1 >"$scratch/out" 2>"$scratch/err" || rc=$?
missed=$(grep -cE '(<=|>=) .* NO$' "$scratch/out")
nothing_in 'every target has a verdict' "$([ "$(grep -cE '(<=|>=) .* (yes|NO)$' "$scratch/out")" = 12 ] || cat "$scratch/out")"
nothing_in "--check exits by them ($missed missed)" "$([ "$rc" = $((missed ? 3 : 0)) ] || echo "$rc")"

# ---- pictures, by a gnuplot that writes down what it is told, and by a real one where there is one

mkdir "$scratch/with" "$scratch/without"
cat >"$scratch/with/gnuplot" <<'END'
#!/bin/sh
cat >>"$GNUPLOT_TOLD"
exit "${GNUPLOT_ENDS:-0}"
END
chmod +x "$scratch/with/gnuplot"
export GNUPLOT_TOLD=$scratch/told
plot=("$perf" --iters 2 --rounds 3 --sizes '8:4K:8' --tests 'put,pingpong' --plot)
exits 0 env PATH="$scratch/with:$PATH" "${plot[@]}" "$scratch/it's new"
says 'bandwidth over size' told 'bandwidth, GB/s'
says 'latency over size' told 'latency, us'
says 'ours is labelled' told "title 'spmt, 2 ranks'"
says 'the peer is a line beside' told "using 1:3 .* title 'memcpy'"
says 'a quote in the name of the directory' told "set output '.*it''s new/put.svg'"
: >"$scratch/told"
exits 0 env PATH="$scratch/with:$PATH" "$perf" --matrix --ranks 3 --sizes 8:64K --plot "$scratch/it's new"
says 'every pair has a rate' out '^ +2( +[0-9.e+]+){3}$'
says 'a heat map' told 'with image'
exits 1 env PATH="$scratch/with:$PATH" GNUPLOT_ENDS=3 "${plot[@]}" "$scratch/new"
says 'a gnuplot that fails is told' err 'gnuplot did not make .*\.svg \(exit status 3\)'
touch "$scratch/file"
exits 1 env PATH="$scratch/with:$PATH" "${plot[@]}" "$scratch/file"
says 'no folder' err '/file: Not a directory'
exits 1 env PATH="$scratch/without" "${plot[@]}" "$scratch/new"
says 'no gnuplot' err 'gnuplot is not installed'
nothing_in 'and nothing was measured' "$(cat "$scratch/out")"
exits 1 env PATH="$scratch/with:$PATH" "${plot[@]}" "$scratch/no/such"
says 'no such directory' err 'no/such: No such file'
exits 2 "$perf" --tests put --plot ''
says 'a directory without a name' err "^spmt-perf: plot: the folder's name is empty "
exits 2 "$perf" --sizes ''
says 'a value that is empty' err '^spmt-perf: sizes: its value is empty '
exits 2 "$perf" --backend '' --tests put --sizes 8:8 --rounds 1
says 'no backend, which is no choice of one' err '^spmt-perf: backend: its value is empty '
exits 2 "$perf" --sizes 3:3
says 'sizes that are none, and why' err '^spmt-perf: sizes: 3:3: MIN and MAX are not multiples of 8 bytes, from 8 on '
exits 2 "$perf" --sizes 1K:8
says 'the larger one first' err '^spmt-perf: sizes: 1K:8: MAX is less than MIN '
exits 2 "$perf" --sizes 8
says 'one of them' err '^spmt-perf: sizes: 8: is not MIN:MAX or MIN:MAX:FACTOR'
exits 2 "$perf" --sizes 8:64:1
says 'no steps' err '^spmt-perf: sizes: 8:64:1: FACTOR is not from 2 to 1024 '
for more in '--sizes 8:8' '--tests put' '--pairs 2' '--ranks 2'; do
	# shellcheck disable=SC2086 # two words
	exits 2 "$perf" --check $more
	says "--check measures what it does, without $more" err 'has sizes, tests and ranks of its own'
done
exits 2 "$perf" --matrix --layout 2x1
for more in '--tests put' '--iters 2' '--rounds 3' '--pairs 2'; do
	# shellcheck disable=SC2086 # two words
	exits 2 "$perf" --matrix --ranks 4 --sizes 8:64 $more
done
if command -v gnuplot >/dev/null; then
	exits 0 "${plot[@]}" "$scratch/real"
	exits 0 "$perf" --matrix --ranks 3 --sizes 8:64K --plot "$scratch/real"
	for name in put pingpong matrix; do
		nothing_in "gnuplot's $name.svg is whole" \
			"$(python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$scratch/real/$name.svg" 2>&1 | tail -n 1)"
	done
fi

# ---- spmt-perf with ranks in several processes

exits 0 "$perf" --layout 2x2 --iters 2 --rounds 3 --sizes 8:4K:512 --json "$scratch/json"
for name in $names start; do
	says "$name has figures in two processes" out "^$name +2x2 .* [0-9.e+-]+ +[0-9.]+%"
	says "$name is in the JSON with its layout" json "\"test\": \"$name\", \"ranks\": 4, .*\"layout\": \"2x2\""
done
if [ -x "${perf%/*}/spmt-perf-oshmem" ] && command -v oshrun >/dev/null; then
	says 'OSHMEM is beside' out '^barrier +2x2 +- +us +[0-9.e+-]+ +[0-9.e+-]+ +[0-9.e+-]+$'
	says 'of as many processes' out '^beside Open MPI.s OSHMEM, 4 processes'
else
	says 'that OSHMEM is not beside is said' out "^Open MPI's OSHMEM is not beside|^oshrun"
fi
says 'memcpy beside a put to another process' out '^put +2x2 +8 .* memcpy '
for layout in 3x1 1+3 1+1+2; do
	exits 0 "$perf" --layout "$layout" --iters 2 --rounds 1 --sizes 64:64 --tests put,barrier,fetch_add,init
	says "$layout is spread" out "^barrier +${layout//+/\\+} "
done
for layout in x 2x 0x2 2x0 1+ +1 1++2 65x1 2x4x2 9999x9999 1x9999 1111111111111111111111111x1; do
	exits 2 "$perf" --layout "$layout"
done
exits 2 "$perf" --layout 2x2 --ranks 8
exits 2 "$perf" --layout 1x2 --pairs 2
exits 2 env SPMT_HOST_DEVICES=3 "$perf" --layout 2x4
says 'too few devices for a process are said' err '4 ranks in a process: there are 3 devices'
rc=0
timeout 120 "$perf" --layout 2x1 --check --iters 2 --rounds 1 >"$scratch/out" 2>"$scratch/err" || rc=$?
missed=$(grep -cE '(<=|>=) .* NO$' "$scratch/out")
nothing_in 'every target of a layout has a verdict' "$([ "$(grep -cE '(<=|>=) +[0-9.]+ .* [0-9.e+-]+ [a-z]+ +(yes|NO)$' "$scratch/out")" = 7 ] || cat "$scratch/out")"
nothing_in "--layout --check exits by them ($missed missed)" "$([ "$rc" = $((missed ? 3 : 0)) ] || echo "$rc")"

# procps need not be installed.
children_of() {
	grep -ls "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status 2>/dev/null | cut -d / -f 3
}

# In the background, with 3 processes that measure for long.
perf_of_three() {
	"$perf" --layout 3x1 --tests barrier --iters 1000000 >"$scratch/out" 2>"$scratch/err" &
	whole=$! members=''
	for _ in $(seq 100); do
		members=$(children_of "$whole" || true)
		[ "$(wc -w <<<"$members")" -lt 3 ] || break
		sleep 0.05
	done
	sleep 0.2
}

# A process that is killed is reported, and takes the others with it; no process is left.
perf_of_three
nothing_in 'processes are told nothing by their arguments' \
	"$(for pid in $members; do tr '\0' ' ' <"/proc/$pid/cmdline" && echo; done | grep -vE '^spmt-perf --member [0-9]+ $' || true)"
kill -9 "$(tail -n 1 <<<"$members")" || true
rc=0
wait "$whole" || rc=$?
nothing_in 'a killed process ends spmt-perf with 1' "$([ "$rc" = 1 ] || echo "$rc")"
says 'and is named' err '^spmt-perf: process [0-2] of 3x1 was ended by signal 9 '
says 'the others say who died' err '1 of 3 ranks died: [0-2]$'
nothing_in 'no process is left' "$(for pid in $members; do [ ! -d "/proc/$pid" ] || echo "$pid"; done)"

# Processes that are stopped say nothing, and nobody is left who would miss them.
SPMT_TIMEOUT_MS=1000 perf_of_three
# shellcheck disable=SC2086 # several
kill -STOP $members || true
for _ in $(seq 300); do
	kill -0 "$whole" 2>/dev/null || break
	sleep 0.1
done
kill "$whole" 2>/dev/null || true
rc=0
wait "$whole" || rc=$?
nothing_in 'processes that are stopped end spmt-perf with 1' "$([ "$rc" = 1 ] || echo "$rc")"
says 'and one is named' err '^spmt-perf: process 0 of 3x1 has been stopped for 6'
nothing_in 'no stopped process is left' "$(for pid in $members; do [ ! -d "/proc/$pid" ] || echo "$pid"; done)"

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
exits 1 env CORRUPT=put LD_PRELOAD="$build_root/tests/corrupt.so" "$perf" --layout 2x1 --iters 1 --rounds 1 --sizes 8:512:64 --tests put
says 'wrong data between processes is reported' err '^spmt-perf: wrong data: '
exits 0 env LD_PRELOAD="$build_root/tests/corrupt.so" "$perf" --iters 1 --rounds 1 --sizes 8:512:64
exits 1 env SPMT_FAULT=thread:1 "$perf" --iters 1 --rounds 1 --tests put8
says 'a failed call has its sentence' err '^spmt-perf: put8 with 2 ranks: .+: .+'

# ---- spmt-info

exits 0 "$info"
says 'it lists the host backend' out '^ +host +8 devices'
says 'it says why not the others' out '^ +(hip|cuda) +(no: .+|[0-9]+ device)'
for backend in cuda hip; do
	fake=$build_root/tests/fakes/fake-${backend/hip/hip6}.so
	exits 0 env "SPMT_${backend^^}_LIB=$fake" SPMT_FAKE_DEVICES=2 "$info"
	says "$backend: a device has its PCI id" out '^ +1 +stand-in 1 .* pci 0000:fb:00\.0( |$)'
	says "$backend: and its UUID" out '^ +1 +stand-in 1 .* uuid ([46]1){16}$'
done
exits 0 env SPMT_HEAP_SIZE=64M "$info" --env
nothing_in '--env has a line a variable' \
	"$(sed -nE 's/^\tX\([a-z_]+, "(SPMT_[A-Z_]+)".*/\1/p' src/base/env.h | sort | diff - <(awk 'NR > 1 && /^SPMT_/ { print $1 }' "$scratch/out" | sort))"
says 'with its value' out '^SPMT_HEAP_SIZE +SIZE +1G +64M '
nothing_in 'a value that is understood is not complained of' "$(grep '^not understood' "$scratch/out")"
exits 0 env SPMT_HEAPSIZE=64M SPMT_COFFEE=black SPMT_CHANNELS=99 "$info" --env
says '--env lists an unknown variable with the nearest known one' out '^unknown: SPMT_HEAPSIZE is no variable of libspmt: did you mean SPMT_HEAP_SIZE$'
says 'and one that is like none' out '^unknown: SPMT_COFFEE is no variable of libspmt$'
says 'and a value that is not understood' out '^not understood: SPMT_CHANNELS=99: '
exits 0 env SPMT_CHANNELS=$'2\r' SPMT_ROUTES=$'a\nb' "$info" --env
says 'what does not print of a value that is not understood' out '^not understood: SPMT_CHANNELS=2\?: '
says 'and of one that is' out '^SPMT_ROUTES +TEXT +- +a\?b {10}file '

# A process that makes many worlds.
for log in '-u SPMT_LOG' SPMT_LOG=warn; do
	# shellcheck disable=SC2086 # two words
	exits 0 env $log SPMT_HEAPSIZE=64M "$perf" --iters 4 --rounds 2 --tests init
	nothing_in "an unknown variable is warned of once a process, with $log" \
		"$([ "$(grep -c '^spmt: warn: SPMT_HEAPSIZE is set, .*: did you mean SPMT_HEAP_SIZE ' "$scratch/err")" = 1 ] || cat "$scratch/err")"
done
for log in none error; do
	exits 0 env SPMT_LOG=$log SPMT_HEAPSIZE=64M "$perf" --iters 4 --rounds 2 --tests init
	nothing_in "and with SPMT_LOG=$log nothing is said" "$(grep SPMT_HEAPSIZE "$scratch/err")"
done

# What is no regular file is not opened: there is no other end.
mkfifo "$scratch/fifo"
ln -s fifo "$scratch/link"
for file in "$scratch" "$scratch/fifo" "$scratch/link" /dev/zero; do
	for backend in hip cuda; do
		exits 0 env "SPMT_${backend^^}_LIB=$file" timeout 20 "$info"
		says "$backend says what $(basename "$file") is not" out "^ +$backend +no: .* \(SPMT_${backend^^}_LIB may name it\): $file is not a regular file"
	done
done

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
exits 0 "$info" --coll 3 --routes
matrix 'a number is of the option before it' 8
says 'and of that alone' out '^  3 ranks'
exits 0 "$info" --coll 3 --routes 2
matrix 'as each of two is' 2
exits 0 "$info" --routes=20
matrix 'more ranks than the default has devices' 20
exits 0 env SPMT_HOST_DEVICES= "$info" --routes 20
exits 1 env SPMT_HOST_DEVICES=4096 "$info" --routes
says 'more devices than a matrix has ranks are told' err 'a rank a device are 4096; a matrix has 512'
exits 0 env SPMT_MOVES=store "$info" --routes 2
nothing_in 'a mover that is not wished for is not used' "$(grep -E '^p[0-9]+ +p2p +.*sdma ' "$scratch/out")"
exits 1 env SPMT_MAPS=-p2p "$info" --routes 2
says 'no route: why' err 'p2p'

# ---- SPMT_ROUTES

says_of() { # NAME PATTERN, in what spmt-info says of $scratch/routes
	exits 0 "$info" --routes "$scratch/routes"
	says "$1" out "$2"
}
for layout in 1x4 2x2 4x1 1+2+1; do
	rm -f "$scratch/routes"
	exits 0 env SPMT_ROUTES="$scratch/routes" "$perf" --layout $layout --iters 1 --rounds 1 --tests barrier
	nothing_in "$layout has a row a pair with all of its columns" "$(grep -vE '^world [0-9a-f]{16} of 4: pid [0-9]+ process [0-3] device [0-3] rank [0-3] -> process [0-3] device [0-3] rank [0-3]: map (self|p2p|ipc) movers store,sdma threshold [0-9]+: [a-z]' "$scratch/routes"
		[ "$(wc -l <"$scratch/routes")" = 16 ] || cat "$scratch/routes")"
	says_of "$layout has its rows at once" '^routes of 4 ranks'
	matrix "$layout has a whole matrix" 4
	case $layout in
	1x4) says 'four ranks in a process' out '^ +0 +[0-9]+  0 on 0, 1 on 1, 2 on 2, 3 on 3$' ;;
	4x1) says 'a rank a process' out '^ +3 +[0-9]+  [0-3] on 0$' ;;
	*) says 'two ranks share a process' out '^ +[0-2] +[0-9]+  [0-2] on 0, [1-3] on 1$' ;;
	esac
done
# A process writes the rows of its ranks at once: those of one pid follow each other.
rm -f "$scratch/routes"
exits 0 env SPMT_ROUTES="$scratch/routes" "$perf" --layout 8x1 --iters 1 --rounds 3 --tests init
exits 0 env SPMT_ROUTES="$scratch/routes" "$perf" --layout 2x4 --iters 1 --rounds 5 --sizes 8:8
nothing_in 'rows of processes do not mix' "$(awk '{ key = $2 " " $6 } key != last && seen[key]++ { print key } { last = key }' "$scratch/routes")"
exits 0 "$info" --routes="$scratch/routes"
nothing_in 'every world of the file is told' "$([ "$(grep -c '^world ' "$scratch/out")" = "$(cut -d ' ' -f 2 "$scratch/routes" | sort -u | wc -l)" ] || cat "$scratch/out")"
# The same uid twice: two worlds.
cat "$scratch/routes" >"$scratch/twice" && cat "$scratch/routes" >>"$scratch/twice"
before=$(grep -c '^world ' "$scratch/out")
exits 0 "$info" --routes "$scratch/twice"
nothing_in 'worlds that follow each other under one name are told apart' "$([ "$(grep -c '^world ' "$scratch/out")" = $((2 * before)) ] || grep '^world' "$scratch/out")"

garbage() { # NAME ERROR, of $scratch/garbage
	exits 1 "$info" --routes "$scratch/garbage"
	says "$1 is refused in words" err "$2"
}
garbage 'a file that is not there' '^spmt-info: --routes: [^:]*garbage: No such file[^:]*$'
: >"$scratch/garbage"
garbage 'an empty file' 'no routes in it'
row='world 0123456789abcdef of 1: pid 7 process 0 device 0 rank 0 -> process 0 device 0 rank 0: map self movers store threshold 5: self'
for bad in 'what' '' "${row/rank 0 ->/rank 1 ->}" "${row/pid 7/pid -7}" "${row/pid 7/pid 7777777777777777777777}" "${row/ of 1/ of 0}" \
	"${row/map self/map $(printf '%0300d' 0)}" "${row/process 0/process  9}" "${row/: self/}" "${row/: self/: $(printf '%0300d' 0)}" $'\t'; do
	printf '%s\n%s\n' "$row" "$bad" >"$scratch/garbage"
	garbage "the row '${bad:0:60}'" 'garbage:2: not a row'
done
printf '%s' "$row" >"$scratch/garbage"
garbage 'a row that was cut off' 'garbage:1: not a row'
printf '%s\0\n' "$row" >"$scratch/garbage"
garbage 'a zero byte' 'garbage:1: not a row'
head -c 100000 /dev/urandom >"$scratch/garbage"
garbage 'noise' 'garbage:1: not a row'
# shellcheck disable=SC2016 # for the inner shell
exits 1 bash -c '{ head -c 100000000 /dev/zero && touch "$1/read"; } | "$0" --routes /dev/stdin' "$info" "$scratch"
says 'a line without end is refused in words' err 'stdin:1: not a row'
nothing_in 'and not read to its end' "$(ls "$scratch/read" 2>/dev/null)"
printf '%s\n' "${row/ of 1/ of 600}" >"$scratch/garbage"
garbage 'a world too large to print' 'a world of 600 ranks'
printf '%s\n' "${row/ of 1/ of 2}" >"$scratch/garbage"
garbage 'a world with rows missing' '1 of 4 rows are there; none from rank 0 to rank 1'
exits 1 "$info" --routes "$scratch"
says 'a directory is no file of routes' err 'directory'
for layout in 1x2 2x1; do
	exits 1 env SPMT_ROUTES=/nonexistent/routes "$perf" --layout $layout --iters 1 --rounds 1 --tests put8
	says "a file that cannot be written fails init ($layout)" err 'spmt_init: rank [01]: SPMT_ROUTES=/nonexistent/routes: No such file'
done
# No signal ends the program: a file at its limit, which is above what a heap takes, and a pipe that somebody could leave.
truncate -s 1T "$scratch/large"
# shellcheck disable=SC2016 # for the inner shell
exits 1 bash -c 'ulimit -f $((1 << 30)) && exec "$@"' - env SPMT_ROUTES="$scratch/large" "$perf" --layout 1x2 --iters 1 --rounds 1 --tests put8
says 'a file that is as large as it may be fails init' err 'spmt_init: rank [01]: SPMT_ROUTES=.*/large: File too large \(ulimit -f\)'
rm -f "$scratch/large"
mkfifo "$scratch/pipe"
exec 9<>"$scratch/pipe"
exits 1 env SPMT_ROUTES="$scratch/pipe" "$perf" --layout 1x2 --iters 1 --rounds 1 --tests put8
says 'a pipe fails init' err 'spmt_init: rank [01]: SPMT_ROUTES=.*/pipe: a pipe or a socket: it has to be a file'
exec 9>&-
exits 1 env SPMT_ROUTES=/dev/full "$perf" --layout 1x2 --iters 1 --rounds 1 --tests put8
says 'a full disk fails init' err 'SPMT_ROUTES=/dev/full: No space left'
exits 0 env SPMT_ROUTES=/dev/null "$perf" --layout 1x2 --iters 1 --rounds 1 --tests put8

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

# ---- output that cannot be written

for tool in "$info" "$info --env" "$info --routes 2" "$perf --help" "$perf --tests barrier --rounds 1" \
	"$demo --help" "$demo"; do
	exits 1 sh -c "$tool >/dev/full"
	says 'for want of room' err 'stdout: No space left on device'
	exits 1 sh -c "$tool >&-"
	says 'for want of a file' err 'stdout: Bad file descriptor'
done
exits 1 "$perf" --tests put8 --iters 1 --rounds 1 --json /dev/full
says 'a file that takes nothing: why' err '/dev/full: No space left on device'

# ---- demonstration and example

exits 0 "$demo"
nothing_in 'its last line is demo: ok' "$([ "$(tail -n 1 "$scratch/out")" = 'demo: ok' ] || cat "$scratch/out")"
for step in ring all_reduce barrier kernel routes figures; do
	says "it shows: $step" out "^$step"
done
fake=$build_root/tests/fakes/fake-cuda.so
if SPMT_CUDA_LIB=$fake SPMT_FAKE_DEVICES=2 "$info" | grep 'without device images' >/dev/null; then
	skip 'on GPUs it launches kernels' 'this build has no device images'
else
	exits 0 env SPMT_BACKEND=cuda "SPMT_CUDA_LIB=$fake" SPMT_FAKE_DEVICES=4 "$demo"
	says 'on GPUs it launches kernels' out "^kernel: the library's kernel on each device put 4096 words"
fi
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

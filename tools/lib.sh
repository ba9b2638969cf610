# SPDX-License-Identifier: MIT
# Sourced by tools/demo and tools/test: builds, steps and counts. The working directory is the top of the tree.
# shellcheck shell=bash

jobs=$(nproc)
# Programs of tests that run at once: they wait for deadlines most of the time, and the CPUs were idle for two thirds of it.
at_once=$((jobs + (jobs + 1) / 2))

say() {
	printf '\n==== %s\n' "$*"
}

gpus_here() {
	[ -e /dev/kfd ] || [ -e /dev/nvidiactl ]
}

# configure DIR [SETUP ARGUMENT..]: where that has not been done with these arguments, in this tree: what was copied here builds another.
configure() {
	local dir=$1 want
	shift
	want="$PWD: CC=${CC:-cc} $*"
	if [ ! -f "$dir/build.ninja" ] || [ "$(cat "$dir/.setup" 2>/dev/null)" != "$want" ]; then
		rm -rf "$dir"
		meson setup "$dir" "$@" || return 1
		echo "$want" >"$dir/.setup"
	fi
}

# build DIR [SETUP ARGUMENT..]: configures, then builds all.
build() {
	configure "$@" && ninja -C "$1" -j "$jobs"
}

# ---- counting: checks append "passed failed skipped" to $counts; a step sums them

count() {
	echo "$1 $2 ${3:-0}" >>"$counts"
}

# What failed is told again when all is done: whoever sees only the end of a log sees why.
failures=$PWD/build/log/failures

failure() {
	echo "not ok - $1"
	tail -n 40 | sed 's/^/  /'
} >>"$failures"

# check NAME COMMAND..: one counted check; its output is shown when it fails.
check() {
	local name=$1 out
	shift
	if out=$("$@" 2>&1); then
		echo "ok - $name"
		count 1 0
	else
		printf '%s\n' "$out"
		echo "not ok - $name"
		failure "$name" <<<"$out"
		count 0 1
	fi
}

# find_in_each PATTERN FOLDER..: the files of that name, sorted. A folder that has none, having moved, is one failure.
find_in_each() {
	local pattern=$1 folder
	shift
	for folder; do
		find "$folder" -name "$pattern" | sort | grep . && continue
		failure "no $pattern in $folder" <<<'nothing there is looked at'
		count 0 1
	done
}

# check_each LABEL COMMAND..: reads file names; runs COMMAND NAME for each, $jobs at a time, one counted check each. No name is one
# failure: what was to be looked at has moved.
check_each() {
	local label=$1 dir name passed=0 failed=0
	shift
	dir=$(mktemp -d) || {
		echo "not ok - $label: no folder can be made in ${TMPDIR:-/tmp}"
		failure "$label" <<<"no folder can be made in ${TMPDIR:-/tmp}"
		count 0 1
		cat >/dev/null # what finds the names has not failed
		return 1
	}
	# shellcheck disable=SC2016 # for the inner shell
	xargs -P "$jobs" -I{} bash -c '
		dir=$1 name=$2; shift 2
		file=$dir/$(printf %s "$name" | tr / %)
		if "$@" "$name" >"$file.log" 2>&1; then touch "$file.ok"; echo "ok - '"$label"' $name"
		else echo "not ok - '"$label"' $name"; cat "$file.log"; fi' - "$dir" {} "$@"
	for name in "$dir"/*.log; do
		[ -e "$name" ] || continue
		if [ -e "${name%.log}.ok" ]; then
			passed=$((passed + 1))
		else
			failed=$((failed + 1))
			failure "$label $(basename "${name%.log}" | tr % /)" <"$name"
		fi
	done
	rm -rf "$dir"
	if [ $((passed + failed)) = 0 ]; then
		echo "not ok - $label: no files"
		failure "$label" <<<'no files'
		failed=1
	fi
	count "$passed" "$failed"
}

# What failed and then passed is told in the end, too, though it counts as passed.
unsteady=$PWD/build/log/unsteady
again_most=6

# meson_test DIR [ARGUMENT..]: runs the tests of a build and counts their TAP lines. Tests share the CPUs with nothing else of ours, but
# a machine of CI has other guests: up to $again_most that failed run once more. What a sanitizer has reported (sanitized) stays a failure,
# but for leaks of a test that gave up and passed then. All has to be built; with an empty $rebuild what the tests need is built first, and no more.
rebuild=--no-rebuild
meson_test() {
	local dir=$1 rc=0 names=() log again
	shift
	again=$dir/meson-logs/again.json
	rm -f "$dir"/meson-logs/testlog*.json "$again"
	# shellcheck disable=SC2086 # one or none
	meson test -C "$dir" $rebuild --num-processes "$at_once" --print-errorlogs "$@" || rc=$?
	log=$(echo "$dir"/meson-logs/testlog*.json) # a wrapper has a log of its own
	if [ "$rc" != 0 ] && [ -f "$log" ]; then
		mapfile -t names < <(python3 tools/count-tap --failed "$log")
		if [ ${#names[@]} -gt 0 ] && [ ${#names[@]} -le "$again_most" ]; then
			mv "$log" "$log.first"
			[ ! -d "$dir/reports" ] || mv "$dir/reports" "$dir/reports.first" && mkdir -p "$dir/reports"
			echo "Once more: ${names[*]}"
			meson test -C "$dir" --no-rebuild --print-errorlogs "$@" "${names[@]}" && rc=0
			mv "$log" "$again"
			mv "$log.first" "$log"
		fi
	fi
	python3 tools/count-tap "$log" "$again" "$failures" "$unsteady" >>"$counts" || return 1
	return "$rc"
}

# As meson_test. Where nothing ran, all having been filtered out, is one failure: the name of a test has changed.
meson_test_some() {
	local rc=0 passed failed
	meson_test "$@" || rc=$?
	[ "$rc" = 0 ] || return "$rc"
	read -r passed failed _ < <(tail -n 1 "$counts")
	[ $((passed + failed)) = 0 ] || return 0
	echo "not ok - no test of that name has run: $*"
	failure 'no test of that name has run' <<<"$*"
	count 0 1
	return 1
}

# step NAME FUNCTION: runs it, shows its output, keeps it in build/log, adds its counts to the totals. What fails without a
# failed check of its own, and what has checked nothing, is one failure.
total_passed=0 total_failed=0
failed_steps=()
step() {
	local name=$1 begin=$SECONDS told rc p=0 f=0 s=0 a b c
	told=$(wc -l <"$failures")
	counts=$PWD/build/log/$name.counts
	: >"$counts"
	say "$name"
	"$2" 2>&1 </dev/null | tee "build/log/$name.log"
	rc=${PIPESTATUS[0]}
	while read -r a b c; do
		p=$((p + a)) f=$((f + b)) s=$((s + c))
	done <"$counts"
	[ "$rc" = 0 ] || [ "$f" -gt 0 ] || f=1
	[ $((p + f)) -gt 0 ] || f=1
	# What told nothing itself is a build, say.
	[ "$f" = 0 ] || [ "$(wc -l <"$failures")" -gt "$told" ] || failure "$name" <"build/log/$name.log"
	[ "$f" = 0 ] || failed_steps+=("$name")
	total_passed=$((total_passed + p)) total_failed=$((total_failed + f))
	echo "---- $name: $p passed, $f failed, $s skipped in $((SECONDS - begin)) s"
}

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The scripts of the tree do their work in their own tree and folder, or say that they cannot, whatever the environment they are started in.
. "$(dirname "$0")/lib.sh"

grep -rlE '^(#!.*bash|# shellcheck shell=bash)' .ci bench tools tests | sort >"$scratch/scripts"
nothing_in 'there are scripts' "$([ "$(wc -l <"$scratch/scripts")" -gt 30 ] || cat "$scratch/scripts")"

# Of an empty name all that follows is written into /.
nothing_in 'none goes on without its temporary folder' "$(xargs grep -nE '[$][(]mktemp' <"$scratch/scripts" | grep -vE '\|\|')"
printf '. "%s/tests/abi/lib.sh"\nnothing_in "ran on" ""\n' "$PWD" >"$scratch/one.sh"
nothing_in 'as a script of tests says' "$(TMPDIR=$scratch/none bash "$scratch/one.sh" 2>/dev/null |
	diff - <(echo "Bail out! no folder can be made in $scratch/none"))"

# With CDPATH a cd goes to the other tree, or prints.
nothing_in 'none that looks for its tree leaves CDPATH as it is' "$(xargs grep -lE 'cd "[$][(]dirname' <"$scratch/scripts" | xargs grep -L '^unset CDPATH')"
mkdir -p "$scratch"/{tree,other}/{tests/abi,tools}
ln -s tree/tools/demo tree/tools/test "$scratch"
cp tools/demo tools/test "$scratch/tree/tools"
cp tests/abi/lib.sh "$scratch/tree/tests/abi"
for tree in tree other; do
	echo "echo $tree; exit" >"$scratch/$tree/tools/packages"
done
for tool in demo test; do
	nothing_in "tools/$tool keeps to its tree" "$(cd "$scratch/tree" && CDPATH=$scratch/other tools/"$tool" 2>&1 | diff - <(echo tree))"
	nothing_in "and finds it through a link" "$(cd "$scratch" && ./"$tool" 2>&1 | diff - <(echo tree))"
done
# shellcheck disable=SC2016 # for the inner shell
nothing_in 'scripts of tests keep to theirs' "$(cd "$scratch/tree" && env -u SPMT_SOURCE "CDPATH=$scratch/other" \
	bash -c '. tests/abi/lib.sh; echo "$source_root"' | diff - <(echo "$scratch/tree"))"

for seconds in 0 -1 1s; do
	nothing_in "tools/test refuses $seconds as FUZZ_SECONDS" "$(diff <(FUZZ_SECONDS=$seconds tools/test --list 2>&1) \
		<(echo "tools/test: FUZZ_SECONDS is $seconds, not a number of seconds from 1 on"))"
done

# exits NAME STATUS COMMAND..
exits() {
	local name=$1 want=$2 rc=0 out
	shift 2
	out=$("$@" 2>&1) || rc=$?
	nothing_in "$name" "$([ "$rc" = "$want" ] || printf '%s\n' "$rc" "$out")"
}

mkdir -p "$scratch"/{steps/tools,bin}
cp tools/test tools/lib.sh tools/builds.sh "$scratch/steps/tools"
echo 'packages_all=(none) packages_test=(none) packages_gpu=(none); packages_install() { exit 7; }' >"$scratch/steps/tools/packages"
exits 'tools/test goes on to install for a step' 7 "$scratch/steps/tools/test" --only gcc
for name in 'gcc asan' '' 'gcc ' g.c; do
	exits "and refuses '$name'" 2 "$scratch/steps/tools/test" --only "$name"
done
exits 'bench/headers refuses an option behind the commit' 2 bench/headers HEAD --near
exits 'and a second commit' 2 bench/headers HEAD HEAD

printf '#!/bin/sh\nexit 7\n' | tee "$scratch/bin/oshcc" "$scratch/bin/oshrun" >"$scratch/bin/perf"
chmod +x "$scratch"/bin/*
# shellcheck disable=SC2016 # for the inner shell
exits 'bench/perf-oshmem finds what is named in the folder it is called in' 7 env PATH="$scratch/bin:$PATH" \
	bash -c 'cd "$1" && exec "$2/bench/perf-oshmem" ./perf' - "$scratch/bin" "$PWD"

exits 'bench/verbs refuses to measure nothing' 2 bench/verbs --build "$scratch" --turns 0
exits 'and rounds that spmt-perf has no room for' 2 bench/verbs --build "$scratch" --rounds 102
cat >"$scratch/verbs.py" <<'END'
import argparse
import importlib.machinery
import importlib.util
import sys

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("verbs", "bench/verbs")
verbs = importlib.util.module_from_spec(importlib.util.spec_from_loader("verbs", loader))
loader.exec_module(verbs)
verbs.INSIDE = "turn() { [ $2 = spmt ] || \"${@:4}\"; }"
args = argparse.Namespace(turns=1, rounds=1, only=["write 1"], env=[], count=False)
print(verbs.script(args, {"oshmem": sys.argv[1] + "/perf", "perftest": verbs.program("perftest"), "ucx": None}))
END
mkdir "$scratch/it's a folder"
printf '#!/bin/sh\necho "${0##*/}" "$1"\n' | tee "$scratch/it's a folder/perf" >"$scratch/it's a folder/ib_write_bw"
chmod +x "$scratch/it's a folder"/*
nothing_in 'it finds programs in any folder' "$(PATH="$scratch/it's a folder:$PATH" python3 "$scratch/verbs.py" "$scratch/it's a folder" | bash 2>&1 |
	diff - <(printf '%s\n' 'perf ' 'ib_write_bw -d'))"

# A tree whose path has blanks.
blanks="$scratch/a tree"
cp -R "$scratch/steps" "$blanks"
# shellcheck disable=SC2016 # for the inner shell
echo 'packages_all=(none); packages_install() { step_gcc() { sanitized build/x printenv ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS; }; }' >"$blanks/tools/packages"
nothing_in 'of which sanitizers take the path whole' "$("$blanks/tools/test" --only gcc 2>&1 | sed -n 's/^log_path="\([^"]*\)":.*/\1/p' |
	diff - <(printf '%s\n' "$blanks/build/x/reports/"{asan,ubsan,tsan}))"
. tools/builds.sh
pkg-config() {
	echo "-I$PWD -lspmt" | sed 's/ tree/\\ tree/'
}
nothing_in 'and compilers that of what is installed' "$(cd "$blanks" && ring x '' printf '%s\n' 2>&1 | tail -n 2 | diff - <(printf '%s\n' "-I$blanks" -lspmt))"
installed() {
	local arg words
	for arg; do
		[[ $arg != -Dc_args=* ]] || eval "words=(${arg#-Dc_args=})"
	done
	printf '%s\n' "${words[1]}"
	return 1
}
nothing_in 'and of headers' "$(cd "$blanks" && musl_build 2>&1 | diff - <(echo "$blanks/build/kernel-headers"))"
unset -f pkg-config installed

# The build of a tree that was copied or moved compiles the files of the first one.
. tools/lib.sh
meson() {
	mkdir "$2" && touch "$2/build.ninja" && echo set up
}
# configured NAME TREE OUTPUT
configured() {
	nothing_in "$1" "$(cd "$scratch/$2" && configure build -Da=b | diff - <(printf %s "$3"))"
}
configured 'a build is set up' tree $'set up\n'
configured 'once' tree ''
cp -a "$scratch/tree" "$scratch/copied"
configured 'anew in a tree that was copied' copied $'set up\n'
mv "$scratch/tree" "$scratch/moved"
configured 'and in one that was moved' moved $'set up\n'
plan

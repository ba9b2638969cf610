#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The mistakes that tools/mutate makes: the text of each is where its file says, once, and its test is one of meson's.
. "$(dirname "$0")/lib.sh"

nothing_in 'every mutation can be made' "$(tools/mutate --check 2>&1 | grep -vE '^[1-9][0-9]* passed, 0 failed$')"
sed -n 's/^test \([^ ]*\).*/\1/p' tests/mutations | sort -u | while read -r name; do
	[ -n "$(find "tests/${name%%-*}" -name "${name#*-}.c" -o -name "${name#*-}.sh")" ] || grep -qr --include=meson.build "'$name'" tests || echo "there is no test $name"
done >"$scratch/missing"
nothing_in 'the test of every mutation is there' "$(cat "$scratch/missing")"
sed -n 's/^test [^ ]* \(.*\)/\1/p' tests/mutations | sort -u | while read -r filter; do
	grep -rqE "^Test\(${filter%%/*}, ${filter#*/}[,)]|^ParameterizedTest\([^,]*, ${filter%%/*}, ${filter#*/}[,)]" tests || echo "there is no test $filter"
done >"$scratch/missing"
nothing_in 'and so is the one that its filter names' "$(cat "$scratch/missing")"
plan

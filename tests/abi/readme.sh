#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The program in README.md compiles without a warning, in C and C++ where it says so, and runs; the two commands stand alone
# in the first fenced block.
. "$(dirname "$0")/lib.sh"

awk '/^```/ { n++; next } n == 1' README.md >"$scratch/first"
for command in tools/demo tools/test; do
	nothing_in "$command stands on a line of its own in the first block" "$(grep -qx "$command" "$scratch/first" || echo missing)"
done

awk '/^```c$/ && !done { inside = 1; next } /^```/ && inside { done = 1; inside = 0 } inside' README.md >"$scratch/readme.c"
lines=$(wc -l <"$scratch/readme.c")
nothing_in "the program has 10 to 35 lines ($lines)" "$([ "$lines" -ge 10 ] && [ "$lines" -le 35 ] || echo "$lines")"
nothing_in 'it is examples/ring.c' "$(diff "$scratch/readme.c" examples/ring.c)"
succeeds 'it compiles' gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -o "$scratch/readme" "$scratch/readme.c" \
	-L"$build_root" -lspmt -lpthread
export LD_LIBRARY_PATH=$build_root SPMT_BACKEND=host
succeeds 'it runs' timeout 60 "$scratch/readme"
nothing_in 'it says something' "$(timeout 60 "$scratch/readme" 2>/dev/null | grep . >/dev/null || echo nothing)"
plan

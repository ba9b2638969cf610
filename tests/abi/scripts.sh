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
plan

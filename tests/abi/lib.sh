# SPDX-License-Identifier: MIT
# Sourced by the scripts here: TAP, and where things are. meson sets SPMT_SOURCE (the tree) and SPMT_BUILD.
# shellcheck shell=bash
set -u -o pipefail
export LC_ALL=C
unset CDPATH # cd would look there first, and print
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source_root=${SPMT_SOURCE:-$here}
build_root=${SPMT_BUILD:-$source_root/build/gcc}
cd "$source_root" || exit 1

scratch=$(mktemp -d) || { echo "Bail out! no folder can be made in ${TMPDIR:-/tmp}"; exit 1; }
trap 'rm -rf "$scratch"' EXIT

tests=0
# nothing_in NAME TEXT: ok if TEXT, a list of findings, is empty.
nothing_in() {
	tests=$((tests + 1))
	if [ -z "$2" ]; then
		echo "ok $tests - $1"
	else
		echo "not ok $tests - $1"
		printf '%s\n' "$2" | sed 's/^/# /'
	fi
}

# succeeds NAME COMMAND..
succeeds() {
	local name=$1 out rc=0
	shift
	out=$("$@" 2>&1) || rc=$?
	[ "$rc" = 0 ] && out=
	[ "$rc" = 0 ] || out=${out:-exit status $rc}
	nothing_in "$name" "$out"
}

skip() {
	tests=$((tests + 1))
	echo "ok $tests - $1 # SKIP $2"
}

# compiles NAME COMPILER ARGUMENT..: skipped where there is no such compiler.
compiles() {
	local name=$1
	shift
	if command -v "$1" >/dev/null; then
		succeeds "$name" "$@"
	else
		skip "$name" "no $1"
	fi
}

# sources FOLDER..: the .c and .h files there. A folder without any has moved, and what is asked of it would be asked of nothing:
# plan says so.
sources() {
	local folder
	for folder; do
		find "$folder" -name '*.[ch]' | sort | grep . || echo "$folder" >>"$scratch/.empty"
	done
}

plan() {
	[ ! -e "$scratch/.empty" ] || nothing_in 'folders that are searched have sources' "$(sort -u "$scratch/.empty")"
	echo "1..$tests"
}

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every call of spmt.h that is given a comm or a registered buffer is in the tests of all calls on GPUs: one that has to succeed,
# its data checked, and one that has to fail.
. "$(dirname "$0")/lib.sh"

made='tests/gpu/calls/calls.c tests/gpu/calls/calls_together.c'
refused=tests/gpu/calls/calls_wrong.c

# Those that are not, and why.
cat >"$scratch/not_made" <<'END'
spmt_init		makes the comm, so its thread's state is looked at in tests/gpu/elsewhere.c
spmt_init_all		likewise
spmt_run		likewise
spmt_finalize_all	ends the comm, as spmt_finalize of the tests' own
END
cat >"$scratch/not_refused" <<'END'
spmt_init		as above
spmt_init_all		as above
spmt_run		as above
spmt_each		makes no call on a comm; what its function returns is the test's own
spmt_each_abort		likewise
spmt_guard_enter	returns nothing
spmt_host_launch	a kernel of the host backend, refused on GPUs in tests/gpu/calls/calls.c
spmt_host_stream_create	likewise
END

# text FILE..: in one line, without comments
text() {
	cat "$@" | tr '\n' ' ' | sed -E 's:/\*([^*]|\*+[^*/])*\*+/: :g'
}

# "name" of every prototype whose parameters have a comm or a registered buffer
text include/spmt.h | grep -oE 'SPMT_API [^;]*;' | grep -E '\([^;]*\<spmt_(comm|mem) \*' |
	sed -E 's/^SPMT_API [^(]*\<(spmt_[a-z_0-9]+)\(.*/\1/' | sort -u >"$scratch/all"
nothing_in 'spmt.h has calls on comms' "$([ "$(wc -l <"$scratch/all")" -gt 70 ] || wc -l <"$scratch/all")"

# check NAME EXCEPTIONS FILE..: what is called nowhere; and exceptions that are none
check() {
	local name=$1 but=$2
	shift 2
	text "$@" | grep -oE '\<spmt_[a-z_0-9]+\(' | tr -d '(' | sort -u >"$scratch/called"
	cut -f 1 "$but" | sort >"$scratch/but"
	nothing_in "every call on a comm $name in $*" \
		"$(comm -23 "$scratch/all" "$scratch/called" | comm -23 - "$scratch/but")"
	nothing_in "no exception is called or gone ($name)" \
		"$(comm -12 "$scratch/but" "$scratch/called"; comm -13 "$scratch/all" "$scratch/but")"
}

# shellcheck disable=SC2086 # a list of files
check 'is made' "$scratch/not_made" $made
check 'is refused' "$scratch/not_refused" $refused
while read -r name _; do
	nothing_in "$name is made in tests/gpu/elsewhere.c" "$(grep -q "\<$name(" tests/gpu/elsewhere.c || echo "$name")"
done <"$scratch/not_made"
plan

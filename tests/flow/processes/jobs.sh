# SPDX-License-Identifier: MIT
# Sourced by mpirun.sh and srun.sh: the jobs that every launcher's job passes.
# shellcheck shell=bash
. "$(dirname "$0")/../../abi/lib.sh"

export SPMT_BACKEND=host LD_LIBRARY_PATH=$build_root
unset "${!SPMT_HOST_@}" SPMT_MAPS SPMT_MOVES SPMT_FAULT SPMT_LOG SPMT_PMIX_LIB SPMT_TIMEOUT_MS

# The script gives start PROCESSES COMMAND..: the launcher's job, its status.

leave() {
	skip "jobs of $launcher" "$1"
	plan
	exit
}

not_sanitized() {
	if nm -D "$build_root/libspmt.so" | grep -E '__[at]san_init' >/dev/null; then
		leave 'a sanitizer'
	fi
}

# job PROCESSES COMMAND..: its status, its output in $scratch/out and $scratch/err.
job() {
	: >"$scratch/out"
	: >"$scratch/err"
	start "$@" >>"$scratch/out" 2>>"$scratch/err" </dev/null
}

# works NAME PROCESSES LINES PATTERN COMMAND..: exits 0 with so many lines of the pattern and nothing on stderr.
works() {
	local name=$1 n=$2 lines=$3 pattern=$4 rc=0
	shift 4
	job "$n" "$@" || rc=$?
	if [ "$rc" = 0 ] && [ "$(grep -cE -- "$pattern" "$scratch/out")" = "$lines" ] && [ ! -s "$scratch/err" ]; then
		nothing_in "$name" ''
	else
		nothing_in "$name" "exit status $rc"$'\n'"$(tail -n 20 "$scratch/out" "$scratch/err")"
	fi
}

# fails NAME PROCESSES PATTERN COMMAND..: ends of itself, not with 0, and the pattern is on stderr.
fails() {
	local name=$1 n=$2 pattern=$3 rc=0
	shift 3
	job "$n" "$@" || rc=$?
	if [ "$rc" != 0 ] && [ "$rc" != 124 ] && grep -qE -- "$pattern" "$scratch/err"; then
		nothing_in "$name" ''
	else
		nothing_in "$name" "exit status $rc"$'\n'"$(tail -n 20 "$scratch/out" "$scratch/err")"
	fi
}

jobs_alone() {
	works 'the example: a rank a process' 4 4 '^rank [0-3] of 4 on device [0-3]: the ranks add up to 6$' "$build_root/tests/job"
	nothing_in 'each rank has its device' \
		"$(sed -nE 's/^rank ([0-9]+) .* device ([0-9]+):.*/\1 \2/p' "$scratch/out" | awk '$1 != $2')"
	works 'one process' 1 1 '^rank 0 of 1 ' "$build_root/tests/job"
	works 'a hundred worlds' 2 200 ' ok$' "$build_root/tests/mpirun" worlds 100
	works 'two ranks a process' 3 6 '^rank [0-5] of 6 device [0-5] ok$' "$build_root/tests/mpirun" share 2
	works 'worlds of other sizes' 2 8 ' ok$' "$build_root/tests/mpirun" worlds 1 share 2 worlds 1
	SPMT_HOST_DEVICES=1 works 'a process that sees one device' 2 2 ' device 0 ok$' "$build_root/tests/mpirun" worlds 1
	works 'a process that comes late' 3 3 ' ok$' "$build_root/tests/mpirun" late
	SPMT_PMIX_LIB=/nonexistent/libpmix.so.2 fails 'a libpmix that is not there: the variable is named' 2 SPMT_PMIX_LIB \
		"$build_root/tests/mpirun" worlds 1
}

jobs_with_mpi() {
	if command -v mpicc >/dev/null && mpicc -DWITH_MPI -std=gnu11 -Iinclude tests/flow/processes/mpirun.c -o "$scratch/mpi" \
		-L"$build_root" -lspmt -pthread 2>"$scratch/err"; then
		works 'MPI_Init before the first world' 3 3 ' ok$' "$scratch/mpi" mpi worlds 1 mpi-end
		works 'MPI_Init after the last world' 3 3 ' ok$' "$scratch/mpi" worlds 1 mpi mpi-end
		works 'worlds round MPI' 3 9 ' ok$' "$scratch/mpi" worlds 1 mpi worlds 1 mpi-end worlds 1
	else
		skip 'MPI beside libspmt' 'no mpicc (libopenmpi-dev)'
	fi
}

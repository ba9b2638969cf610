#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A launcher's job as a user starts it: mpirun -n 4 program. Skipped where mpirun or libpmix are not installed.
. "$(dirname "$0")/jobs.sh"

launcher=mpirun
if ! command -v mpirun >/dev/null || ! mpirun --version 2>/dev/null | grep 'Open MPI' >/dev/null; then
	leave 'no Open MPI (openmpi-bin)'
fi
not_sanitized
as_root=()
[ "$(id -u)" != 0 ] || as_root=(--allow-run-as-root)

start() {
	timeout -k 5 "${limit:-120}" mpirun "${as_root[@]}" --oversubscribe -n "$@"
}

jobs_alone
# Where a fence is under way at the end, the PMIx servers of Debian 12 free what they still use: mpirun crashes or spins now and then, and
# what a process has said is lost with it. So each says it into a file, and mpirun's end is not looked at. slurmstepd is not run like that.
# shellcheck disable=SC2016 # for the inner shell
limit=20 SPMT_TIMEOUT_MS=1000 job 2 sh -c 'exec 2>>"$0"; exec "$@"' "$scratch/said" "$build_root/tests/mpirun" missing
if grep -q 'PMIx_Fence has not returned' "$scratch/said"; then
	nothing_in 'a process that never calls spmt_init' ''
else
	nothing_in 'a process that never calls spmt_init' "$(tail -n 20 "$scratch/said" "$scratch/out" "$scratch/err")"
fi
# mpirun ends the others, unless they have learned of it and ended first.
fails 'a process that is killed in a world ends the job' 3 'signal 9|ranks died: 1' "$build_root/tests/mpirun" dies
jobs_with_mpi
plan

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
	timeout 120 mpirun "${as_root[@]}" --oversubscribe -n "$@"
}

jobs_alone
# Not under Slurm: the slurmstepd of Debian 12 frees what it still uses, and crashes or spins, where a fence is under way at the end.
SPMT_TIMEOUT_MS=1000 fails 'a process that never calls spmt_init' 2 'PMIx_Fence has not returned' "$build_root/tests/mpirun" missing
# mpirun ends the others, unless they have learned of it and ended first.
fails 'a process that is killed in a world ends the job' 3 'signal 9|ranks died: 1' "$build_root/tests/mpirun" dies
jobs_with_mpi
plan

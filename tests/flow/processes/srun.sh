#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The jobs of mpirun.sh under Slurm, on one node: srun --mpi=pmix -n 4 program. On a Slurm of its own where root can have one, else
# on the machine's; skipped where neither starts such a job at once.
. "$(dirname "$0")/jobs.sh"
. "$(dirname "$0")/slurm.sh"

launcher=srun
unset "${!OMPI_@}" "${!PMIX_@}"
command -v srun >/dev/null || leave 'no srun (slurm-client)'
not_sanitized

# Once more where Slurm gave no node, or hangs, as its slurmstepd does in its own locks once in some hundred jobs; mpirun.sh, with the
# same jobs, knows no second try.
start() {
	local try rc
	for try in 1 2 3; do
		rc=0
		timeout 60 srun --quiet --mpi=pmix --export=ALL --kill-on-bad-exit=0 --overcommit --nodes=1 \
			--immediate=30 --time=3 -n "$@" || rc=$?
		[ "$rc" = 124 ] || grep -qE 'Unable to (allocate resources|create step)|Task launch for' "$scratch/err" || break
		[ "$try" = 3 ] || truncate -s 0 "$scratch/out" "$scratch/err"
	done
	return "$rc"
}

missing=$(slurm_missing)
[ -n "$missing" ] || slurm_start || leave 'a Slurm of our own does not start'

# The program is visible on the node, and PMIx is there.
# shellcheck disable=SC2016
job 2 sh -c 'test -x "$0" && test -n "$PMIX_RANK" || echo "$0 or PMIX_RANK is missing on the node" >&2' "$build_root/tests/job"
rc=$?
if [ "$rc" != 0 ] || [ -s "$scratch/err" ]; then
	leave "srun --mpi=pmix does not start a job here (for a Slurm of our own: ${missing:-nothing} is missing): exit status $rc: $(tail -n 1 "$scratch/err")"
fi

jobs_alone
fails 'a process that is killed in a world: the others learn of it' 3 'ranks died: 1' "$build_root/tests/mpirun" dies
jobs_with_mpi
plan

# SPDX-License-Identifier: MIT
# Sourced by srun.sh: slurm_start makes a Slurm of one node for the time of the script, beside whatever else runs.
# shellcheck shell=bash

slurm_daemons=()

# What slurm_start needs and is not here.
slurm_missing() {
	local name lacks=()
	[ "$(id -u)" = 0 ] || lacks+=(root)
	for name in munged slurmctld slurmd; do
		command -v "$name" >/dev/null || lacks+=("$name")
	done
	echo "${lacks[*]}"
}

# The daemons, and slurmstepd, nobody's child: slurmd waits for one that hangs in its own locks, as happens once in some hundred jobs.
slurm_stop() {
	local i proc
	[ "${#slurm_daemons[@]}" != 0 ] || return 0
	kill "${slurm_daemons[@]}" 2>/dev/null
	for ((i = 0; i < 50; i++)); do
		kill -0 "${slurm_daemons[@]}" 2>/dev/null || break
		sleep 0.1
	done
	for proc in /proc/[0-9]*; do
		[ "$(readlink "$proc/cwd" 2>/dev/null)" != "$scratch/slurm" ] || kill -KILL "${proc#/proc/}" 2>/dev/null
	done
	wait "${slurm_daemons[@]}" 2>/dev/null
}

# A port of 127.0.0.1 on which nobody answers, from $1 on.
slurm_port() {
	local port=$1
	while (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
		port=$((port + 1))
	done
	echo "$port"
}

slurm_conf() {
	local dir=$1 host=$2 first
	first=$(slurm_port $((20000 + $$ % 10000)))
	cat <<-END
	ClusterName=spmt
	SlurmctldHost=$host(127.0.0.1)
	SlurmctldPort=$first
	SlurmdPort=$(slurm_port $((first + 1)))
	SlurmUser=root
	AuthType=auth/munge
	AuthInfo=socket=$dir/munge
	CredType=cred/munge
	StateSaveLocation=$dir/state
	SlurmdSpoolDir=$dir/spool
	SlurmctldPidFile=$dir/slurmctld.pid
	SlurmdPidFile=$dir/slurmd.pid
	ProctrackType=proctrack/linuxproc
	TaskPlugin=task/none
	SwitchType=switch/none
	JobAcctGatherType=jobacct_gather/none
	AccountingStorageType=accounting_storage/none
	SelectType=select/cons_tres
	MpiDefault=none
	ReturnToService=2
	KillWait=1
	NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
	PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:8 State=UP
	END
}

# In a folder of its own, by which slurm_stop knows slurmstepd.
slurm_daemon() {
	(cd "$scratch/slurm" && exec "$@") >"$scratch/slurm/$1.out" 2>&1 &
	slurm_daemons+=($!)
}

# Waits until the node is there, 30 s at the most; says why it is not.
slurm_start() {
	local dir=$scratch/slurm
	unset "${!SLURM_@}"
	mkdir -p "$dir/state" "$dir/spool" "$dir/pmix"
	head -c 1024 /dev/urandom >"$dir/key"
	chmod 400 "$dir/key"
	chmod 711 "$scratch" "$dir"
	slurm_conf "$dir" "$(uname -n)" >"$dir/slurm.conf"
	# Folders of jobs are left behind now and then, and would be in the way of the next Slurm's, which numbers its jobs alike.
	export SLURM_CONF=$dir/slurm.conf SLURM_PMIX_TMPDIR=$dir/pmix
	trap 'slurm_stop; rm -rf "$scratch"' EXIT
	slurm_daemon munged --foreground --force --key-file="$dir/key" --socket="$dir/munge" --pid-file="$dir/munged.pid" \
		--seed-file="$dir/munged.seed" --log-file="$dir/munged.log"
	slurm_daemon slurmctld -D
	slurm_daemon slurmd -D
	for ((i = 0; i < 60; i++)); do
		case $(sinfo --noheader --format=%t 2>/dev/null) in idle | mix | alloc) return 0 ;; esac
		sleep 0.5
	done
	tail -n 5 "$dir"/*.out | sed 's/^/# /'
	return 1
}

#!/usr/bin/env bash
# The scripts of deploy/ under the engines that are on this machine: each comes to the parameters of
# `pstrain run`, bit for bit.
# Usage: tests/deploy/engines.sh [PSTRAIN]
set -euo pipefail
# shellcheck source=tests/deploy/common.sh
. "$(dirname "$0")/common.sh"

# Whoever may not run Open MPI as root may not run this as root; here are no others.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export SERVER_HOST=127.0.0.1 SERVER_PORT=17070
# As if this were the checkout.
ln -s "$checkout/deploy" deploy

if has mpirun.openmpi; then
    # By that name, since mpirun may be another's.
    mkdir -p bin
    ln -sf "$(command -v mpirun.openmpi)" bin/mpirun
    export PATH=$folder/bin:$PATH
    step "Open MPI"
    deploy/openmpi.sh "$workers" --oversubscribe -- "${job[@]}" --out openmpi
    same openmpi
    step "Open MPI starts too few"
    code=0
    deploy/launch.sh "$workers" mpirun -n 2 --oversubscribe -- "${job[@]}" --out few 2>few.log || code=$?
    grep "OMPI_COMM_WORLD_SIZE=2, but the job has 3 workers" few.log || fail "$(cat few.log)"
    [ "$code" != 0 ] || fail "a run without its workers ends with code 0"
else
    skip "Open MPI: no mpirun.openmpi"
fi

if has mpiexec.hydra; then
    step "MPICH"
    deploy/launch.sh "$workers" mpiexec.hydra -n "$workers" -- "${job[@]}" --out mpich
    same mpich
else
    skip "MPICH: no mpiexec.hydra"
fi

# Debian's of version 1.13 starts nothing under Python 3.11.
if torchrun --no_python --nproc_per_node 1 true >torchrun.log 2>&1; then
    step "torchrun"
    deploy/torchrun.sh "$workers" -- "${job[@]}" --out torchrun
    same torchrun
else
    skip "torchrun is not there, or starts nothing: $(tail -n 1 torchrun.log)"
fi

# begin_slurm: a cluster of this machine alone, with all its files in this folder
begin_slurm() {
    local name
    name=$(hostname)
    mkdir slurm slurm/state slurm/spool
    head -c 1024 /dev/urandom >slurm/munge.key
    chmod 600 slurm/munge.key
    cat >slurm/slurm.conf <<EOF
ClusterName=test
SlurmctldHost=$name(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
AuthInfo=socket=$folder/slurm/munge.socket
SlurmUser=root
StateSaveLocation=$folder/slurm/state
SlurmdSpoolDir=$folder/slurm/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
NodeName=$name NodeAddr=127.0.0.1 CPUs=$((workers + 1)) State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
EOF
    export SLURM_CONF=$folder/slurm/slurm.conf PATH=$PATH:/usr/sbin
    # Owners of folders above are none of its business here.
    munged --force --key-file="$folder/slurm/munge.key" --socket="$folder/slurm/munge.socket" \
        --pid-file="$folder/munged.pid" --log-file="$folder/slurm/munged.log" \
        --seed-file="$folder/slurm/munge.seed" 2>slurm/munged.err &&
        slurmctld -f "$SLURM_CONF" -L "$folder/slurm/slurmctld.log" &&
        slurmd -f "$SLURM_CONF" -L "$folder/slurm/slurmd.log" || return
    # Whose jobs go with the script: this one's, never a real one's.
    cluster=$SLURM_CONF
    for _ in {1..100}; do
        if sinfo --noheader --format %T 2>/dev/null | grep -qx idle; then return 0; fi
        sleep 0.2
    done
    cat slurm/*.log >&2
    return 1
}

# submit FLAGS OF sbatch...: waits for the job; gives its output if it fails
submit() { sbatch --quiet --wait --output slurm.log --ntasks "$workers" "$@" || fail "sbatch: $(cat slurm.log)"; }

if ! has munged || ! has slurmctld || ! has slurmd; then
    skip "Slurm: no munged, slurmctld and slurmd"
elif [ "$(id -u)" != 0 ]; then
    skip "Slurm: a cluster of this machine needs root"
else
    step "Slurm"
    begin_slurm || fail "Slurm does not begin"
    # Each job has a port of its own.
    unset SERVER_PORT
    submit deploy/slurm.sbatch "${job[@]}"
    cat slurm.log
    same results/1
    if has mpirun.openmpi; then
        step "Open MPI within a job of Slurm"
        submit --wrap "deploy/openmpi.sh $workers --oversubscribe -- ${job[*]} --out nested"
        cat slurm.log
        same nested
    fi
    # To the batch script alone, as when the time is nearly over, and to all that runs.
    for how in "--batch --signal TERM" ""; do
        step "Slurm ends a job: scancel $how"
        id=$(sbatch --parsable --output stopped.log --ntasks "$workers" deploy/slurm.sbatch "${job[@]:0:6}" --epochs 1000000)
        until grep -qs "training begins" stopped.log; do sleep 0.2; done
        # shellcheck disable=SC2086
        scancel $how "$id"
        while squeue --noheader --job "$id" 2>/dev/null | grep -q .; do sleep 0.2; done
        [ -e "results/$id/summary.json" ] || fail "no summary of a job that was told to end: $(cat stopped.log)"
        [ "$(grep -c "done: stopped" stopped.log)" = "$workers" ] || fail "not all workers: $(cat stopped.log)"
        rm stopped.log
    done
fi

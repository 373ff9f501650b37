#!/usr/bin/env bash
# One run with workers that Open MPI starts; MPI itself is not used. The server is here.
# Usage: deploy/openmpi.sh WORKERS [FLAGS OF mpirun...] -- [FLAGS OF pstrain server]
#   deploy/openmpi.sh 4 --hostfile hosts -- --job job.toml --out results/a
# MPICH's and Intel's mpiexec are started the same way: deploy/launch.sh 4 mpiexec -n 4 -- ...
set -euo pipefail

workers=${1:?how many workers? usage: deploy/openmpi.sh WORKERS [FLAGS OF mpirun...] -- [FLAGS OF pstrain server]}
shift
# A worker computes in one thread, and one that is lost is no reason to end the others: the server decides.
exec "$(dirname "$0")/launch.sh" "$workers" mpirun -n "$workers" --bind-to none --mca orte_abort_on_non_zero_status 0 "$@"

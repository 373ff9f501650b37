#!/usr/bin/env bash
# One run with workers that torchrun starts on this machine; of PyTorch only torchrun is used. The server is here.
# Usage: deploy/torchrun.sh WORKERS [FLAGS OF torchrun...] -- [FLAGS OF pstrain server]
#   deploy/torchrun.sh 4 -- --job job.toml --out results/a
set -euo pipefail

workers=${1:?how many workers? usage: deploy/torchrun.sh WORKERS [FLAGS OF torchrun...] -- [FLAGS OF pstrain server]}
shift
# Older ones do not know --no-python and --nproc-per-node. What it starts is a program, none of Python.
exec "$(dirname "$0")/launch.sh" "$workers" torchrun --no_python --nproc_per_node "$workers" "$@"

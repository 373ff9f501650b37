#!/usr/bin/env bash
# Cost of durability and of a standby: updates per second of one asynchronous job of two workers
# over Unix sockets, with gradients of 8 KB and of 16 MB.
# `pair` is two servers without durability, `checkpoints` two that take checkpoints together.
# Usage: tests/measure/durability.sh [PSTRAIN] [ROUNDS]
set -euo pipefail

rounds=${2:-3}
# shellcheck source=tests/measure/common.sh
. "$(dirname "$0")/common.sh"

# measure WHAT MODEL ROWS EPOCHS [FLAG...]
measure() {
    local what=$1 model=$2 server standby='' other=''
    local job=(--data "synthetic:$3" --model "$model" --epochs "$4" --workers 2
        --consistency asp --learning-rate 0.001 --lease 30s --quiet)
    shift 4
    rm -rf state state2 server.sock standby.sock other.sock
    local others=()
    case $what in
    pair) job+=(--servers 2) ;;
    checkpoints) job+=(--servers 2) others=(--durability checkpoint --state state2) ;;
    esac
    "$pstrain" server --listen "unix:$folder/server.sock" "${job[@]}" "$@" --json >server.json 2>server.log &
    server=$!
    until [ -S server.sock ]; do sleep 0.05; done
    if [[ " ${job[*]} " = *" --servers 2 "* ]]; then
        "$pstrain" server --shard 2/2 --coordinator "unix:$folder/server.sock" \
            --listen "unix:$folder/other.sock" "${others[@]}" --quiet >other.log 2>&1 &
        other=$!
    fi
    if [ "$what" = standby ]; then
        "$pstrain" server --listen "unix:$folder/standby.sock" "${job[@]}" \
            --standby-of "unix:$folder/server.sock" --json >standby.json 2>standby.log &
        standby=$!
        has_standby "unix:$folder/server.sock"
    fi
    "$pstrain" worker --server "unix:$folder/server.sock" --quiet &
    "$pstrain" worker --server "unix:$folder/server.sock" --quiet &
    wait "$server" ${standby:+"$standby"} ${other:+"$other"}
    wait
    printf '%-12s %-16s %8.1f updates/s\n' "$what" "$model" \
        "$(number updates_per_s server.json)"
}

for _ in $(seq "$rounds"); do
    measure none mlp:21 40000 20
    measure checkpoint mlp:21 40000 20 --durability checkpoint --checkpoint-every 2s --state state
    measure log mlp:21 40000 4 --durability log --checkpoint-every 10h --state state
    measure standby mlp:21 40000 8
    measure pair mlp:21 40000 10
    measure checkpoints mlp:21 40000 10 --durability checkpoint --checkpoint-every 2s --state state
    measure none timing:4200000 2000 4
    measure checkpoint timing:4200000 2000 4 --durability checkpoint --checkpoint-every 2s --state state
    measure log timing:4200000 2000 4 --durability log --checkpoint-every 10h --state state
    measure standby timing:4200000 2000 4
    measure pair timing:4200000 2000 4
    measure checkpoints timing:4200000 2000 4 --durability checkpoint --checkpoint-every 2s --state state
done

#!/usr/bin/env bash
# Time in which a worker rejoins under a flood of TLS hellos from 50 other addresses. A worker is
# killed and restarted TURNS times, without a flood and under one of RATE hellos per second; the
# updates per second of the other worker are measured, too.
# Usage: cargo build --release -p pstrain-tests --example flood
#        tests/measure/flood.sh [PSTRAIN] [RATE] [TURNS] [FLOOD]
set -euo pipefail

rate=${2:-5000}
turns=${3:-5}
flood=$(realpath "${4:-target/release/examples/flood}")
# shellcheck source=tests/measure/common.sh
. "$(dirname "$0")/common.sh"

"$pstrain" cert ca ca >/dev/null 2>&1
"$pstrain" cert node ca server --server 127.0.0.1 >/dev/null 2>&1
"$pstrain" cert node ca worker-1 --worker 1 >/dev/null 2>&1
"$pstrain" cert node ca worker-2 --worker 2 >/dev/null 2>&1
"$pstrain" cert node ca client --client >/dev/null 2>&1
"$pstrain" server --listen 127.0.0.1:0 --tls server --data synthetic:4000 --model mlp:21 --epochs 1000000 \
    --workers 2 --consistency asp --learning-rate 0.001 --lease 1s >server.log 2>&1 &
until_says server.log "listening on"
port=$(sed -nE 's/.*listening on (tcp:)?.*:([0-9]+).*/\2/p' server.log | head -1)

# begin WORKER: starts it, and waits until it has its worker slot
begin() {
    "$pstrain" worker --server "127.0.0.1:$port" --tls "worker-$1" >"$1.log" 2>&1 &
    worker=$!
    until_says "$1.log" "worker $1 of"
}

updates() {
    "$pstrain" status "127.0.0.1:$port" --tls client --json --timeout 40s | sed -E 's/.*"updates":([0-9]+).*/\1/'
}

# returns: prints how long the first worker takes to rejoin, TURNS times; then the rate of updates
returns() {
    for _ in $(seq "$turns"); do
        kill -9 "$worker"
        wait "$worker" 2>/dev/null || true
        begun=$EPOCHREALTIME
        begin 1
        echo "$EPOCHREALTIME $begun" | awk '{ printf "  back after %.3f s\n", $1 - $2 }'
        sleep 1
    done
    first=$(updates)
    begun=$EPOCHREALTIME
    sleep 3
    echo "$(updates) $first $EPOCHREALTIME $begun" | awk '{ printf "  %.0f updates/s\n", ($1 - $2) / ($3 - $4) }'
}

begin 2
begin 1
sleep 2
echo "without a flood:"
returns
echo "under $rate hellos a second from 50 addresses:"
"$flood" "$pstrain" client "$port" 50 "$rate" 300 >flood.log &
until_says flood.log begun
sleep 2
returns

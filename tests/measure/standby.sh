#!/usr/bin/env bash
# Traffic to a standby, by --replicate: bytes per update with 2, 4 and 8 workers in virtual time,
# and updates per second of four BSP workers over Unix sockets, with gradients of 8 KB and of 16 MB.
# Usage: tests/measure/standby.sh [PSTRAIN] [ROUNDS]
set -euo pipefail

rounds=${2:-2}
# shellcheck source=tests/measure/common.sh
. "$(dirname "$0")/common.sh"

# weigh MODEL WORKERS WAY
weigh() {
    local link="all.delay=1ms all.down.delay=1ms standby.delay=1ms standby.down.delay=1ms"
    "$pstrain" simulate --json --quiet --data synthetic:8000 --model "$1" --consistency bsp \
        --workers "$2" --epochs 2 --compute lognormal:4.5ms,0.3 --lease 2s \
        --link "$link standby.replicate=$3" >virtual.json
    printf '%-16s %s workers %-8s %8.0f bytes an update\n' "$1" "$2" "$3" \
        "$(bc <<<"$(number down_bytes virtual.json) / $(number updates virtual.json)")"
}

# race MODEL ROWS EPOCHS WAY
race() {
    local job=(--data "synthetic:$2" --model "$1" --epochs "$3" --workers 4 --consistency bsp
        --learning-rate 0.001 --lease 30s --quiet)
    rm -f server.sock standby.sock
    "$pstrain" server --listen "unix:$folder/server.sock" "${job[@]}" --replicate "$4" --json \
        >server.json 2>server.log &
    until [ -S server.sock ]; do sleep 0.05; done
    "$pstrain" server --listen "unix:$folder/standby.sock" "${job[@]}" \
        --standby-of "unix:$folder/server.sock" --json >standby.json 2>standby.log &
    has_standby "unix:$folder/server.sock"
    for _ in 1 2 3 4; do
        "$pstrain" worker --server "unix:$folder/server.sock" --quiet &
    done
    wait
    printf '%-16s %-8s %8.1f updates/s\n' "$1" "$4" "$(number updates_per_s server.json)"
}

for workers in 2 4 8; do
    for way in pushes updates; do
        weigh mlp:21 "$workers" "$way"
    done
done
for _ in $(seq "$rounds"); do
    for way in pushes updates; do
        race mlp:21 20000 3 "$way"
        race timing:4200000 2000 2 "$way"
    done
done

#!/usr/bin/env bash
# How long a rebalance of keys stops a job: a server joins an asynchronous job of two workers over
# Unix sockets and leaves again, with models of 8 KB and of 16 MB; half of the keys move each time.
# Usage: tests/measure/moving.sh [PSTRAIN] [ROUNDS]
set -euo pipefail

rounds=${2:-5}
# shellcheck source=tests/measure/common.sh
. "$(dirname "$0")/common.sh"

# measure MODEL
measure() {
    local server other
    rm -rf out ./*.sock ./*.log
    "$pstrain" server --listen "unix:$folder/server.sock" --data synthetic:4000 --model "$1" \
        --epochs 100000 --workers 2 --consistency asp --learning-rate 0.001 --lease 30s --quiet \
        --out out >server.log 2>&1 &
    server=$!
    until [ -S server.sock ]; do sleep 0.02; done
    "$pstrain" worker --server "unix:$folder/server.sock" --quiet >/dev/null 2>&1 &
    "$pstrain" worker --server "unix:$folder/server.sock" --quiet >/dev/null 2>&1 &
    until_says server.log listening
    sleep 2
    for round in $(seq "$rounds"); do
        "$pstrain" server --join --coordinator "unix:$folder/server.sock" \
            --listen "unix:$folder/other-$round.sock" >"other-$round.log" 2>&1 &
        other=$!
        until_says "other-$round.log" "keys \["
        sleep 1
        "$pstrain" control "unix:$folder/server.sock" leave-server $((round + 1)) >/dev/null
        wait "$other" || true
        sleep 1
    done
    kill -INT "$server"
    wait "$server" || true
    wait
    for what in joined left; do
        grep '"keys_moved"' out/events.jsonl | grep "\"$what\":[0-9]" |
            sed -E 's/.*"took_s":([0-9.e-]+).*/\1/' | sort -g |
            awk -v model="$1" -v what="$what" '
                { took[NR] = $1 * 1000 }
                END {
                    printf "%-16s %-7s median %8.2f ms, %.2f to %.2f ms, of %d\n",
                        model, what, took[int((NR + 1) / 2)], took[1], took[NR], NR
                }'
    done
}

measure mlp:21
measure timing:4200000

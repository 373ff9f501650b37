#!/usr/bin/env bash
# Needs of an edge node: the size of the binary; the peak memory of the server and of a worker with
# half of the data of the reference task, from the worker's own copy or sent by the server; and the
# time from the command to a server that listens (median of 50, including the shell's own part).
# Usage: tests/measure/sizes.sh [PSTRAIN] [DATA]
set -euo pipefail

data=${2:-synthetic:125973}
[ ! -e "$data" ] || data=$(realpath "$data")
# shellcheck source=tests/measure/common.sh
. "$(dirname "$0")/common.sh"

printf 'binary                                    %6.2f MiB\n' \
    "$(bc -l <<<"$(stat -Lc %s "$pstrain") / 1048576")"

# memory DATA_OF_WORKERS WHO_SENDS WORDS
memory() {
    rm -f server.sock
    "$pstrain" server --listen "unix:$folder/server.sock" --data "$data" --data-from "$2" \
        --workers 2 --epochs 3 --json >server.json 2>server.log &
    until [ -S server.sock ]; do sleep 0.02; done
    for worker in 1 2; do
        "$pstrain" worker --server "unix:$folder/server.sock" --data "$1" >"worker-$worker.log" 2>&1 &
    done
    wait
    printf 'worker, %-33s %6.2f MiB\n' "$3" \
        "$(sed -nE 's/.*peak memory ([0-9.]+) MiB.*/\1/p' worker-*.log | sort -g | tail -1)"
    printf 'server, %-33s %6.2f MiB\n' "$3" "$(number peak_rss_mib server.json)"
}
memory "$data" own "workers with their own copy"
memory server server "which sends the workers' data"

for _ in $(seq 50); do
    begun=$EPOCHREALTIME
    coproc { exec "$pstrain" server --listen 127.0.0.1:0 --data synthetic:1000 --workers 2 2>&1; }
    until read -r line <&"${COPROC[0]}" && [[ $line = *"listening on"* ]]; do :; done
    echo "$EPOCHREALTIME $begun" | awk '{ printf "%.3f\n", 1000 * ($1 - $2) }' >>starts
    kill -9 "$COPROC_PID"
    wait "$COPROC_PID" 2>/dev/null || true
done
sort -g starts | awk '{ took[NR] = $1 }
    END { printf "cold start to listening, median of %d     %6.2f ms\n", NR, took[int((NR + 1) / 2)] }'

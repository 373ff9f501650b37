#!/usr/bin/env bash
# Cost of a thousand half-open connections: updates per second of an asynchronous job of two workers
# over TCP, alternately without and with them. Half of them have sent the beginning of a message.
# Usage: tests/measure/half-open.sh [PSTRAIN] [TURNS]
set -euo pipefail

turns=${2:-10}
# shellcheck source=tests/measure/common.sh
. "$(dirname "$0")/common.sh"
ulimit -n "$(ulimit -Hn)"

"$pstrain" server --listen 127.0.0.1:0 --data synthetic:4000 --model mlp:21 --epochs 1000000 \
    --workers 2 --consistency asp --learning-rate 0.001 --lease 30s --quiet >server.log 2>&1 &
until_says server.log "listening on"
port=$(sed -nE 's/.*listening on tcp:.*:([0-9]+).*/\1/p' server.log | head -1)
for _ in 1 2; do
    "$pstrain" worker --server "127.0.0.1:$port" --quiet >/dev/null 2>&1 &
done
sleep 2

updates() {
    "$pstrain" status "127.0.0.1:$port" --json | sed -E 's/.*"updates":([0-9]+).*/\1/'
}

# rate: prints the updates per second over four seconds
rate() {
    local first begun
    first=$(updates)
    begun=$EPOCHREALTIME
    sleep 4
    echo "$(updates) $first $EPOCHREALTIME $begun" | awk '{ printf "%.0f\n", ($1 - $2) / ($3 - $4) }'
}

for _ in $(seq "$turns"); do
    without=$(rate)
    open=()
    for number in $(seq 1000); do
        exec {connection}<>"/dev/tcp/127.0.0.1/$port"
        open+=("$connection")
        # The server may have closed some already.
        ((number % 2)) || { printf '\026\003\001\002' 1>&"$connection"; } 2>/dev/null || true
    done
    with=$(rate)
    for connection in "${open[@]}"; do exec {connection}>&-; done
    sleep 1
    echo "$without $with" | awk '{ printf "%d updates/s without, %d with: %.3f\n", $1, $2, $2 / $1 }'
done | tee turns
sed -E 's/.*: //' turns | sort -g |
    awk '{ ratio[NR] = $1 } END { printf "median ratio %.3f\n", ratio[int((NR + 1) / 2)] }'

#!/usr/bin/env bash
# Time until a standby leads in place of a server that is killed or stopped, and until the next
# update: two servers, each with a standby, and two BSP workers over Unix sockets. Times are in
# leases.
# Usage: tests/measure/failover.sh [PSTRAIN] [ROUNDS] [LEASE_SECONDS]
set -euo pipefail

rounds=${2:-3}
lease=${3:-2}
# shellcheck source=tests/measure/common.sh
. "$(dirname "$0")/common.sh"

# at NAME: prints the address of a process
at() { echo "unix:$folder/$1.sock"; }

# start NAME ARGUMENT...: starts a server, and waits until it listens
start() {
    "$pstrain" server --listen "$(at "$1")" "${@:2}" >"$1.out" 2>"$1.log" &
    pids[$1]=$!
    until [ -S "$1.sock" ]; do sleep 0.02; done
}

# updates NAME: prints the number of updates that the server reports
updates() {
    "$pstrain" status "$(at "$1")" --json 2>/dev/null | grep -o '"updates":[0-9]*' | head -1 | cut -d: -f2
}

# fail WHOSE SIGNAL: sends the signal to the coordinator or the shard, and times the failover
fail() {
    rm -f ./*.sock
    local job=(--data synthetic:4000 --model mlp:512 --epochs 1000000 --workers 2 --servers 2
        --compute 10ms --lease "${lease}s" --on-worker-loss wait)
    local leads=coordinator begin now led
    start coordinator "${job[@]}"
    start shard --shard 2/2 --coordinator "$(at coordinator)"
    for id in 1 2; do
        "$pstrain" worker --server "$(at coordinator)" --id "$id" --quiet 2>"worker$id.log" &
        pids[worker$id]=$!
    done
    until [ "$(updates coordinator)" -gt 3 ]; do sleep 0.1; done
    start coordinator-standby "${job[@]}" --standby-of "$(at coordinator)"
    start shard-standby "${job[@]}" --standby-of "$(at shard)"
    has_standby "$(at coordinator)"
    until grep -q "stands by: it has all" shard-standby.log; do sleep 0.05; done
    sleep "$lease"
    [ "$1" = shard ] || leads=coordinator-standby
    begin=$(date +%s.%N)
    kill "-$2" "${pids[$1]}"
    until grep -q "leading" "$1-standby.log"; do sleep 0.01; done
    led=$(bc <<<"$(date +%s.%N) - $begin")
    now=$(updates "$leads")
    until [ "$(updates "$leads")" -gt "$now" ]; do sleep 0.05; done
    printf '%-12s %-5s another leads after %5.2f, the next update after %5.2f leases\n' "$1" "$2" \
        "$(bc -l <<<"$led / $lease")" "$(bc -l <<<"($(date +%s.%N) - $begin) / $lease")"
    kill -KILL "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
}

declare -A pids
for _ in $(seq "$rounds"); do
    for whose in coordinator shard; do
        for signal in KILL STOP; do
            fail "$whose" "$signal"
        done
    done
done

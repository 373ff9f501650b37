#!/usr/bin/env bash
# pstrain as separate processes over TCP: a server, or a meeting point, and so many workers. Prints what
# `pstrain server --json` prints.
# Usage: pstrain_processes.sh PSTRAIN SETTING..., among them --workers NUMBER
set -euo pipefail
export LC_ALL=C

pstrain=$1
shift
log=$(mktemp)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -f "$log"' EXIT

"$pstrain" server --listen 127.0.0.1:0 --json --quiet "$@" 2>"$log" &
server=$!
until address=$(grep -oE '127\.0\.0\.1:[0-9]+' "$log"); do
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.01
done
workers='' data=() listen=()
while (($# > 0)); do
    case $1 in
    --workers) workers=$2 ;;
    # Without a server the workers dial each other.
    --architecture) [[ $2 == server ]] || listen=(--listen 127.0.0.1:0) ;;
    # A file is given to each of them, for they are on the same machine.
    --data) [[ $2 == synthetic* ]] || data=(--data "$2") ;;
    esac
    shift
done
[[ -n $workers ]] || { echo "pstrain_processes.sh: --workers is missing" >&2; exit 2; }
for ((worker = 1; worker <= workers; worker++)); do
    "$pstrain" worker --server "$address" --quiet "${data[@]}" "${listen[@]}" &
done
wait "$server" || { cat "$log" >&2; exit 1; }
wait

#!/usr/bin/env bash
# One run with workers that an engine starts: the server here, and the workers wherever the engine puts them.
# Usage: deploy/launch.sh WORKERS ENGINE... -- [FLAGS OF pstrain server]
#   deploy/launch.sh 4 mpirun -n 4 --hostfile hosts -- --job job.toml --out results/a
# ENGINE is a command that starts WORKERS times what follows it. Ends with the server's exit code; SIGTERM
# and Ctrl-C drain the run.
#
# Settings, by environment:
#   PSTRAIN      the binary, at the same path on all machines [pstrain, as PATH has it]
#   SERVER_HOST  the name of this machine, as the workers reach it [hostname]
#   SERVER_PORT  the port of the server [7070]
#   WORKER_DATA  the data of the workers; server: they are sent them [server]
#   KEY          a key of `pstrain cert psk` that all machines have [a new one in this folder, which all
#                machines must see; it goes with the run]
set -euo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
workers=$1
shift
engine=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    engine+=("$1")
    shift
done
[ $# = 0 ] || shift

pstrain=$(command -v "${PSTRAIN:-pstrain}") || {
    echo "launch.sh: no program ${PSTRAIN:-pstrain}: set PSTRAIN to its path" >&2
    exit 2
}
host=${SERVER_HOST:-$(hostname)}
port=${SERVER_PORT:-7070}
key=${KEY-}
own_key=
witness=
trap 'rm -f "$own_key"; kill "$witness" 2>/dev/null || true' EXIT
if [ -z "$key" ]; then
    key=$PWD/.pstrain-$(hostname)-$$.key
    own_key=$key
    said=$("$pstrain" cert psk "$key" 2>&1) || {
        echo "$said" >&2
        exit 2
    }
fi

"$pstrain" server --listen "0.0.0.0:$port" --psk "$key" --workers "$workers" "$@" &
server=$!
"${engine[@]}" "$pstrain" worker --server "$host:$port" --psk "$key" --rank auto \
    --data "${WORKER_DATA:-server}" &
started=$!

ended() { ! kill -0 "$1" 2>/dev/null; }

# Slurm sends SIGTERM to this script alone when the time is nearly over, and to all its processes when somebody cancels
# the job; Ctrl-C reaches all. A second signal would abort the server, so whether the first has reached it must be
# known: a process that it ends is the witness.
sleep infinity &
witness=$!
stopping=
trap 'stopping=1; sleep 0.5; ended "$witness" || kill "$server" 2>/dev/null || true' TERM
trap 'stopping=1' INT

# A signal ends a wait early.
until ended "$server" || ended "$started"; do wait -n "$server" "$started" || true; done
code=0
if ended "$server"; then
    wait "$server" || code=$?
    # One that has run has told the workers that the run is over.
    [ "$code" = 0 ] || [ -n "$stopping" ] || kill "$started" 2>/dev/null || true
elif ! wait "$started" && [ -z "$stopping" ]; then
    # Workers that heard of the end have gone before the server; others have left it alone.
    for _ in {1..50}; do ended "$server" || sleep 0.2; done
    kill "$server" 2>/dev/null || true
fi
until ended "$started"; do wait "$started" || true; done
until ended "$server"; do wait "$server" || true; done
wait "$server" || code=$?
exit "$code"

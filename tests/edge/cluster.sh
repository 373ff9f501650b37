#!/usr/bin/env bash
# One cluster of several processors: a server here, a worker on 64-bit ARM and one on 32-bit ARM, emulated
# by QEMU. It must come to the same parameters as a cluster that is all here, bit for bit, over TCP with a
# shared key and with TLS; so must one whose server is an ARM.
# Needs qemu-user, and binaries for both (tests/edge/build.sh).
# Usage: tests/edge/cluster.sh [PSTRAIN] [FOLDER_OF_TARGETS] [DATA]
set -euo pipefail

data=${3:-synthetic:40000}
[ ! -e "$data" ] || data=$(realpath "$data")
targets=$(realpath "${2:-target}")
# shellcheck source=tests/measure/common.sh
. "$(dirname "$0")/../measure/common.sh"

# on MACHINE ARGUMENT...: pstrain there, in place of this shell
on() {
    local machine=$1
    shift
    case $machine in
    here) exec "$pstrain" "$@" ;;
    arm64) exec qemu-aarch64 -L /usr/aarch64-linux-gnu "$targets/aarch64-unknown-linux-gnu/edge/pstrain" "$@" ;;
    arm32) exec qemu-arm -L /usr/arm-linux-gnueabihf "$targets/armv7-unknown-linux-gnueabihf/edge/pstrain" "$@" ;;
    esac
}

job=(--data "$data" --workers 2 --epochs 3 --consistency bsp --quiet)

digest() { grep -oE '"params_sha256":"[0-9a-f]{64}"' "$1" | cut -d'"' -f4; }

"$pstrain" run "${job[@]}" --transport tcp --json >here.json
wanted=$(digest here.json)
echo "all here:                         $wanted"

# cluster WHAT SERVER WORKER1 WORKER2: the machines; how they prove who they are is in server_flags and
# worker_flags
cluster() {
    local what=$1 port found
    : >server.log
    on "$2" server --listen 127.0.0.1:0 "${job[@]}" "${server_flags[@]}" --json >server.json 2>server.log &
    until_says server.log "listening on"
    port=$(sed -nE 's/.*listening on tcp:.*:([0-9]+).*/\1/p' server.log | head -1)
    on "$3" worker --server "127.0.0.1:$port" --data "$data" "${worker_flags[@]}" --quiet &
    on "$4" worker --server "127.0.0.1:$port" --data server "${worker_flags[@]}" --quiet &
    wait
    found=$(digest server.json)
    printf '%-33s %s\n' "$what:" "$found"
    [ "$found" = "$wanted" ] || {
        echo "$what: other parameters than those of a cluster that is all here" >&2
        exit 1
    }
}

server_flags=() worker_flags=()
cluster "workers: 64 and 32 bits of ARM" here arm64 arm32
cluster "server: ARM; workers: here, ARM" arm32 here arm64
"$pstrain" cert psk key >/dev/null
server_flags=(--psk key) worker_flags=(--psk key)
cluster "the same workers, shared key" here arm64 arm32
"$pstrain" cert ca ca >/dev/null
"$pstrain" cert node ca node --server 127.0.0.1 >/dev/null
"$pstrain" cert node ca any --worker >/dev/null
server_flags=(--tls node) worker_flags=(--tls any)
cluster "the same workers, TLS" here arm64 arm32

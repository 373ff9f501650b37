#!/usr/bin/env bash
# Runs one job with real `pstrain server` and `pstrain worker` processes, each in a network namespace
# of its own, over links shaped by tc netem, and checks that the delays are those asked for.
set -euo pipefail
# Numbers below are read by programs: a decimal comma would break them.
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/netem/link.sh
source "$here/link.sh"

usage() {
    cat <<'TEXT'
usage: cluster.sh --out DIR [--job FILE] [--link TEXT]... [--netem LINK=WORDS]... [--shaped] [--overwrite]
                  [-- SETTING...]

  --out DIR           results of `pstrain server --out`, and netem.json, netem.txt, server.log, worker-N.log
  --job FILE          job file; its `link` becomes netem's, so that pstrain itself adds no delay
  --link TEXT         links in pstrain's words, instead of the job's: 1.delay=1ms 2.delay=100ms
  --netem LINK=WORDS  further words for netem that pstrain's links do not have: 2.up='reorder 25%'
                      (LINK: WORKER.up, WORKER.down, server.up or server.down)
  --shaped            leave the job's links to pstrain, over a network without delays: for comparison
  --overwrite         replace the results that DIR holds already
  SETTING...          settings of the job, as flags: --epochs 1 --consistency asp

environment:
  PSTRAIN             the binary                 (default target/release/pstrain of this repository)
  PROBES              pings per worker, before and after the run (default 20, and 100 with jitter or loss)
  NETEM_SELF_TEST     WHEN:WORKER:TIME, for tests of the check itself: makes a worker's delay wrong by TIME,
                      from the start (before:1:20ms) or once the job is done (after:1:20ms)

exit status: 0 done · 1 the job failed · 2 usage or environment · 3 done, but not valid: a measured
delay is not the one asked for, and DIR/INVALID says which · 130, 143 interrupted
TEXT
}

fail() {
    echo "cluster.sh: $*" >&2
    exit 2
}

out='' job='' link='' shaped='' overwrite=() settings=() root=$here/../..
declare -A extra_words=()
while (($# > 0)); do
    case $1 in
    -h | --help) usage; exit 0 ;;
    --overwrite) overwrite=(--overwrite); shift ;;
    --shaped) shaped=yes; shift ;;
    --) shift; settings=("$@"); break ;;
    --out | --job | --link | --netem)
        (($# > 1)) || fail "$1 needs a value; see --help"
        case $1 in
        --out) out=$2 ;;
        --job) job=$2 ;;
        --link) link+="${link:+ }$2" ;;
        --netem)
            [[ $2 =~ ^((server|[1-9][0-9]*)\.(up|down))=(.+)$ ]] ||
                fail "--netem '$2' is not LINK=WORDS, for example 2.up='reorder 25%'"
            extra_words[${BASH_REMATCH[1]}]=${BASH_REMATCH[4]} ;;
        esac
        shift 2 ;;
    *) fail "unknown argument '$1'; see --help" ;;
    esac
done
[[ -n $out ]] || fail "--out DIR is missing; see --help"
[[ -z $shaped || (-z $link && ${#extra_words[@]} == 0) ]] || fail "--shaped leaves no links to netem: --link and --netem do not go with it"

### What must be there

[[ $(id -u) = 0 ]] || fail "network namespaces need root: run it with sudo"
for tool in ip:iproute2 tc:iproute2 ss:iproute2 ping:iputils-ping jq:jq; do
    command -v "${tool%:*}" >/dev/null || fail "no ${tool%:*}: install the package ${tool#*:}"
done
pstrain=${PSTRAIN:-${CARGO_TARGET_DIR:-$root/target}/release/pstrain}
command -v "$pstrain" >/dev/null ||
    fail "no pstrain binary at $pstrain: run 'cargo build --release' or set PSTRAIN"
pstrain=$(realpath "$(command -v "$pstrain")")
self_test_when='' self_test_worker=0 self_test_extra=0
if [[ -n ${NETEM_SELF_TEST:-} ]]; then
    IFS=: read -r self_test_when self_test_worker self_test_extra <<<"$NETEM_SELF_TEST"
    [[ $NETEM_SELF_TEST =~ ^(before|after):[1-9][0-9]*:[0-9.]+(us|ms|s)$ ]] ||
        fail "NETEM_SELF_TEST='$NETEM_SELF_TEST' is not WHEN:WORKER:TIME, for example before:1:20ms"
    link_us "$self_test_extra"
    self_test_extra=$REPLY
fi

### The job, as pstrain itself resolves it from file, flags and environment

command=(server ${job:+--job "$job"} "${settings[@]}")
resolved=$("$pstrain" "${command[@]}" --print-job) || exit 2
job_setting() {
    sed -nE "s/^$1 = \"?([^\"]*[^\" ])\"?  #.*/\1/p" <<<"$resolved"
}
workers=$(job_setting workers)
job_link=$(job_setting link)
if [[ -n $job_link && $job_link != none && -z $shaped ]]; then
    command+=(--link none)
    link=${link:-$job_link}
fi
link=${link:-none}
worker_data=()
data=$(job_setting data)
if [[ $data != synthetic* && $(job_setting data-from) == worker ]]; then
    worker_data=(--data "$data")
fi
link_read "$link" server up || exit 2
for item in $link; do
    [[ ! $item =~ ^([0-9]+)\. ]] || ((BASH_REMATCH[1] <= workers)) ||
        fail "link '$item': the job has $workers workers only"
done

### The results folder

if ((${#overwrite[@]} == 0)); then
    for file in summary.json netem.json INVALID; do
        [[ ! -e $out/$file ]] || fail "$out holds a run already; choose another folder or --overwrite"
    done
fi
mkdir -p "$out" || fail "cannot make the folder $out"
out=$(realpath "$out")
rm -f "$out"/{summary.json,netem.json,netem.txt,INVALID,server.log} "$out"/worker-*.log

# Packets a netem queue holds. netem's own 1000 would drop what a long fast link has in flight.
readonly QUEUE_PACKETS=100000

### The network: a switch and one namespace per process. Nothing of it is in the host's own
### namespace, so no firewall or address of the host is in the way, and it goes as a whole.

name=pstrain-$$
switch=$name-switch
address=10.77.0.1
port=7070
namespaces=()
processes=()
work=$(mktemp -d)

clean_up() {
    local status=$? namespace left
    trap '' INT TERM
    trap - EXIT
    kill -TERM "${processes[@]}" 2>/dev/null || true
    for _ in {1..20}; do
        left=''
        for namespace in "${namespaces[@]}"; do left+=$(ip netns pids "$namespace" 2>/dev/null || true); done
        [[ -n $left ]] || break
        sleep 0.1
    done
    for namespace in "${namespaces[@]}"; do
        ip netns pids "$namespace" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
        ip netns delete "$namespace" 2>/dev/null || true
    done
    wait
    rm -rf "$work"
    if [[ -n ${SUDO_UID:-} ]]; then chown -R "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$out" || true; fi
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# inside NODE COMMAND...: in the namespace of `server` or a worker's number.
inside() {
    local node=$1
    shift
    ip netns exec "$name-$node" "$@"
}

node_address() {
    if [[ $1 == server ]]; then echo "$address"; else echo "10.77.$(((1 + $1) / 256)).$(((1 + $1) % 256))"; fi
}

make_namespace() {
    ip netns add "$1" 2>"$work/error" ||
        fail "cannot make a network namespace ($(<"$work/error")): this needs a kernel and a container that allow it"
    namespaces+=("$1")
    ip -n "$1" link set lo up
}

make_node() {
    local node=$1 namespace=$name-$1
    make_namespace "$namespace"
    ip -n "$switch" link add "to-$node" type veth peer name eth0 netns "$namespace" 2>"$work/error" ||
        fail "cannot make a veth pair ($(<"$work/error")): the kernel module veth is missing"
    ip -n "$switch" link set "to-$node" master bridge up
    # One packet for netem is one packet of the wire, not a bundle of up to 64 KiB.
    ip -n "$namespace" link set eth0 gso_max_segs 1
    ip -n "$namespace" address add "$(node_address "$node")/16" dev eth0
    ip -n "$namespace" link set eth0 up
}

make_network() {
    local node
    make_namespace "$switch"
    tc -n "$switch" qdisc add dev lo root netem delay 1ms 2>"$work/error" ||
        fail "this kernel has no netem ($(tail -n 1 "$work/error")): install its module sch_netem, or use tests/netem/vm.sh"
    ip -n "$switch" link add bridge type bridge 2>"$work/error" ||
        fail "cannot make a bridge ($(<"$work/error")): the kernel module bridge is missing"
    ip -n "$switch" link set bridge up
    for node in server $(seq "$workers"); do make_node "$node"; done
}

# link_device NODE DIRECTION: namespace and device that send in this direction. What leaves a node is
# shaped there; what goes to it, at its port of the switch.
link_device() {
    if [[ $1.$2 == server.down || ($1 != server && $2 == up) ]]; then
        echo "$name-$1 eth0"
    else
        echo "$switch to-$1"
    fi
}

# shape NODE DIRECTION [EXTRA_US]: puts (or changes) netem where this link sends.
shape() {
    local node=$1 direction=$2 namespace device words
    link_read "$link" "$node" "$direction" || exit 2
    words=$(link_netem "${3:-0}")
    words+=" ${extra_words[$node.$direction]:-}"
    words=${words% }
    [[ -n $words ]] || return 0
    read -r namespace device < <(link_device "$node" "$direction")
    # shellcheck disable=SC2086 # words are words
    tc -n "$namespace" qdisc replace dev "$device" root netem limit "$QUEUE_PACKETS" $words 2>"$work/error" ||
        fail "netem refuses '$words' ($(tail -n 1 "$work/error"))"
    printf '%s\t%s\t%s\t%s\n' "$node.$direction" "$namespace" "$device" "$words" >>"$work/shaped.new"
    grep -v "^$node.$direction"$'\t' "$work/shaped" >>"$work/shaped.new" || true
    mv "$work/shaped.new" "$work/shaped"
}

shape_all() {
    local node direction extra
    : >"$work/shaped"
    for node in server $(seq "$workers"); do
        for direction in up down; do
            extra=0
            if [[ $self_test_when.$self_test_worker.up == "before.$node.$direction" ]]; then extra=$self_test_extra; fi
            shape "$node" "$direction" "$extra"
        done
    done
}

### The check: round trips by ping. There and back are every delay of the way once.

readonly PING_BYTES=98

# probe WORKER WHEN: measures, and appends one line to $work/delays.
probe() {
    local worker=$1 when=$2 asked=0 spread=0 unsteady='' gap=20000 probes patience node direction
    for node in "$worker" server; do
        for direction in up down; do
            link_read "$link" "$node" "$direction"
            link_us "${LINK[delay]:-0ms}" && asked=$((asked + REPLY))
            link_us "${LINK[jitter]:-0ms}" && spread=$((spread + REPLY))
            link_send_us $PING_BYTES && asked=$((asked + REPLY))
            # Pings must not queue behind each other.
            gap=$((3 * REPLY > gap ? 3 * REPLY : gap))
            unsteady+=${LINK[jitter]:-}${LINK[loss]:-}
        done
    done
    probes=20
    if [[ -n $unsteady ]]; then probes=100; fi
    probes=${PROBES:-$probes}
    patience=$((3 + (asked + 10 * spread) / 500000))
    printf -v gap '%d.%06d' $((gap / 1000000)) $((gap % 1000000))
    # The first round trips also ask for the hardware addresses.
    inside "$worker" ping -n -q -c 3 -i 0.2 -W "$patience" "$address" >/dev/null || true
    inside "$worker" ping -n -c "$probes" -i "$gap" -W "$patience" "$address" |
        sed -nE 's/.* time=([0-9.]+) ms.*/\1/p' | sort -n |
        awk -v worker="$worker" -v when="$when" -v asked="$asked" -v spread="$spread" -v probes="$probes" '
            { time[NR] = $1 }
            END {
                asked /= 1000; spread /= 1000
                median = NR % 2 ? time[(NR + 1) / 2] : (time[NR / 2] + time[NR / 2 + 1]) / 2
                tolerance = asked * 0.05 > 0.5 ? asked * 0.05 : 0.5
                tolerance += spread / 2
                off = median > asked ? median - asked : asked - median
                ok = NR >= 5 && off <= tolerance
                printf "%s\t%d\t%d\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%s\n", when, worker, probes, NR,
                    asked, median, time[1], time[NR], tolerance, ok ? "true" : "false"
            }' >>"$work/delays"
}

# probe_all WHEN: fails, and writes INVALID, if a delay is not the one asked for.
probe_all() {
    local worker
    for worker in $(seq "$workers"); do probe "$worker" "$1"; done
    awk -F'\t' -v when="$1" '$1 == when && $10 == "false" {
        if ($4 < 5) printf "worker %d, %s the run: %d of %d probes came back\n", $2, $1, $4, $3
        else printf "worker %d, %s the run: round trip of %s ms measured, %s ms asked for, tolerance %s ms\n",
            $2, $1, $6, $5, $9
    }' "$work/delays" >>"$work/invalid"
    [[ ! -s $work/invalid ]]
}

### What the results folder says about the network

describe() {
    local label namespace device words
    : >"$work/links"
    while IFS=$'\t' read -r label namespace device words; do
        tc -n "$namespace" -s -j qdisc show dev "$device" |
            jq -c --arg link "$label" --arg netem "$words" '{link: $link, netem: $netem, qdisc: .[0]}' >>"$work/links"
        { echo "# $label: $words"; tc -n "$namespace" -s qdisc show dev "$device"; } >>"$work/qdiscs"
    done < <(sort "$work/shaped")
    jq -R -s 'split("\n") | map(select(. != "") | split("\t") | {when: .[0], worker: (.[1] | tonumber),
        probes: (.[2] | tonumber), replies: (.[3] | tonumber), asked_ms: (.[4] | tonumber),
        median_ms: (.[5] | tonumber), min_ms: (.[6] | tonumber), max_ms: (.[7] | tonumber),
        tolerance_ms: (.[8] | tonumber), ok: (.[9] == "true")})' "$work/delays" >"$work/delays.json"
    local keys=(congestion_control slow_start_after_idle rmem wmem sack timestamps no_metrics_save) key
    for key in "${keys[@]}"; do
        inside server cat "/proc/sys/net/ipv4/tcp_$key" | jq -R --arg key "$key" '{("tcp_" + $key): gsub("\t"; " ")}'
    done | jq -s add >"$work/tcp.json"
    jq -n --rawfile invalid "$work/invalid" --slurpfile links "$work/links" --slurpfile delays "$work/delays.json" \
        --slurpfile tcp "$work/tcp.json" --arg link "$link" --arg kernel "$(uname -srm)" --arg tc "$(tc -V)" \
        --arg pstrain "$("$pstrain" --version)" \
        '{valid: ($invalid == ""), invalid: ($invalid | split("\n") | map(select(. != ""))), link: $link,
          links: $links, round_trips: $delays[0], kernel: $kernel, tc: $tc, pstrain: $pstrain, tcp: $tcp[0]}' \
        >"$out/netem.json"
    write_text >"$out/netem.txt"
    if [[ -s $work/invalid ]]; then cp "$work/invalid" "$out/INVALID"; fi
}

write_text() {
    echo "link: $link"
    echo "kernel: $(uname -srm), $(tc -V)"
    jq -r 'to_entries[] | "\(.key): \(.value)"' "$work/tcp.json"
    printf '\n%-7s %-7s %-8s %10s %10s %10s %10s %11s  %s\n' when worker replies 'asked ms' 'median ms' 'min ms' 'max ms' 'tolerance' ok
    awk -F'\t' '{ printf "%-7s %-7d %-8s %10s %10s %10s %10s %11s  %s\n", $1, $2, $4 "/" $3, $5, $6, $7, $8, $9,
        $10 == "true" ? "yes" : "NO" }' "$work/delays"
    echo
    cat "$work/qdiscs"
}

stop_if_invalid() {
    describe
    [[ -s $work/invalid ]] || return 0
    sed 's/^/cluster.sh: not valid: /' "$work/invalid" >&2
    exit 3
}

### The job

await_server() {
    for _ in {1..300}; do
        [[ -z $(inside server ss -Hltn "sport = :$port") ]] || return 0
        kill -0 "$server" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# alive PROCESS...: whether any of them is; all_alive: whether all are.
alive() {
    local process
    for process in "$@"; do
        if kill -0 "$process" 2>/dev/null; then return 0; fi
    done
    return 1
}

all_alive() {
    local process
    for process in "$@"; do kill -0 "$process" 2>/dev/null || return 1; done
}

# leave_time SECONDS PROCESS...: waits that long for processes that should end, then ends them.
leave_time() {
    local tenths=$(($1 * 10))
    shift
    while ((tenths-- > 0)) && alive "$@"; do sleep 0.1; done
    kill -TERM "$@" 2>/dev/null || true
}

run_job() {
    local worker failed=0
    inside server "$pstrain" "${command[@]}" --listen "$address:$port" --insecure --out "$out" "${overwrite[@]}" >"$out/server.log" 2>&1 &
    server=$!
    processes+=("$server")
    if ! await_server; then
        tail -n 5 "$out/server.log" >&2
        echo "cluster.sh: the server does not listen; see $out/server.log" >&2
        # It refuses a wrong setting with the status of a usage error: so does this script.
        kill -TERM "$server" 2>/dev/null || true
        wait "$server" || failed=$?
        return $((failed == 2 ? 2 : 1))
    fi
    for worker in $(seq "$workers"); do
        inside "$worker" "$pstrain" worker --server "$address:$port" --insecure --id "$worker" --name "worker$worker" "${worker_data[@]}" \
            >"$out/worker-$worker.log" 2>&1 &
        processes+=("$!")
    done
    while all_alive "${processes[@]}"; do sleep 0.2; done
    # The first to end has been told that all is done, or has failed. The others may still evaluate,
    # write and say goodbye, or wait for one that never comes.
    leave_time 30 "$server"
    leave_time 10 "${processes[@]:1}"
    for worker in "${!processes[@]}"; do
        wait "${processes[worker]}" || {
            local status=$? who=worker-$worker
            if ((worker == 0)); then who=server; fi
            tail -n 5 "$out/$who.log" >&2
            echo "cluster.sh: $who ended with status $status; see $out/$who.log" >&2
            # A server may refuse settings, with the status of a usage error, after it has begun to listen.
            if ((worker == 0 && status == 2)); then failed=2; else failed=$((failed == 2 ? 2 : 1)); fi
        }
    done
    return "$failed"
}

touch "$work"/{delays,invalid,qdiscs}
make_network
shape_all
probe_all before || stop_if_invalid
status=0
run_job || status=$?
if [[ $self_test_when == after ]]; then shape "$self_test_worker" up "$self_test_extra"; fi
probe_all after || true
((status == 0)) || { describe; exit "$status"; }
stop_if_invalid

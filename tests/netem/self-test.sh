#!/usr/bin/env bash
# Tests cluster.sh itself: links in pstrain's words, the check of the delays, clean-up whatever happens.
# Where the kernel has no netem: tests/netem/vm.sh --out DIR OUT=DIR tests/netem/self-test.sh
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/netem/link.sh
source "$here/link.sh"
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
wrong=0

# expect NAME WANTED FOUND
expect() {
    if [[ $3 == "$2" ]]; then
        echo "ok: $1"
    else
        echo "WRONG: $1: wanted '$2', found '$3'"
        wrong=$((wrong + 1))
    fi
}

### Links

words() {
    link_read "$1" "$2" "$3" && link_netem 0
}

text='delay=5ms 1.delay=1ms 2.delay=0.1s 2.jitter=10ms 2.distribution=normal 2.down.delay=3ms delay=7ms server.rate=1gbit'
expect "a numbered item wins over one for all" "delay 1ms" "$(words "$text" 1 up)"
expect "jitter and distribution" "delay 0.1s 10ms distribution normal" "$(words "$text" 2 up)"
expect "the later of two items wins, 'all' is every worker" "delay 7ms" "$(words "$text" 3 up)"
expect "without a direction it is the egress" "" "$(words "$text" 1 down)"
expect "the other direction" "delay 3ms" "$(words "$text" 2 down)"
expect "the server's link goes both ways" "rate 1gbit rate 1gbit" "$(words "$text" server up) $(words "$text" server down)"
expect "loss and rate" "delay 500us loss random 1% rate 10mbit" "$(words "all.loss=1% rate=10mbit delay=500us" 1 up)"
expect "uniform jitter is netem's own" "delay 0ms 2ms" "$(words "jitter=2ms distribution=uniform" 1 up)"
LINK=([delay]=1.5ms)
expect "a delay made longer" "delay 2000us" "$(link_netem 500)"
expect "none" "" "$(words none 1 up)"
for bad in delay delay=5 delay=x 0.delay=1ms 1.sideways.delay=1ms rate=10mbps loss=1 distribution=cauchy outage=1s+1s latency=1ms slow-start=off; do
    expect "'$bad' is refused" refused "$(words "$bad" 1 up 2>/dev/null && echo accepted || echo refused)"
done

### Runs

base=(--data synthetic:20000 --batch-size 128 --aggregation sum --consistency asp)
job=("${base[@]}" --epochs 1 --learning-rate 0.01)

# cluster NAME ARGUMENT...: runs one, and leaves its status in $status.
cluster() {
    local name=$1
    shift
    status=0
    timeout -k 10 120 "$here/cluster.sh" --out "$out/$name" --overwrite "$@" >"$out/$name.log" 2>&1 || status=$?
}

left_behind() {
    # Namespaces vanish as soon as their last process is gone, their devices soon after.
    sleep 1
    ip netns list
    ip -o link show | grep -v ' lo: ' || true
    pgrep -x pstrain || true
}
before=$(left_behind)

cluster good --link "1.delay=1ms 2.delay=20ms" -- "${job[@]}"
expect "a run with the delays asked for is valid" "0 true" "$status $(jq .valid "$out/good/netem.json")"
expect "both workers took part" 2 "$(jq '[.workers[] | select(.updates > 0)] | length' "$out/good/summary.json")"
expect "nothing is left behind" "$before" "$(left_behind)"

cluster twice --link "1.delay=1ms" -- "${job[@]}"
status=0
"$here/cluster.sh" --out "$out/twice" -- "${job[@]}" 2>/dev/null || status=$?
expect "a folder with results is not overwritten unasked" 2 "$status"

export NETEM_SELF_TEST=before:2:5ms
cluster wrong-before --link "1.delay=1ms 2.delay=20ms" -- "${job[@]}"
expect "a delay that is wrong from the start: invalid" "3 false" "$status $(jq .valid "$out/wrong-before/netem.json")"
expect "the reason" "worker 2, before the run" "$(cut -d: -f1 "$out/wrong-before/INVALID")"
expect "the job was not run" no "$([[ -e $out/wrong-before/summary.json ]] && echo yes || echo no)"
export NETEM_SELF_TEST=after:1:1ms
cluster wrong-after --link "1.delay=1ms 2.delay=20ms" -- "${job[@]}"
expect "a delay that is wrong at the end: invalid" "3 worker 1, after the run" "$status $(cut -d: -f1 "$out/wrong-after/INVALID")"
unset NETEM_SELF_TEST
expect "nothing is left behind by invalid runs" "$before" "$(left_behind)"

cluster failing --link "1.delay=1ms" -- "${base[@]}" --epochs 1 --learning-rate 1e9
expect "a job that fails" 1 "$status"
cluster refused --link "3.delay=1ms" -- "${job[@]}"
expect "a link of a worker that there is not" 2 "$status"
cluster refused-setting -- --consistency sometimes
expect "a setting that is refused" 2 "$status"
expect "nothing is left behind by failures" "$before" "$(left_behind)"

# A job file's link is netem's.
printf 'link = "1.delay=3ms 2.down.delay=6ms"\nepochs = 1\nconsistency = "asp"\n' >"$out/job.toml"
cluster job-file --job "$out/job.toml" -- --batch-size 128
expect "the links of a job file" "0 3 6" \
    "$status $(jq -r '[.round_trips[] | select(.when == "before") | .asked_ms] | map(round) | join(" ")' "$out/job-file/netem.json")"

cluster shaped --shaped --job "$out/job.toml" -- --batch-size 128
expect "links that pstrain shapes itself: none for netem" "0 0 0" \
    "$status $(jq -r '[.round_trips[] | select(.when == "before") | .asked_ms] | map(round) | join(" ")' "$out/shaped/netem.json")"
expect "pstrain has them" "1.delay=3ms 2.down.delay=6ms" "$(sed -nE 's/^link = "([^"]*)".*/\1/p' "$out/shaped/job.toml")"
cluster refused-shaped --shaped --link "1.delay=1ms" -- "${job[@]}"
expect "links for both are refused" 2 "$status"

cluster jitter --link "delay=20ms jitter=5ms distribution=normal server.rate=100mbit 2.down.delay=10ms" -- "${job[@]}"
expect "jitter, a shared rate, and a delay on the way back" "0 true" "$status $(jq .valid "$out/jitter/netem.json")"

# interrupt SIGNAL: sends it to a run that trains, and waits.
interrupt() {
    local process
    # In the background a shell makes its children deaf to SIGINT: give them their ears back.
    env --default-signal=INT "$here/cluster.sh" --out "$out/signal-$1" --overwrite --link "delay=50ms" -- "${base[@]}" --epochs 100 >"$out/signal-$1.log" 2>&1 &
    process=$!
    for _ in {1..600}; do
        [[ ! -s $out/signal-$1/worker-2.log ]] || break
        sleep 0.1
    done
    sleep 1
    kill "-$1" "$process"
    status=0
    wait "$process" || status=$?
}
interrupt INT
expect "SIGINT" 130 "$status"
expect "nothing is left behind after SIGINT" "$before" "$(left_behind)"
interrupt TERM
expect "SIGTERM" 143 "$status"
expect "nothing is left behind after SIGTERM" "$before" "$(left_behind)"

# Long delays: their tolerance has room for what two runs do to each other on one processor.
"$here/cluster.sh" --out "$out/one" --overwrite --link "delay=100ms" -- "${job[@]}" >"$out/one.log" 2>&1 &
first=$!
cluster two --link "delay=200ms" -- "${job[@]}"
wait "$first" || true
expect "two runs at a time" "0 true true" "$status $(jq .valid "$out/one/netem.json") $(jq .valid "$out/two/netem.json")"
expect "nothing is left behind by two" "$before" "$(left_behind)"

((wrong == 0)) || { echo "$wrong wrong; see $out"; exit 1; }
echo "all good"

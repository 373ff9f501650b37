# shellcheck shell=bash
# What the scripts of the figures share: settings, the binary, running a cell (one combination of
# settings) with its repetitions, and the table. For sourcing.
export LC_ALL=C
: "${figure:?the name of the script that sources this}"

# shellcheck source=tests/netem/link.sh
source "$(dirname "${BASH_SOURCE[0]}")/link.sh"

figure_fail() {
    echo "$figure: $*" >&2
    exit 2
}

# figure_usage WHAT EPOCHS [FURTHER]: the settings, with this figure's number of epochs.
figure_usage() {
    cat <<TEXT
usage: $figure

$1
Each worker's delay is on its egress, by tc netem. Needs root; see README.md.

environment:
  EPOCHS   passes over the data               (default $2)
  REPS     repetitions, seeds 1 to REPS       (default 1; the source has 20)
  DATA     NSL-KDD file or folder             (default synthetic, the shipped data)
  OUT      results, kept and continued        (default results/netem/${figure%.sh})
  COMPUTE  what a mini-batch takes            (default 4.5ms; measured: this machine's own)
  PSTRAIN  the binary                         (default target/release/pstrain, built if missing)
${3:+$3
}
exit status: 0 done · 1 a run failed · 2 usage or environment · 3 a run is not valid
TEXT
}

# figure_start EPOCHS: reads the settings and finds or builds the binary.
figure_start() {
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    epochs=${EPOCHS:-$1} reps=${REPS:-1} data=${DATA:-synthetic} compute=${COMPUTE:-4.5ms}
    [[ $epochs =~ ^[1-9][0-9]*$ ]] || figure_fail "EPOCHS='$epochs' is not a positive number"
    [[ $reps =~ ^[1-9][0-9]*$ ]] || figure_fail "REPS='$reps' is not a positive number"
    [[ $compute =~ ^([0-9.]+(us|ms|s)|measured)$ ]] || figure_fail "COMPUTE='$compute' is neither a time such as 4.5ms nor 'measured'"
    if [[ $data != synthetic* ]]; then
        [[ -r $data ]] || figure_fail "cannot read DATA=$data"
        data=$(realpath "$data")
    fi
    command -v jq >/dev/null || figure_fail "no jq: install the package jq"
    [[ $(id -u) = 0 ]] || figure_fail "network namespaces need root: run it with sudo"
    out=${OUT:-$root/results/netem/${figure%.sh}}
    figure_binary
    common=(--workers 2 --optimizer sgd --learning-rate 0.01 --batch-size 128 --aggregation sum
        --budget global --data "$data" --epochs "$epochs")
    if [[ $compute != measured ]]; then common+=(--compute "$compute"); fi
    failed=0 invalid=0 cells=()
}

figure_binary() {
    local default=${CARGO_TARGET_DIR:-$root/target}/release/pstrain build=(cargo build --release --locked)
    if [[ -z ${PSTRAIN:-} && ! -x $default ]]; then
        echo "$figure: building $default"
        # As the user who called sudo: root may have no Rust, and should own nothing in target/.
        if [[ -n ${SUDO_USER:-} ]]; then
            sudo -iu "$SUDO_USER" "--chdir=$root" "${build[@]}"
        else
            (cd "$root" && "${build[@]}")
        fi || figure_fail "the build failed: build it with 'cargo build --release', or set PSTRAIN"
    fi
    export PSTRAIN=${PSTRAIN:-$default}
    command -v "$PSTRAIN" >/dev/null || figure_fail "no pstrain binary at PSTRAIN=$PSTRAIN"
}

# figure_cell CONSISTENCY PARTITION DELAY1_MS DELAY2_MS: runs this cell's repetitions, those left over
# from an earlier call only.
figure_cell() {
    local cell=$1-$2-$3ms-$4ms rep folder status link
    link="1.delay=$3ms 2.delay=$4ms"
    cells+=("$1 $2 $3 $4 $cell")
    for ((rep = 1; rep <= reps; rep++)); do
        folder=$out/$cell/rep-$rep
        if [[ -e $folder/done ]] && [[ $(<"$folder/done") == "$(figure_key)" ]]; then continue; fi
        rm -f "$folder/done"
        printf '%s: %s, repetition %d of %d, about %s\n' "$figure" "$cell" "$rep" "$reps" \
            "$(figure_closed_form "$1" "$3" "$4" "$(figure_batches)")"
        status=0
        "$root/tests/netem/cluster.sh" --out "$folder" --overwrite --link "$link" -- \
            "${common[@]}" --consistency "$1" --partition "$2" --seed "$rep" || status=$?
        case $status in
        0) figure_key >"$folder/done" ;;
        1) failed=1 ;;
        3) invalid=1 ;;
        *) exit "$status" ;;
        esac
        figure_simulate "$folder" --link "$link" "${common[@]}" --consistency "$1" --partition "$2" --seed "$rep"
    done
}

# What must be the same for a run to be kept: all that cells do not say themselves.
figure_key() {
    echo "${common[*]}"
}

# Mini-batches of a run: the training part is three quarters of the 125,973 rows.
figure_batches() {
    awk -v epochs="$epochs" 'BEGIN { print int((epochs * 94480 + 127) / 128) }'
}

# figure_closed_form CONSISTENCY DELAY1_MS DELAY2_MS BATCHES: how long the network and the compute time
# alone take: t_i = compute + delay; a synchronous round waits for the slower, else the rates add up.
figure_closed_form() {
    REPLY=0
    if [[ $compute != measured ]]; then link_us "$compute"; fi
    awk -v mode="$1" -v a="$2" -v b="$3" -v batches="$4" -v c="$REPLY" 'BEGIN {
        a += c / 1000; b += c / 1000
        slower = a > b ? a : b
        printf "%.2f s\n", (mode == "bsp" ? batches / 2 * slower : batches / (1 / a + 1 / b)) / 1000
    }'
}

# figure_simulate FOLDER SETTING...: the same job in virtual time.
figure_simulate() {
    local folder=$1
    shift
    if [[ $compute == measured ]]; then return; fi
    "$PSTRAIN" simulate --json "$@" >"$folder/simulate.json" 2>"$folder/simulate.log" || {
        rm -f "$folder/simulate.json"
        echo "$figure: no prediction by virtual time: $(tail -n 1 "$folder/simulate.log")" >&2
    }
}

# figure_means FILE...: means over runs: time, accuracy, staleness, worker 1's share, mini-batches.
figure_means() {
    if (($# == 0)); then echo "- - - - 0"; return; fi
    jq -rs 'def mean(f): map(f) | add / length;
        def fixed(f; digits): pow(10; digits) as $unit | mean(f) * $unit | round / $unit;
        [fixed(.time_s; 2), fixed(.accuracy; 4), fixed(.staleness.mean; 3),
         fixed(.workers | min_by(.id).share; 3), fixed(.batches.applied; 0)] | join(" ")' "$@"
}

# figure_finish: the table, and the exit status.
figure_finish() {
    local line consistency partition first second cell valid files predicted
    {
        printf '%-5s %-13s %-12s | %9s %8s %9s %7s | %9s %8s %9s %7s | %11s | %s\n' \
            '' '' 'delay, ms' 'netem' '' '' '' 'virtual' '' '' '' 'closed form' ''
        printf '%-5s %-13s %5s %6s | %9s %8s %9s %7s | %9s %8s %9s %7s | %11s | %s\n' \
            mode partition '1' '2' 'time, s' accuracy staleness 'share 1' 'time, s' accuracy staleness 'share 1' 'time' 'valid'
        for line in "${cells[@]}"; do
            read -r consistency partition first second cell <<<"$line"
            files=() predicted=()
            for ((rep = 1; rep <= reps; rep++)); do
                if [[ -e $out/$cell/rep-$rep/done ]]; then files+=("$out/$cell/rep-$rep/summary.json"); fi
                if [[ -e $out/$cell/rep-$rep/simulate.json ]]; then predicted+=("$out/$cell/rep-$rep/simulate.json"); fi
            done
            valid=${#files[@]}
            read -r -a files < <(figure_means "${files[@]}")
            read -r -a predicted < <(figure_means "${predicted[@]}")
            printf '%-5s %-13s %5s %6s | %9s %8s %9s %7s | %9s %8s %9s %7s | %11s | %s\n' \
                "$consistency" "$partition" "$first" "$second" "${files[@]:0:4}" "${predicted[@]:0:4}" \
                "$(figure_closed_form "$consistency" "$first" "$second" "${files[4]}")" "$valid of $reps"
        done
    } | tee "$out/table.txt"
    if [[ -n ${SUDO_UID:-} ]]; then chown -R "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$out"; fi
    echo "share 1: worker 1's share of the updates. Only valid runs are in the means. Results: $out"
    if ((failed)); then exit 1; fi
    if ((invalid)); then exit 3; fi
}

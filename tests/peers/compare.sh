#!/usr/bin/env bash
# Runs pstrain, a plain PyTorch loop and a Ray parameter server on one task and prints a Markdown table.
set -euo pipefail
# The clock below and the tables are read by programs: a decimal comma would break both.
export LC_ALL=C

usage() {
    cat <<'TEXT'
usage: compare.sh [BATCH...]          (default: 32 128; samples of a mini-batch, per worker)

settings, by environment variable:
  PSTRAIN       binary                       (default target/release/pstrain of this repository)
  PSTRAIN_ARGS  further options for `pstrain run`
  PYTHON        with requirements.txt        (default python3)
  DATA          NSL-KDD file, plain/.gz/.xz  (default: made by `pstrain data synth`)
  WORKERS       of pstrain and Ray           (default 2)
  EPOCHS        of each run                  (default 20)
  RAY_SECONDS   where a Ray run is cut short (default 20)
  REPS          repetitions                  (default 3)
  OUT           where to keep every run, one JSON object a line (default: not kept)
TEXT
}

fail() {
    echo "compare.sh: $*" >&2
    exit 1
}

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    usage
    exit 0
fi
for batch in "$@"; do
    [[ $batch =~ ^[1-9][0-9]*$ ]] || { usage >&2; fail "'$batch' is not a batch size"; }
done

peers=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pstrain=${PSTRAIN:-$peers/../../target/release/pstrain}
python=${PYTHON:-python3}
workers=${WORKERS:-2}
epochs=${EPOCHS:-20}
ray_seconds=${RAY_SECONDS:-20}
reps=${REPS:-3}
batches=("$@")
(($# > 0)) || batches=(32 128)
read -ra pstrain_args <<<"${PSTRAIN_ARGS:-}"

command -v "$pstrain" >/dev/null ||
    fail "no pstrain binary at $pstrain: run 'cargo build --release' or set PSTRAIN"
command -v "$python" >/dev/null || fail "no $python: install Python 3.11 or set PYTHON"
for package in numpy torch ray; do
    "$python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$package') is None)" ||
        fail "$python has no $package: see README.md for the installation, or set PYTHON to the environment that has it"
done
[[ -z ${DATA:-} || -r $DATA ]] || fail "cannot read DATA=$DATA"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
runs=$work/runs.jsonl
if [[ -n ${OUT:-} ]]; then
    runs=$OUT
    : >"$runs" || fail "cannot write OUT=$OUT"
fi

# All systems train on the same plain file, whatever compression the given one has.
csv=$work/data.csv
case ${DATA:-} in
    '') "$pstrain" data synth --out "$csv" >&2 || fail "'pstrain data synth' failed; set DATA to an NSL-KDD file" ;;
    *.xz) xz -dc "$DATA" >"$csv" || fail "cannot unpack $DATA: is xz installed?" ;;
    *.gz) gzip -dc "$DATA" >"$csv" || fail "cannot unpack $DATA: is gzip installed?" ;;
    *) cp "$DATA" "$csv" ;;
esac
npz=$work/data.npz
"$python" "$peers/prepare.py" "$csv" "$npz" || fail "prepare.py could not read the data"

# measure SYSTEM BATCH COMMAND...: runs the command, which prints one JSON object, and notes the clock around it.
measure() {
    local system=$1 batch=$2 started ended output
    shift 2
    echo "  $system, batch $batch" >&2
    started=$EPOCHREALTIME
    output=$("$@" 2>"$work/stderr") || {
        tail -n 20 "$work/stderr" >&2
        fail "$system failed: $*"
    }
    ended=$EPOCHREALTIME
    [[ $output == *'{'* ]] || fail "$system printed no JSON object: $*"
    printf '{"system": "%s", "batch": %s, "epochs": %s, "started": %s, "ended": %s, "result": %s}\n' \
        "$system" "$batch" "$epochs" "$started" "$ended" "${output//$'\n'/ }" >>"$runs"
}

# Repetitions outermost: what drifts on the machine then hits every system alike.
for ((rep = 1; rep <= reps; rep++)); do
    echo "repetition $rep of $reps" >&2
    for batch in "${batches[@]}"; do
        for transport in memory unix tcp; do
            measure "pstrain-$transport" "$batch" "$pstrain" run --json --quiet --transport "$transport" \
                --workers "$workers" --batch-size "$batch" --epochs "$epochs" --data "$csv" \
                ${pstrain_args[@]+"${pstrain_args[@]}"}
        done
        measure pytorch-loop "$batch" "$python" "$peers/pytorch_loop.py" \
            --data "$npz" --batch "$batch" --epochs "$epochs" --seed "$rep"
        for mode in sync async; do
            measure "ray-$mode" "$batch" "$python" "$peers/ray_ps.py" --mode "$mode" --workers "$workers" \
                --data "$npz" --batch "$batch" --epochs "$epochs" --seconds "$ray_seconds" --seed "$rep"
        done
    done
done

"$python" "$peers/table.py" "$runs"

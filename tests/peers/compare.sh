#!/usr/bin/env bash
# Runs pstrain, with its own model and with a PyTorch module, and its peers on one job, in turns, and prints Markdown
# tables. Peers: a Ray parameter server, torch.distributed over Gloo, MXNet's kvstore (ps-lite), Flower, and the plain
# PyTorch loop.
set -euo pipefail
# The clock below and the tables are read by programs: a decimal comma would break both.
export LC_ALL=C

usage() {
    cat <<'TEXT'
usage: compare.sh [BATCH...]          (default: 32 128; samples of a mini-batch, per worker; none: no training)

settings, by environment variable:
  PSTRAIN       binary                       (default target/dist/pstrain of this repository)
  PSTRAIN_ARGS  further options for pstrain's runs
  PYTHON        with requirements.txt        (default python3); peers that it lacks are skipped
  MXNET_PYTHON  with requirements-mxnet.txt  (default: none); without it MXNet is skipped
  DATA          NSL-KDD file, plain/.gz/.xz  (default: made by `pstrain data synth`)
  WORKERS       of all systems               (default 2)
  EPOCHS        of each run                  (default 20)
  PEER_SECONDS  where a peer's run is cut short (default 20)
  REPS          repetitions                  (default 3)
  ONLY          the systems whose names match this regular expression, such as 'PyTorch|Ray' (default: all)
  SIZES         of messages to move, of 8KB 1MB 16MB 100MB (default all; none: no such table)
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
    [[ $batch =~ ^[1-9][0-9]*$ || $* == none ]] || { usage >&2; fail "'$batch' is not a batch size"; }
done

peers=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pstrain=${PSTRAIN:-$peers/../../target/dist/pstrain}
python=${PYTHON:-python3}
mxnet_python=${MXNET_PYTHON:-}
workers=${WORKERS:-2}
epochs=${EPOCHS:-20}
peer_seconds=${PEER_SECONDS:-20}
reps=${REPS:-3}
only=${ONLY:-}
batches=("$@")
(($# > 0)) || batches=(32 128)
[[ $* != none ]] || batches=()
read -ra sizes <<<"${SIZES:-8KB 1MB 16MB 100MB}"
read -ra pstrain_args <<<"${PSTRAIN_ARGS:-}"

# How many values of 4 bytes a message of that size has, and how often it is moved in a run.
declare -A values=([8KB]=2084 [1MB]=262144 [16MB]=4194304 [100MB]=26214400)
declare -A moves=([8KB]=6000 [1MB]=300 [16MB]=200 [100MB]=60)
[[ ${sizes[*]} != none ]] || sizes=()
for size in "${sizes[@]}"; do
    [[ -n ${values[$size]:-} ]] || fail "SIZES: '$size' is none of 8KB, 1MB, 16MB and 100MB"
done

command -v "$pstrain" >/dev/null ||
    fail "no pstrain binary at $pstrain: run 'cargo build --profile dist' or set PSTRAIN"
export PSTRAIN=$pstrain
command -v "$python" >/dev/null || fail "no $python: install Python 3.11 or set PYTHON"
[[ -z $mxnet_python ]] || command -v "$mxnet_python" >/dev/null || fail "no $mxnet_python, which MXNET_PYTHON names"
declare -A has=()
skipped=() reasons=()

# look_for PACKAGE PYTHON SETTING: notes whether that Python has the package. SETTING names the Python.
look_for() {
    local package=$1 its_python=$2 setting=$3
    if [[ -z $its_python ]]; then
        reasons+=("$setting is not set")
    elif "$its_python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$package') is None)"; then
        has[$package]=1
        return
    else
        reasons+=("$its_python has no such package")
    fi
    skipped+=("$package")
}
for package in numpy torch ray flwr; do look_for "$package" "$python" PYTHON; done
look_for mxnet "$mxnet_python" MXNET_PYTHON
# All peers but MXNet compute with PyTorch, and all on arrays that numpy reads and PYTHON prepares.
if [[ -z ${has[numpy]:-} ]]; then
    has=()
elif [[ -z ${has[torch]:-} ]]; then
    unset 'has[ray]' 'has[flwr]'
fi
for i in "${!skipped[@]}"; do
    printf '\nSKIPPED: what needs %s: %s; README.md says how to install it\n\n' "${skipped[i]}" "${reasons[i]}" >&2
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
if [[ -n ${has[numpy]:-} ]]; then
    "$python" "$peers/prepare.py" "$csv" "$npz" || fail "prepare.py could not read the data"
fi

# measure KIND SIZE SYSTEM COMMAND...: runs the command, which prints one JSON object, and notes it with what
# was measured from outside. KIND is sync, async or bytes; SIZE a batch or the size of a message. A command
# that fails is tried a second time: on a busy machine Ray may give up while it starts.
measure() {
    local kind=$1 size=$2 system=$3 output attempt
    shift 3
    [[ -z $only || $system =~ $only ]] || return 0
    echo "  $size, $kind: $system" >&2
    for attempt in 1 2; do
        if output=$("$python" "$peers/measured.py" "$@" 2>"$work/stderr"); then break; fi
        tail -n 20 "$work/stderr" >&2
        echo "compare.sh: $system failed, attempt $attempt of 2: $*" >&2
        ((attempt < 2)) || fail "given up; with OUT set, table.py shows what there is until here"
    done
    printf '{"repetition": %s, "kind": "%s", "size": "%s", "system": "%s", "workers": %s, "run": %s}\n' \
        "$rep" "$kind" "$size" "$system" "$its_workers" "$output" >>"$runs"
}

# compare_jobs BATCH: the job by all systems.
compare_jobs() {
    local batch=$1 mode transport its_workers=$workers
    local ours=(--workers "$workers" --epochs "$epochs" --data "$csv" --batch-size "$batch")
    ours+=(${pstrain_args[@]+"${pstrain_args[@]}"})
    local theirs=(--data "$npz" --batch "$batch" --epochs "$epochs" --seconds "$peer_seconds" --seed "$rep")
    local processes=$((workers + 1))
    measure sync "$batch" "pstrain, $processes processes, TCP" \
        "$peers/pstrain_processes.sh" "$pstrain" "${ours[@]}" --consistency bsp
    for transport in tcp unix memory; do
        measure sync "$batch" "pstrain, 1 process, $transport" \
            "$pstrain" run --json --quiet --transport "$transport" "${ours[@]}" --consistency bsp
    done
    measure async "$batch" "pstrain, $processes processes, TCP" \
        "$peers/pstrain_processes.sh" "$pstrain" "${ours[@]}" --consistency asp
    if [[ -n ${has[torch]:-} ]]; then
        its_workers=1 measure sync "$batch" "PyTorch loop, 1 process, no server" \
            "$python" "$peers/pytorch_loop.py" "${theirs[@]}"
        measure sync "$batch" "PyTorch loops, $workers processes, nothing sent" \
            "$python" "$peers/pytorch_loop.py" --processes "$workers" "${theirs[@]}"
        for mode in sync async; do
            measure "$mode" "$batch" "pstrain + PyTorch" \
                "$python" "$peers/pstrain_pytorch.py" --mode "$mode" --workers "$workers" "${theirs[@]}"
        done
        measure sync "$batch" "PyTorch DistributedDataParallel, Gloo" \
            "$python" "$peers/gloo_ddp.py" --workers "$workers" "${theirs[@]}"
        measure sync "$batch" "PyTorch + Gloo all-reduce" \
            "$python" "$peers/gloo_allreduce.py" --workers "$workers" "${theirs[@]}"
        for mode in sync async; do
            measure "$mode" "$batch" "PyTorch + Gloo parameter server" \
                "$python" "$peers/gloo_ps.py" --mode "$mode" --workers "$workers" "${theirs[@]}"
        done
    fi
    if [[ -n ${has[ray]:-} ]]; then
        for mode in sync async; do
            measure "$mode" "$batch" "Ray + PyTorch" \
                "$python" "$peers/ray_ps.py" --mode "$mode" --workers "$workers" "${theirs[@]}"
        done
    fi
    if [[ -n ${has[mxnet]:-} ]]; then
        for mode in sync async; do
            measure "$mode" "$batch" "MXNet kvstore (ps-lite)" \
                "$mxnet_python" "$peers/mxnet_kvstore.py" --mode "$mode" --workers "$workers" "${theirs[@]}"
        done
    fi
    if [[ -n ${has[flwr]:-} ]]; then
        measure sync "$batch" "Flower + PyTorch" \
            "$python" "$peers/flower_fedsgd.py" --workers "$workers" "${theirs[@]}"
    fi
}

# compare_bytes SIZE: messages of that size between two processes, without any training.
compare_bytes() {
    local size=$1 its_workers=1
    local count=${moves[$size]} examples_a_move=1
    local moved=(--values "${values[$size]}" --count "$count")
    # An epoch of 300 examples or more, so that the data are never the smallest there may be.
    while ((count * examples_a_move < 300)); do examples_a_move=$((examples_a_move + 1)); done
    local rows=$((count * examples_a_move * 4 / 3))
    measure bytes "$size" "pstrain push-pull" "$peers/pstrain_processes.sh" "$pstrain" --workers 1 --consistency asp \
        --model "timing:${values[$size]}" --data "synthetic:$rows" --batch-size "$examples_a_move" --epochs 1 --lease 1m
    if [[ -n ${has[torch]:-} ]]; then
        measure bytes "$size" "Gloo all-reduce" "$python" "$peers/gloo_bytes.py" "${moved[@]}"
        measure bytes "$size" "Gloo all-reduce, gradient written and applied" \
            "$python" "$peers/gloo_bytes.py" --apply "${moved[@]}"
    fi
    if [[ -n ${has[mxnet]:-} ]]; then
        measure bytes "$size" "MXNet kvstore (ps-lite), values stored" \
            "$mxnet_python" "$peers/mxnet_bytes.py" "${moved[@]}"
        measure bytes "$size" "MXNet kvstore (ps-lite), gradient written and applied" \
            "$mxnet_python" "$peers/mxnet_bytes.py" --apply "${moved[@]}"
    fi
}

# Repetitions outermost: what drifts on the machine then hits every system alike.
for ((rep = 1; rep <= reps; rep++)); do
    echo "repetition $rep of $reps" >&2
    for batch in "${batches[@]}"; do compare_jobs "$batch"; done
    if [[ -n ${has[torch]:-}${has[mxnet]:-} ]]; then
        for size in "${sizes[@]}"; do compare_bytes "$size"; done
    fi
done

versions="$("$pstrain" --version | head -n 1)"
for package in torch ray flwr mxnet; do
    its_python=$python
    [[ $package != mxnet ]] || its_python=$mxnet_python
    [[ -n ${has[$package]:-} ]] || continue
    versions+=", $package $("$its_python" -c "import importlib.metadata as m; print(m.version('$package'))")"
done
echo "$(nproc) cores, $workers workers; $versions; medians of $reps, in brackets the range."
if ((${#skipped[@]} > 0)); then echo "Not installed, so left out: ${skipped[*]}."; fi
echo
"$python" "$peers/table.py" "$runs"

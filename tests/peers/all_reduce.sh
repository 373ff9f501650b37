#!/usr/bin/env bash
# Runs all-reduces of pstrain, of Gloo and of bare sockets that move the same bytes, and averagings of hivemind, in
# turns, and prints a Markdown table.
set -euo pipefail
# The tables are read by programs: a decimal comma would break them.
export LC_ALL=C

usage() {
    cat <<'TEXT'
usage: all_reduce.sh

settings, by environment variable:
  PSTRAIN     binary                        (default target/dist/pstrain of this repository)
  PYTHON      with requirements.txt         (default python3); Gloo is skipped without torch
  HIVEMIND_PYTHON  with requirements-hivemind.txt  (default: none); without it hivemind is skipped
  RANKS       numbers of processes          (default '2 4')
  SIZES       of 8KB 64KB 256KB 1MB 4MB 16MB 100MB  (default 8KB 1MB 16MB 100MB)
  ALGORITHMS  of pstrain                    (default 'ring halving-doubling all-to-all')
  REPS        repetitions                   (default 5)
  LENGTH      all-reduces of a run, as a multiple of the default number (default 1)
  OUT         where to keep every run, one JSON object a line (default: not kept)
TEXT
}

fail() {
    echo "all_reduce.sh: $*" >&2
    exit 1
}

if (($# > 0)); then
    usage
    [[ $1 == -h || $1 == --help ]] || exit 2
    exit 0
fi

peers=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pstrain=${PSTRAIN:-$peers/../../target/dist/pstrain}
python=${PYTHON:-python3}
hivemind_python=${HIVEMIND_PYTHON:-}
reps=${REPS:-5}
length=${LENGTH:-1}
read -ra ranks <<<"${RANKS:-2 4}"
read -ra sizes <<<"${SIZES:-8KB 1MB 16MB 100MB}"
read -ra algorithms <<<"${ALGORITHMS:-ring halving-doubling all-to-all}"

# How many values of 4 bytes a vector of that size has, and how often it is reduced in a run.
declare -A values=([8KB]=2084 [64KB]=16384 [256KB]=65536 [1MB]=262144 [4MB]=1048576 [16MB]=4194304 [100MB]=26214400)
declare -A moves=([8KB]=4000 [64KB]=2000 [256KB]=800 [1MB]=400 [4MB]=120 [16MB]=60 [100MB]=20)
for size in "${sizes[@]}"; do
    [[ -n ${values[$size]:-} ]] || fail "SIZES: '$size' is none of 8KB, 64KB, 256KB, 1MB, 4MB, 16MB and 100MB"
done
command -v "$pstrain" >/dev/null ||
    fail "no pstrain binary at $pstrain: run 'cargo build --profile dist' or set PSTRAIN"
command -v "$python" >/dev/null || fail "no $python: install Python 3.11 or set PYTHON"
has() { "$1" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$2') is None)"; }
has "$python" numpy || fail "$python has no numpy: README.md says how to install it"
has_torch=''
if has "$python" torch; then
    has_torch=1
else
    printf '\nSKIPPED: Gloo: %s has no torch; README.md says how to install it\n\n' "$python" >&2
fi
if [[ -z $hivemind_python ]]; then
    printf '\nSKIPPED: hivemind: HIVEMIND_PYTHON is not set; README.md says how to install it\n\n' >&2
else
    has "$hivemind_python" hivemind || fail "$hivemind_python, which HIVEMIND_PYTHON names, has no hivemind"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
runs=$work/runs.jsonl
if [[ -n ${OUT:-} ]]; then
    runs=$OUT
    : >"$runs" || fail "cannot write OUT=$OUT"
fi

# measure RANKS SIZE SYSTEM COMMAND...: runs the command, which prints one JSON object, and notes it.
measure() {
    local its_ranks=$1 size=$2 system=$3 output
    shift 3
    echo "  $its_ranks ranks, $size: $system" >&2
    output=$("$python" "$peers/measured.py" "$@" 2>"$work/stderr") || {
        tail -n 20 "$work/stderr" >&2
        fail "$system failed: $*"
    }
    printf '{"repetition": %s, "kind": "all-reduce", "size": "%s", "ranks": %s, "system": "%s", "workers": %s, "run": %s}\n' \
        "$rep" "$size" "$its_ranks" "$system" "$its_ranks" "$output" >>"$runs"
}

# compare RANKS SIZE: all-reduces of that size.
compare() {
    local its_ranks=$1 size=$2 algorithm examples=1
    local count=$((moves[$size] * length)) of=${values[$2]}
    local moved=(--values "$of" --count "$count" --ranks "$its_ranks")
    # An update has a mini-batch of each worker. The data are never the smallest there may be.
    while ((count * its_ranks * examples < 300)); do examples=$((examples + 1)); done
    local rows=$((count * its_ranks * examples * 4 / 3))
    for algorithm in "${algorithms[@]}"; do
        measure "$its_ranks" "$size" "pstrain $algorithm" "$peers/pstrain_processes.sh" "$pstrain" \
            --workers "$its_ranks" --architecture "all-reduce:$algorithm" --model "timing:$of" \
            --data "synthetic:$rows" --batch-size "$examples" --epochs 1 --lease 1m
    done
    if [[ -n $has_torch ]]; then
        measure "$its_ranks" "$size" "Gloo" "$python" "$peers/gloo_bytes.py" "${moved[@]}"
        measure "$its_ranks" "$size" "Gloo, gradient written and applied" \
            "$python" "$peers/gloo_bytes.py" --apply "${moved[@]}"
    fi
    if [[ -n $hivemind_python ]]; then
        # It makes few a second.
        local few=(--values "$of" --count $((10 * length)) --ranks "$its_ranks")
        measure "$its_ranks" "$size" "hivemind" "$hivemind_python" "$peers/hivemind_bytes.py" "${few[@]}"
        measure "$its_ranks" "$size" "hivemind, gradient written and applied" \
            "$hivemind_python" "$peers/hivemind_bytes.py" --apply "${few[@]}"
    fi
    measure "$its_ranks" "$size" "bare sockets, nothing summed" "$python" "$peers/socket_bytes.py" "${moved[@]}"
}

# Repetitions outermost: a change of the machine's load then affects all systems alike.
for ((rep = 1; rep <= reps; rep++)); do
    echo "repetition $rep of $reps" >&2
    for its_ranks in "${ranks[@]}"; do
        for size in "${sizes[@]}"; do compare "$its_ranks" "$size"; done
    done
done

versions=$("$pstrain" --version | head -n 1)
version() { "$1" -c "import importlib.metadata as m; print(m.version('$2'))"; }
[[ -z $has_torch ]] || versions+=", torch $(version "$python" torch)"
[[ -z $hivemind_python ]] || versions+=", hivemind $(version "$hivemind_python" hivemind)"
echo "$(nproc) cores; $versions; medians of $reps, in brackets the range."
echo
"$python" "$peers/table.py" "$runs"

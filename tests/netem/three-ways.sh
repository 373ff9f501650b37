#!/usr/bin/env bash
# The same jobs three ways: in virtual time, over links that pstrain shapes, and over tc netem. Prints a
# Markdown table of the times. The last two are processes in network namespaces of their own.
set -euo pipefail
# Numbers below are read by programs: a decimal comma would break them.
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..

usage() {
    cat <<'TEXT'
usage: three-ways.sh [JOB.toml...]       (default: those in tests/netem/jobs)

Each job needs `link` and `compute`, and a comment as its first line, which is its description.
Needs root and netem; without it: tests/netem/vm.sh --out results/netem tests/netem/three-ways.sh

environment:
  REPS     repetitions, seeds 1 to REPS       (default 3)
  OUT      results, kept and continued        (default results/netem/three-ways)
  PSTRAIN  the binary                         (default target/release/pstrain)

exit status: 0 done · 1 a run failed · 2 usage or environment · 3 a run is not valid
TEXT
}

fail() {
    echo "three-ways.sh: $*" >&2
    exit 2
}

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    usage
    exit 0
fi
jobs=("$@")
(($# > 0)) || jobs=("$here"/jobs/*.toml)
for job in "${jobs[@]}"; do
    [[ -r $job ]] || fail "cannot read the job $job"
    [[ $(head -n 1 "$job") == '# '* ]] || fail "$job: its first line is to be a comment that describes it"
done
reps=${REPS:-3} out=${OUT:-$root/results/netem/three-ways}
[[ $reps =~ ^[1-9][0-9]*$ ]] || fail "REPS='$reps' is not a positive number"
export PSTRAIN=${PSTRAIN:-${CARGO_TARGET_DIR:-$root/target}/release/pstrain}
command -v "$PSTRAIN" >/dev/null || fail "no pstrain binary at $PSTRAIN: run 'cargo build --release' or set PSTRAIN"
command -v jq >/dev/null || fail "no jq: install the package jq"
failed=0 invalid=0

# run_way WAY JOB FOLDER SEED: one run, its summary in FOLDER/summary.json; nothing if it is there already,
# of the same job.
run_way() {
    local way=$1 job=$2 folder=$3 seed=$4 status=0
    if [[ -e $folder/done ]] && cmp -s "$job" "$folder/done"; then return; fi
    mkdir -p "$folder"
    rm -f "$folder"/{done,summary.json}
    echo "three-ways.sh: $(basename "$job" .toml), $way, repetition $seed of $reps" >&2
    case $way in
    simulated) "$PSTRAIN" simulate --job "$job" --seed "$seed" --json --quiet >"$folder/summary.json" || status=$? ;;
    shaped) "$here/cluster.sh" --out "$folder" --overwrite --shaped --job "$job" -- --seed "$seed" || status=$? ;;
    netem) "$here/cluster.sh" --out "$folder" --overwrite --job "$job" -- --seed "$seed" || status=$? ;;
    esac
    case $status in
    0) cp "$job" "$folder/done" ;;
    1) failed=1 ;;
    3) invalid=1 ;;
    *) exit "$status" ;;
    esac
}

# figure FIELD DIGITS FILE...: median, least and greatest of a field of the summaries.
figure() {
    local field=$1 digits=$2
    shift 2
    if (($# == 0)); then echo "- - -"; return; fi
    jq -rs --argjson digits "$digits" "map($field) | sort
        | [(if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end), .[0], .[-1]]
        | map(. * pow(10; \$digits) | round / pow(10; \$digits)) | join(\" \")" "$@"
}

# Repetitions outermost: what drifts on the machine then hits all alike.
for ((rep = 1; rep <= reps; rep++)); do
    for job in "${jobs[@]}"; do
        for way in simulated shaped netem; do
            run_way "$way" "$job" "$out/$(basename "$job" .toml)/$way-$rep" "$rep"
        done
    done
done

times='' others=''
for job in "${jobs[@]}"; do
    name=$(basename "$job" .toml)
    row="| $name |" other="| $name |" predicted=''
    for way in simulated shaped netem; do
        files=()
        for ((rep = 1; rep <= reps; rep++)); do
            folder=$out/$name/$way-$rep
            if [[ -e $folder/done ]]; then files+=("$folder/summary.json"); fi
        done
        read -r middle least greatest < <(figure .time_s 2 "${files[@]}")
        row+=" $middle ($least - $greatest)"
        ((${#files[@]} == reps)) || row+=", ${#files[@]} of $reps runs valid"
        row+=" |"
        if [[ $way == simulated ]]; then
            predicted=$middle
        else
            row+=" $(awk -v a="$middle" -v b="$predicted" 'BEGIN { if (a == "-" || b == "-") print "-"; else printf "%.3f", a / b }') |"
        fi
        read -r updates _ < <(figure .updates_per_s 2 "${files[@]}")
        read -r accuracy _ < <(figure .accuracy 4 "${files[@]}")
        read -r staleness _ < <(figure .staleness.mean 3 "${files[@]}")
        other+=" $updates | $accuracy | $staleness |"
    done
    times+="$row $(head -n 1 "$job" | sed 's/^# //') |"$'\n'
    others+="$other"$'\n'
done
{
    echo "Training time in seconds: medians of $reps, in brackets the range; ratios to simulated."
    echo
    echo "| job | simulated | shaped | ratio | netem | ratio | what |"
    echo "|---|---|---|---|---|---|---|"
    echo -n "$times"
    echo
    echo "Updates a second, accuracy and mean staleness, medians of $reps:"
    echo
    echo "| job | simulated: updates/s | accuracy | staleness | shaped: updates/s | accuracy | staleness | netem: updates/s | accuracy | staleness |"
    echo "|---|---|---|---|---|---|---|---|---|---|"
    echo -n "$others"
} | tee "$out/table.md"
if ((failed)); then exit 1; fi
if ((invalid)); then exit 3; fi

#!/usr/bin/env bash
# Where the time of simulated experiments goes, by perf: a table. Needs perf, and half a GB for a build with symbols.
# Usage: tests/measure/simulation.sh DATA [EXPERIMENT [REPETITIONS]]   (default: paeleke-fig1, 6)
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
data=$(realpath "$1") experiment=${2:-paeleke-fig1} reps=${3:-6}
cd "$(dirname "$0")/../.."
command -v perf >/dev/null || { echo "simulation.sh: perf is missing" >&2; exit 3; }

# Link-time optimisation is weaker than in a release, so that functions keep their names.
export CARGO_PROFILE_DIST_LTO=thin CARGO_PROFILE_DIST_STRIP=none CARGO_PROFILE_DIST_CODEGEN_UNITS=16
target=${CARGO_TARGET_DIR:-$PWD/target}/with-symbols
cargo build --quiet --profile dist --locked --target-dir "$target" -p pstrain
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
perf record --quiet -F 299 -o "$folder/perf.data" \
    "$target/dist/pstrain" experiment run "$experiment" --data "$data" --reps "$reps" --out "$folder/out" >&2

perf report -i "$folder/perf.data" --no-children --sort sym 2>/dev/null | awk '
/^ *[0-9.]+%/ {
    share = $1 + 0
    if (/pulp::|kernels|Model::|model::loss|libm::/) what = "gradients: products, softmax, derivatives"
    # Almost nothing else is copied in pieces of known length.
    else if (/memmove|gather|Examples::row/) what = "rows of the mini-batches, collected from all over the data"
    else if (/policy::trainer::Part/) what = "the order of a pass"
    else if (/compute::evaluation/) what = "evaluations"
    else if (/(roles::(node::(server|replica)|store)|policy::(aggregate|consistency)|compute::(optim|params))|memset/)
        what = "server: aggregation, update, consistency"
    else if (/(roles::node|pstrain_wire|policy::(trainer|work)|compute::filter)/) what = "workers, messages"
    else if (/transports::|pstrain::simulate|binary_heap|btree/) what = "the simulation: agenda, links, paces"
    else if (/pstrain_data|lzma/) what = "reading the data"
    else if (/pstrain::|skia|miniz|sha2|serde|resvg|ttf|sort/) what = "records, statistics, pictures"
    else if (/\[k\]/) what = "the operating system"
    else what = "all else"
    of[what] += share
}
END { for (what in of) printf "%5.1f %%  %s\n", of[what], what }' | sort -rn

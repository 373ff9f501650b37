#!/usr/bin/env bash
# Compares auto with the best fixed policy in random cells: the experiment auto-random, with 60
# cells of another seed. With "draw" it prints only the cells, as the experiment file lists them.
# Usage: tests/measure/auto-random.sh PSTRAIN DATA SEED [CELLS] | draw SEED [CELLS]
set -euo pipefail
[ $# -ge 2 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }

# draw SEED CELLS: prints cells. Park and Miller's generator (1988) draws the same in every awk.
draw() {
    awk -v state="$1" -v cells="$2" '
    function uniform() { state = state * 48271 % 2147483647; return state / 2147483647 }
    function between(low, high) { return low + int(uniform() * (high - low + 1)) }
    function log_between(low, high) { return low * exp(uniform() * log(high / low)) }
    BEGIN {
        for (i = 0; i < 10; i++) uniform() # small seeds begin alike
        kinds = split("iid mix:0.5 mix:0.8 paper-non-iid by-class dirichlet:0.1 dirichlet:0.3 dirichlet:1", partition, " ")
        printf "[[axis]]\nname = \"cell\"\nlabel = \"Cell\"\nvalues = ["
        for (cell = 1; cell <= cells; cell++) printf "%s%d", (cell % 30 == 1 ? (cell > 1 ? ",\n    " : "\n    ") : ", "), cell
        print ",\n]\n[axis.settings]"
        for (cell = 1; cell <= cells; cell++) {
            workers = between(3, 12)
            data = partition[between(1, kinds)]
            delay = log_between(1, 100)
            far = uniform() < 0.5 ? log_between(delay, 200) : 0
            jitter = uniform() < 0.5 ? 0.1 + 0.4 * uniform() : 0
            who = between(1, workers)
            slow = uniform() < 0.5 ? log_between(1, 8) : 1
            rate = log_between(0.005, 0.2)
            momentum = uniform() < 0.25
            link = sprintf("all.delay=%.1fms", delay)
            if (jitter) link = link sprintf(" all.jitter=%.1fms", jitter * delay)
            if (far) link = link sprintf(" %d.delay=%.1fms", who, far)
            if (far && jitter) link = link sprintf(" %d.jitter=%.1fms", who, jitter * far)
            printf "%d = { workers = %d, partition = \"%s\", link = \"%s\", ", cell, workers, data, link
            if (slow > 1) printf "compute = \"%d.factor=%.1f\", ", who, slow
            printf "learning-rate = %.4f, optimizer = \"%s\" }\n", rate, momentum ? "momentum" : "sgd"
        }
    }'
}
if [ "$1" = draw ]; then
    draw "$2" "${3:-60}"
    exit
fi

data=$(realpath "$2") seed=$3 cells=${4:-60}
shipped=$(realpath "$(dirname "$0")/../../data/experiments/auto-random.toml")
# shellcheck source=tests/measure/common.sh
. "$(dirname "$0")/common.sh" "$1"
{ sed '/^name = "cell"/,$d' "$shipped" | sed '$d'; draw "$seed" "$cells"; } > grid.toml
"$pstrain" experiment run grid.toml --data "$data" --out results --quiet
cat results/tables/ratio.csv

# A cell has no ratio if no policy reaches the target there, or if auto alone misses it.
awk -F, 'NR > 1 && $2 == "unknown" { none++ }
    NR > 1 && $2 != "unknown" { if ($4 ~ />/) failed++; else { print $5; sum += log($5); count++ } }
    END { printf "%d %d %d %f\n", none, failed, count, exp(sum / count) > "/dev/stderr" }' results/tables/ratio.csv \
    2> sums | sort -g > ratios
read -r none failed count mean < sums
echo "$count cells: geometric mean $mean, median $(sed -n "$(((count + 1) / 2))p" ratios), 95th percentile" \
    "$(sed -n "$(((95 * count + 99) / 100))p" ratios), worst $(tail -n 1 ratios)"
echo "auto alone fails in $failed; no policy reaches the target in $none"

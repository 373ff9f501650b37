#!/usr/bin/env bash
# Paeleke & Karl 2023, figure 2, under real tc netem: asynchronous training of non-IID data over the
# delay of worker 2, with IID data as a control.
set -euo pipefail

figure=$(basename "${BASH_SOURCE[0]}")
# shellcheck source=tests/netem/figure.sh
source "$(dirname "${BASH_SOURCE[0]}")/figure.sh"

if (($# > 0)); then
    figure_usage "Figure 2 of Paeleke & Karl 2023: asynchronous, worker 1 at 1 ms, worker 2 at each of DELAYS, non-IID
and IID (the control). With the defaults 10 minutes a repetition." 10 \
        "  DELAYS   of worker 2, in milliseconds       (default 1 5 10 20 30 40 60 80 100)"
    [[ $1 == -h || $1 == --help ]] || exit 2
    exit 0
fi

read -r -a delays <<<"${DELAYS:-1 5 10 20 30 40 60 80 100}"
for delay in "${delays[@]}"; do
    [[ $delay =~ ^[0-9]+(\.[0-9]+)?$ ]] || figure_fail "DELAYS: '$delay' is not a number of milliseconds"
done

figure_start 10
for partition in paper-non-iid iid; do
    for delay in "${delays[@]}"; do
        figure_cell asp "$partition" 1 "$delay"
    done
done
figure_finish

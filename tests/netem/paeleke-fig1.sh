#!/usr/bin/env bash
# Paeleke & Karl 2023, figure 1, under real tc netem: synchronous and asynchronous training, IID and
# non-IID data, delays of 1 ms (worker 1) and 100 ms (worker 2).
set -euo pipefail

figure=$(basename "${BASH_SOURCE[0]}")
# shellcheck source=tests/netem/figure.sh
source "$(dirname "${BASH_SOURCE[0]}")/figure.sh"

if (($# > 0)); then
    figure_usage "Figure 1 of Paeleke & Karl 2023: {sync, async} x {IID, non-IID}, delays of 1 and 100 ms.
An epoch takes some 40 s synchronously and 4 s asynchronously; 100 epochs of all four, 2.4 hours." 100
    [[ $1 == -h || $1 == --help ]] || exit 2
    exit 0
fi

figure_start 100
for consistency in asp bsp; do
    for partition in iid paper-non-iid; do
        figure_cell "$consistency" "$partition" 1 100
    done
done
figure_finish

#!/usr/bin/env bash
# Counts the instructions of steps, pushes and simulated runs with callgrind: the counts are the
# same on a busy machine as on an idle one. Fails if a count is above its limit
# (tests/benches/instructions.rs). Needs valgrind and an x86-64 processor with AVX2, to which the
# limits apply; builds gungraun's runner if it is missing.
# Usage: instructions.sh [arguments of gungraun, as --save-baseline=before or --baseline=before]
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v valgrind >/dev/null || { echo "instructions.sh: valgrind is missing" >&2; exit 3; }
grep -qw avx2 /proc/cpuinfo 2>/dev/null || { echo "instructions.sh: the limits are for AVX2, which this processor lacks" >&2; exit 3; }

target=${CARGO_TARGET_DIR:-$PWD/target}
version=$(cargo metadata --format-version 1 --locked | grep -oE 'gungraun-runner@[0-9.]+|gungraun-runner [0-9.]+' | head -n 1 | grep -oE '[0-9.]+$')
runner=$target/tools/bin/gungraun-runner
if [[ $("$runner" --version 2>/dev/null) != *" $version" ]]; then
    cargo install --quiet --debug --locked --root "$target/tools" --version "=$version" gungraun-runner
fi
GUNGRAUN_RUNNER=$runner cargo bench --locked --profile counted -p pstrain-tests --bench instructions -- "$@"

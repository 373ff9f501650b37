#!/usr/bin/env bash
# The tests as a processor of another kind runs them, emulated by QEMU: core's own, the conformance of
# transports, the equivalence of clusters with a sequential reckoning, and the steps' allocations.
# Needs what tests/edge/build.sh needs, and qemu-user.
# Usage: tests/edge/suites.sh TARGET...
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=tests/edge/targets.sh
. tests/edge/targets.sh

for target in "$@"; do
    use_target "$target"
    cargo test -p pstrain-compute -p pstrain-policy -p pstrain-wire -p pstrain-roles \
        --lib --locked --target "$target"
    cargo test -p pstrain-tests --locked --target "$target" \
        --test suites -- conformance:: equivalence::
    cargo test -p pstrain-tests --locked --target "$target" --test steady
done

#!/usr/bin/env bash
# Trains on a Cortex-M4F without an operating system, as QEMU's mps2-an386 has it, and on this machine
# with the same program: both must come to the same parameters, bit for bit.
# Needs qemu-system-arm and `rustup target add thumbv7em-none-eabihf`.
# Usage: tests/edge/bare-metal.sh
set -euo pipefail
cd "$(dirname "$0")/../bare-metal"

target=thumbv7em-none-eabihf
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../../target}/bare-metal
cargo build --release --locked --quiet --target "$target"
cargo build --release --locked --quiet
here=$("$CARGO_TARGET_DIR/release/pstrain-bare-metal")
there=$(timeout 300 qemu-system-arm -M mps2-an386 -nographic -semihosting-config enable=on,target=native \
    -kernel "$CARGO_TARGET_DIR/$target/release/pstrain-bare-metal")
printf 'here:   %s\n' "$here"
printf 'device: %s\n' "$there"
[ "$here" = "$(head -1 <<<"$there")" ] || {
    echo "the device came to other parameters than this machine" >&2
    exit 1
}

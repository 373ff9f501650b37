#!/usr/bin/env bash
# Builds pstrain for edge nodes, small (profile `edge`, no pictures), and prints how large each is.
# Of a target ending in -musl, or with STATIC=1, the result needs no library of the system.
# Needs for each target `rustup target add TARGET`, and for ARM the compilers of Debian's packages
# gcc-aarch64-linux-gnu and gcc-arm-linux-gnueabihf (with libc6-dev-arm64-cross, libc6-dev-armhf-cross).
# Usage: tests/edge/build.sh TARGET...
#   FEATURES=psk,tls    what is in it, next to what always is
#   PROFILE=edge        another profile of Cargo.toml
set -euo pipefail
cd "$(dirname "$0")/../.."

features=${FEATURES-psk,tls}
profile=${PROFILE:-edge}
root=${CARGO_TARGET_DIR:-$PWD/target}

# shellcheck source=tests/edge/targets.sh
. tests/edge/targets.sh

for target in "$@"; do
    use_target "$target"
    cargo build -p pstrain --profile "$profile" --locked --no-default-features --features "$features" \
        --target "$target"
    bytes=$(stat -c %s "$root/$target/$profile/pstrain")
    awk '{ printf "%-32s %9d bytes, %.2f MiB\n", $1, $2, $2 / 1048576 }' <<<"$target $bytes"
done

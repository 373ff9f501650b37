#!/usr/bin/env bash
# Builds the command as `cargo install --path cli --locked` does, from an empty target, and prints the time, the size of the
# binary and the number of its crates. Fails if size or number is above its limit; lower a limit as soon as it can be.
# The time depends on the machine: compare it with the limit of 200 s on two idle cores by eye.
# Usage: tests/measure/build.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

max_mb=20
max_crates=231

cargo fetch --locked --quiet
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
begun=$SECONDS
cargo install --quiet --path cli --locked --root "$folder" --target-dir "$folder/target"
took=$((SECONDS - begun))
bytes=$(stat -c %s "$folder/bin/pstrain")
crates=$(cargo tree --package pstrain --locked --edges normal,build --prefix none --no-dedupe |
    awk '{ print $1, $2 }' | sort -u | wc -l)

printf '%-28s %6d s\n' 'cargo install' "$took"
printf '%-28s %6.1f MB, at most %d\n' 'binary' "$(bc -l <<<"$bytes / 1000000")" "$max_mb"
printf '%-28s %6d, at most %d\n' 'crates' "$crates" "$max_crates"
[ "$bytes" -le $((max_mb * 1000000)) ] && [ "$crates" -le "$max_crates" ]

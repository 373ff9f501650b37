#!/usr/bin/env bash
# Writes the book's page of each experiment from its report: docs/experiments/NAME.md, its pictures in
# docs/experiments/NAME/, and its line in docs/SUMMARY.md. Runs that results/NAME already holds are not
# repeated.
# Usage: docs/experiments/generate.sh [NAME...]
#        PSTRAIN=path/to/pstrain docs/experiments/generate.sh [NAME...]
# Without names, all pages that exist. Without PSTRAIN it builds one that knows its commit.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ -z "${PSTRAIN:-}" ]; then
    cargo build --release --locked -p pstrain
    PSTRAIN=${CARGO_TARGET_DIR:-target}/release/pstrain
fi
if [ $# = 0 ]; then
    for page in docs/experiments/*.md; do
        set -- "$@" "$(basename "$page" .md)"
    done
fi

for name; do
    "$PSTRAIN" experiment run "$name" --out "results/$name" --quiet
    rm -rf "docs/experiments/$name"
    mkdir "docs/experiments/$name"
    cp "results/$name/pictures/"*.svg "docs/experiments/$name/"
    # A picture of more bytes would make the page slow to open.
    find "docs/experiments/$name" -size +200k | grep . && exit 1
    sed "s#](pictures/#]($name/#" "results/$name/report.md" >"docs/experiments/$name.md"
    echo "docs/experiments/$name.md"
done

# The book lists the pages below the page on experiments.
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
for page in docs/experiments/*.md; do
    name=$(basename "$page" .md)
    echo "  - [$name](experiments/$name.md)"
done >"$lines"
sed -i -e '/^  - .*](experiments\/.*\.md)$/d' -e "/](experiments\.md)\$/r $lines" docs/SUMMARY.md

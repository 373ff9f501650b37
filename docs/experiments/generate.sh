#!/usr/bin/env bash
# Writes the book's page of each experiment from its report: docs/experiments/NAME.md, its pictures in
# docs/experiments/NAME/, and its line in docs/SUMMARY.md. Runs that results/NAME already holds are not
# repeated.
# Usage: docs/experiments/generate.sh [NAME...]
#        PSTRAIN=path/to/pstrain docs/experiments/generate.sh [NAME...]
# Without names, all pages that exist; osdi-delay-a9a wants a9a.xz in the folder of the repository, and
# auto-grid and auto-random want the folder nsl-kdd there.
# Without PSTRAIN it builds one that knows its commit.
set -euo pipefail
shopt -s nullglob
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
    data=()
    case $name in auto-*) data=(--data nsl-kdd) ;; esac
    "$PSTRAIN" experiment run "$name" "${data[@]}" --out "results/$name" --quiet
    rm -rf "docs/experiments/$name"
    mkdir "docs/experiments/$name"
    # Times are modelled: the kernel of the machine has no part in the results.
    # Data in this folder are named without it.
    sed -e "s#](pictures/#]($name/#" -e '/^- system: /d' -e "s#$PWD/##" "results/$name/report.md" >"docs/experiments/$name.md"
    for picture in "results/$name/pictures/"*.svg; do
        file=$(basename "$picture" .svg)
        # Curves of very many points are smaller as pixels.
        if [ "$(wc -c <"$picture")" -gt 200000 ]; then
            picture=${picture%.svg}.png
            sed -i "s#($name/$file\.svg)#($name/$file.png)#" "docs/experiments/$name.md"
        fi
        cp "$picture" "docs/experiments/$name/"
    done
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

# shellcheck shell=bash
# What the checks of deploy/ share: sourced with the binary's path. Moves to an empty folder, which goes with the
# script, and all that it started with it.

PSTRAIN=$(realpath "${1:-target/dist/pstrain}")
checkout=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
export PSTRAIN checkout
folder=$(mktemp -d)
# tidy: ends what is left, also the daemons that have put their numbers into files of the folder
tidy() {
    local pid pids
    [ -z "${cluster-}" ] || scancel --user "$(id -un)" || true
    pids=$(jobs -p; cat "$folder"/*.pid 2>/dev/null || true)
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    for pid in $pids; do while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done; done
    rm -rf "$folder"
}
trap tidy EXIT
cd "$folder" || exit

step() { printf '\n=== %s ===\n' "$*"; }
skip() { printf '\nSKIPPED: %s\n' "$*" >&2; }
fail() { printf '\nFAILED: %s\n' "$*" >&2; exit 1; }
has() { PATH=$PATH:/usr/sbin command -v "$1" >/dev/null; }

# The job of these checks, and how many workers it has.
workers=3
job=(--data synthetic:3000 --model mlp:16 --seed 7 --epochs 2)

# params FILE: the digest of the parameters that a summary tells of
params() { sed -nE 's/.*"params_sha256": ?"([0-9a-f]{64})".*/\1/p' "$1"; }

# same RESULTS: checks that a run came to the parameters of one in a single process
same() {
    if ! [ -e expected ]; then
        "$PSTRAIN" run --workers "$workers" "${job[@]}" --json --quiet >undisturbed.json
        params undisturbed.json >expected
    fi
    params "$1/summary.json" | cmp -s expected - ||
        fail "$1: the parameters are not those of pstrain run: $(params "$1/summary.json"), not $(cat expected)"
    echo "$1: the parameters of pstrain run, bit for bit"
}

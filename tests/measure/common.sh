# shellcheck shell=bash
# What the measuring scripts share: sourced with the binary's path. Moves to an empty folder, which goes with
# the script, and all that it started with it.

pstrain=$(realpath "${1:-target/dist/pstrain}")
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder" || exit

# until_says FILE WORDS: waits until they are in the file
until_says() { until grep -q "$2" "$1"; do sleep 0.02; done; }

# has_standby ADDRESS: waits until that server has one
has_standby() { until "$pstrain" status "$1" --json | grep -q '"standby":"'; do sleep 0.05; done; }

# number FIELD FILE: the first number of that name
number() { grep -oE "\"$1\":[0-9.e-]+" "$2" | head -1 | cut -d: -f2; }

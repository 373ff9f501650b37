# shellcheck shell=bash
# Common part of the measuring scripts, sourced with the path of the binary. Moves to an empty
# folder; when the script ends, the folder is removed and all jobs of the script are killed.

pstrain=$(realpath "${1:-target/dist/pstrain}")
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder" || exit

# until_says FILE WORDS: waits until FILE contains WORDS
until_says() { until grep -q "$2" "$1"; do sleep 0.02; done; }

# has_standby ADDRESS: waits until that server has a standby
has_standby() { until "$pstrain" status "$1" --json | grep -q '"standby":"'; do sleep 0.05; done; }

# number FIELD FILE: prints the first number of that field
number() { grep -oE "\"$1\":[0-9.e-]+" "$2" | head -1 | cut -d: -f2; }

#!/usr/bin/env bash
# Records `pstrain run`, `why` and `top`, with a worker that is ten times slower than the others:
# docs/recordings/run.cast, why.cast and top.cast, and a picture of each (.svg). Takes a minute.
# Usage: docs/recordings/record.sh
#        PSTRAIN=path/to/pstrain PYTHON=path/to/python3 docs/recordings/record.sh
# Without PSTRAIN it builds one. The pictures need a Python with `pip install pyte`.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ -z "${PSTRAIN:-}" ]; then
    cargo build --release --locked -p pstrain
    PSTRAIN=${CARGO_TARGET_DIR:-target}/release/pstrain
fi
python=${PYTHON:-python3}
recordings=$PWD/docs/recordings
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
ln -s "$(realpath "$PSTRAIN")" "$folder/pstrain"
export PATH=$folder:$PATH
cd "$folder"

# recorded NAME COMMAND [OPTION...]: records a command
recorded() {
    "$python" "$recordings/record.py" "$recordings/$1.cast" "${@:2}"
}

# pictured NAME [OPTION...]: makes a picture of a moment of it
pictured() {
    if "$python" -c 'import pyte' 2>/dev/null; then
        "$python" "$recordings/picture.py" "$recordings/$1.cast" "$recordings/$1.svg" "${@:2}"
    else
        echo "no picture of $1: $python has no pyte" >&2
    fi
}

recorded run "pstrain run --workers 3 --epochs 1 --compute 4ms --compute 3.factor=10"
pictured run

pstrain server --listen unix:server.sock --workers 3 --epochs 1000 \
    --compute 4ms --compute 3.factor=10 --quiet >server.log 2>&1 &
until [ -S server.sock ]; do sleep 0.1; done
for worker in 1 2 3; do
    pstrain worker --server unix:server.sock --id "$worker" --name "edge-$worker" >"worker-$worker.log" 2>&1 &
done
until pstrain status unix:server.sock --json | grep -q '"updates":[1-9][0-9][0-9]'; do sleep 0.2; done

recorded why "pstrain why unix:server.sock"
pictured why
recorded top "pstrain top unix:server.sock" --press 35:q
pictured top --from 25 --showing "barrier: worker 3"

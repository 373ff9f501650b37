#!/usr/bin/env bash
# Builds the wheel, installs it alone into an empty environment, and runs the tests with what is
# installed. `wheel.sh [PYTHON]`; the build is cargo's dev profile, which is there already.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${1:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$python" -m venv "$folder/build"
"$folder/build/bin/pip" install -q 'maturin>=1.9,<2'
(cd python && "$folder/build/bin/maturin" build -q --profile dev -o "$folder")

"$python" -m venv "$folder/empty"
"$folder/empty/bin/pip" install -q --no-index "$folder"/pstrain-*.whl
"$folder/empty/bin/pstrain" --version
# No program but the installed one.
env -u PSTRAIN PSTRAIN_INSTALLED=1 "$folder/empty/bin/python" -m unittest discover -b -s python/tests

#!/usr/bin/env bash
# The systemd units of deploy/: systemd takes them, and finds them well shut in.
# Usage: tests/deploy/units.sh [PSTRAIN]
set -euo pipefail
# shellcheck source=tests/deploy/common.sh
. "$(dirname "$0")/common.sh"

has systemd-analyze || { skip "systemd units: no systemd-analyze"; exit 0; }
for unit in "$checkout"/deploy/systemd/*.service; do
    # systemd looks whether the program is there.
    sed "s|/usr/local/bin/pstrain|$PSTRAIN|" "$unit" >"$(basename "$unit")"
done
step "systemd units"
systemd-analyze verify --man=no ./*.service 2>&1 | tee verify.log
[ ! -s verify.log ] || fail "systemd has something to say"
# From 0, shut in, to 10, exposed.
systemd-analyze security --offline=true --threshold=20 --no-pager ./*.service | grep Overall

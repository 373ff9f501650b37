#!/usr/bin/env bash
# The systemd units of deploy/: systemd takes them and finds them well shut in; and where a container can be booted,
# they make a run in which the server is killed, which comes to the parameters of `pstrain run`.
# Usage: tests/deploy/units.sh [PSTRAIN]
set -euo pipefail
if [ -z "${UNITS_APART-}" ] && command -v systemd-nspawn >/dev/null && unshare --mount true 2>/dev/null; then
    # What is mounted here is seen here alone, and goes with the script.
    UNITS_APART=1 exec unshare --mount --propagation private "$0" "$@"
fi
# shellcheck source=tests/deploy/common.sh
. "$(dirname "$0")/common.sh"

has systemd-analyze || { skip "systemd units: no systemd-analyze"; exit 0; }
units=$checkout/deploy/systemd
step "systemd units"
mkdir units
for unit in "$units"/*.service; do
    # systemd looks whether the program is there.
    sed "s|/usr/local/bin/pstrain|$PSTRAIN|" "$unit" >"units/$(basename "$unit")"
done
systemd-analyze verify --man=no units/*.service 2>&1 | tee verify.log
[ ! -s verify.log ] || fail "systemd has something to say"
# From 0, shut in, to 100, exposed.
systemd-analyze security --offline=true --threshold=20 --no-pager units/*.service | grep Overall

if [ -z "${UNITS_APART-}" ] || ! has script; then
    skip "a run by the systemd units: needs systemd-nspawn, script, and root"
    exit 0
fi
step "a run by the systemd units"
# This system, with changes in memory.
trap 'umount --recursive root changes 2>/dev/null || true; tidy' EXIT
mkdir changes root shared
mount -t tmpfs changes changes
mkdir changes/upper changes/work
mount -t overlay -o "lowerdir=/,upperdir=$folder/changes/upper,workdir=$folder/changes/work" overlay root
mkdir -p /run/systemd/nspawn
mount -t tmpfs nspawn /run/systemd/nspawn

job=(--data synthetic:3000 --model mlp:16 --seed 7 --epochs 20 --compute 20ms)
workers=2
config=root/etc/pstrain
mkdir -p "$config"
{
    echo 'data = "synthetic:3000"'
    echo 'model = "mlp:16"'
    echo 'compute = "20ms"'
    printf 'workers = %s\nseed = 7\nepochs = 20\n' "$workers"
} >"$config/job.toml"
{
    "$PSTRAIN" cert ca ca
    "$PSTRAIN" cert node ca "$config/server" --server 127.0.0.1
    for worker in 1 2; do "$PSTRAIN" cert node ca "$config/worker-$worker" --worker "$worker"; done
} 2>/dev/null
echo LISTEN=127.0.0.1:7070 >"$config/server.env"
cp "$PSTRAIN" root/usr/local/bin/pstrain
cp "$units"/*.service root/etc/systemd/system
cat >root/etc/systemd/system/check.service <<'EOF'
[Unit]
After=basic.target
Requires=basic.target
[Service]
Type=oneshot
ExecStart=/bin/bash /shared/inside.sh
ExecStopPost=/bin/systemctl poweroff --force --force
EOF
cat >shared/inside.sh <<'EOF'
exec >/shared/log 2>&1
state=/var/lib/private/pstrain-server
systemctl start pstrain-server pstrain-worker@1 pstrain-worker@2
until journalctl --unit pstrain-server | grep "training begins"; do sleep 0.1; done
systemctl kill --signal KILL pstrain-server
until [ -e $state/results/summary.json ]; do sleep 0.1; done
until [ "$(systemctl is-active pstrain-server)" = inactive ]; do sleep 0.1; done
systemctl show --property Result,ExecMainStatus,DynamicUser pstrain-server
systemctl stop pstrain-worker@1 pstrain-worker@2
journalctl --unit pstrain-server --output cat
cp -r $state/results /shared
EOF
script -qec "timeout 120 systemd-nspawn --directory=$folder/root --register=no --keep-unit --link-journal=no --private-network --bind=$folder/shared:/shared --boot systemd.unit=check.service" console </dev/null >/dev/null || true
cat shared/log || fail "it did not boot: $(cat console)"
grep -q "resumed after" shared/log || fail "the server did not continue"
same shared/results

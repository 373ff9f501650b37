#!/usr/bin/env bash
# Runs a command as root in a small virtual machine whose kernel has netem: User Mode Linux, an
# ordinary process that needs neither root nor KVM. It sees the host's files read-only.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
    cat <<'TEXT'
usage: vm.sh --out DIR [--memory SIZE] [--limit SECONDS] [NAME=VALUE]... COMMAND [ARGUMENT]...

  --out DIR        the one folder the command can write to, under the same path as outside
  --memory SIZE    of the machine              (default 512M)
  --limit SECONDS  where it is switched off    (default: never)
  NAME=VALUE       environment of the command  (EPOCHS=1 DATA=/data/KDDTrain+.txt)

The command runs in the current folder; its exit status is that of vm.sh, or 2 where the machine
does not start, or 124 past the limit. $VM_XSTATE=1 loads vm-xstate.c also where it is not needed.
TEXT
}

fail() {
    echo "vm.sh: $*" >&2
    exit 2
}

out='' memory=512M limit=0 variables=()
while (($# > 0)); do
    case $1 in
    -h | --help) usage; exit 0 ;;
    --out | --memory | --limit)
        (($# > 1)) || fail "$1 needs a value; see --help"
        case $1 in
        --out) out=$2 ;;
        --memory) memory=$2 ;;
        --limit) limit=$2 ;;
        esac
        shift 2 ;;
    -*) fail "unknown option $1; see --help" ;;
    *=*) variables+=("$1"); shift ;;
    *) break ;;
    esac
done
[[ -n $out ]] || fail "--out DIR is missing; see --help"
(($# > 0)) || fail "the command is missing; see --help"
[[ $limit =~ ^[0-9]+$ ]] || fail "--limit '$limit' is not a number of seconds"
for tool in linux.uml:user-mode-linux modprobe:kmod ip:iproute2 ping:iputils-ping jq:jq; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${tool%:*}" >/dev/null ||
        fail "no ${tool%:*}: install the package ${tool#*:}"
done
modules=$(echo /usr/lib/uml/modules/*)
[[ -d $modules ]] || fail "no modules of exactly one kernel in /usr/lib/uml/modules: reinstall the package user-mode-linux"
mkdir -p "$out" || fail "cannot make the folder $out"
out=$(realpath "$out")
[[ $out != *[[:space:],]* ]] || fail "--out $out: User Mode Linux takes no spaces and commas here"

work=$(mktemp -d)
machine=0 follower=0
# shellcheck disable=SC2317 # called by the trap
clean_up() {
    local status=$?
    trap '' INT TERM
    trap - EXIT
    # Its own process group: the machine is one process here for each of the processes within.
    if ((machine > 0)); then kill -KILL -- "-$machine" 2>/dev/null || true; fi
    if ((follower > 0)); then kill -TERM "$follower" 2>/dev/null || true; fi
    wait 2>/dev/null
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Some CPUs have more register state (AMX) than this kernel makes room for.
preload=''
if [[ ${VM_XSTATE:-} == 1 ]] || grep -qw amx_tile /proc/cpuinfo; then
    command -v cc >/dev/null || fail "this CPU has AMX, so vm-xstate.c must be compiled: install a C compiler (gcc)"
    cc -O2 -shared -fPIC -o "$work/vm-xstate.so" "$here/vm-xstate.c" -ldl || fail "vm-xstate.c does not compile"
    preload=$work/vm-xstate.so
fi

### What the machine does when it has booted, as its first process

printf '%q ' cd "$PWD" >"$work/command"
printf '&& ' >>"$work/command"
printf '%q ' exec env "${variables[@]}" "$@" >>"$work/command"
{
    echo '#!/bin/bash'
    printf 'work=%q out=%q modules=%q\n' "$work" "$out" "$modules"
    cat <<'INIT'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mount -t hostfs -o "$work" none "$work"
mount -t hostfs -o "$out" none "$out"
# modprobe looks for lib/modules/VERSION.
mkdir -p /run/lib/modules
ln -s "$modules" "/run/lib/modules/$(uname -r)"
# The kernel puts its own /dev over the host's.
ln -s /proc/self/fd /dev/fd
ip link set lo up
modprobe -a -d /run bridge veth sch_netem && touch "$work/booted"
bash "$work/command" </dev/null >"$work/output" 2>&1
echo $? >"$work/status"
sync
echo 1 >/proc/sys/kernel/sysrq
echo o >/proc/sysrq-trigger
sleep 60
INIT
} >"$work/init"
chmod +x "$work/init"
: >"$work/output"

tail -f -n +1 "$work/output" &
follower=$!
# A process group of its own, so that all of it can be ended.
LD_PRELOAD=$preload setsid linux.uml "mem=$memory" root=/dev/root rootfstype=hostfs rootflags=/ ro quiet \
    "init=$work/init" "umid=$(basename "$work")" "uml_dir=$work/" con=null con0=null,fd:1 \
    </dev/null >"$work/console" 2>&1 &
machine=$!
seconds=0
while kill -0 "$machine" 2>/dev/null && [[ ! -s $work/status ]]; do
    sleep 0.2
    seconds=$((seconds + 1))
    if ((limit > 0 && seconds > limit * 5)); then
        echo "vm.sh: past the limit of $limit s" >&2
        exit 124
    fi
done
sleep 1.2 # what the command said last is still to be shown
[[ -e $work/booted ]] || { tail -n 20 "$work/console" >&2; fail "the machine did not start; above is what it said"; }
[[ -s $work/status ]] || { tail -n 20 "$work/console" >&2; fail "the machine stopped before the command ended; above is what it said"; }
exit "$(<"$work/status")"

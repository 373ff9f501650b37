#!/usr/bin/env bash
# What deploy/release.sh makes for this machine: the archive is unpacked, and the Debian package installed into an empty
# root; in both the program runs, and manual and completions are there. Made twice, both are the same bytes.
# Usage: tests/deploy/packages.sh [PSTRAIN]
#   PROFILE=release   as of deploy/release.sh
set -euo pipefail
export PROFILE=${PROFILE:-release}
# shellcheck source=tests/deploy/common.sh
. "$(dirname "$0")/common.sh"

target=$(uname -m)-unknown-linux-musl
step "archive and package for $target"
if ! rustup target list --installed | grep -qx "$target" && ! rustup target add "$target"; then
    skip "archive and package: rustup does not give $target"
    exit 0
fi
OUT=$folder/dist "$checkout/deploy/release.sh" "$target"
OUT=$folder/again "$checkout/deploy/release.sh" "$target" >/dev/null
cmp dist/SHA256SUMS again/SHA256SUMS || fail "two releases of one commit differ"
(cd dist && sha256sum --check SHA256SUMS)

# program RUN...: the program, started by RUN, trains, and says what it is
program() {
    "$@" --version | grep -F "$target" || fail "$*: it does not say its version"
    "$@" run --job job.toml --json --quiet >run.json || fail "$*: it does not train"
    grep -q '"ended": *"the budget is used up"' run.json || fail "$*: $(cat run.json)"
}

# manual FILE: a page that man can show
manual() {
    if has man; then
        MANPAGER='cat' man --local-file "$1" | grep -q consistency || fail "$1 is no page of the manual"
    else
        skip "the manual: no man"
    fi
}

# completions BASH ZSH FISH: each shell completes `pstrain simu`
completions() {
    # shellcheck disable=SC2016
    bash -c '. "$1"; COMP_WORDS=(pstrain simu); COMP_CWORD=1; _pstrain pstrain simu pstrain; echo "${COMPREPLY[@]}"' \
        bash "$1" | grep -qx simulate || fail "$1 does not complete"
    if has zsh; then
        # What it offers to the completion system of zsh, in place of which is a function that prints.
        # shellcheck disable=SC2016
        zsh -fc 'fpath=("${1:h}" $fpath); autoload -Uz compinit; compinit -D; [[ ${_comps[pstrain]} == _pstrain ]]; zsh -n "$1"' \
            zsh "$2" || fail "$2 does not load"
    else
        skip "completions of zsh: no zsh"
    fi
    if has fish; then
        fish --no-config -c "source $3; complete --do-complete 'pstrain simu'" | grep -q ^simulate || fail "$3 does not complete"
    else
        skip "completions of fish: no fish"
    fi
}

step "the archive"
tar --extract --file dist/*.tar.xz
cd pstrain-*-"$target"
cp examples/job.toml .
if has readelf && readelf --program-headers pstrain | grep INTERP; then fail "it is not static"; fi
program ./pstrain
manual man/man1/pstrain-run.1
completions completions/pstrain.bash completions/_pstrain completions/pstrain.fish
for file in LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md; do cmp "$file" "$checkout/$file"; done
grep -q '^rustls-' THIRD-PARTY || fail "THIRD-PARTY does not name the crates"
cd "$folder"

step "the Debian package"
suppress=()
if ! has dpkg || [ "$(id -u)" != 0 ]; then
    skip "the Debian package: needs dpkg, and root"
    exit 0
fi
mkdir -p root/var/lib/dpkg/{info,updates} root/proc root/tmp
touch root/var/lib/dpkg/status
dpkg --root="$folder/root" --force-script-chrootless --install dist/*.deb
dpkg --root="$folder/root" --status pstrain | grep -qx 'Status: install ok installed' || fail "it is not installed"
cp "$checkout/deploy/job.toml" root/job.toml
program chroot root /usr/bin/pstrain
share=root/usr/share
manual "$share/man/man1/pstrain-run.1.gz"
completions "$share/bash-completion/completions/pstrain" "$share/zsh/vendor-completions/_pstrain" \
    "$share/fish/vendor_completions.d/pstrain.fish"
[ ! -e root/etc/systemd ] || fail "a unit is enabled"
for unit in "$checkout"/deploy/systemd/*.service; do
    sed 's|/usr/local/bin/pstrain|/usr/bin/pstrain|' "$unit" | cmp - "root/usr/lib/systemd/system/${unit##*/}"
done
if has lintian; then
    # The profile dist alone strips all.
    [ "$PROFILE" = dist ] || suppress=(--suppress-tags unstripped-binary-or-object)
    lintian --allow-root --fail-on error,warning "${suppress[@]}" dist/*.deb || fail "lintian has something to say"
else
    skip "what lintian says of the package: no lintian"
fi
dpkg --root="$folder/root" --force-script-chrootless --purge pstrain
[ -z "$(find root -type f -path '*pstrain*')" ] || fail "it leaves files: $(find root -type f -path '*pstrain*')"
echo "installed, run, and removed"

#!/usr/bin/env bash
# Makes a release: for each target an archive and a Debian package, and SHA256SUMS of all. The same commit gives the same
# bytes. A target that cannot be built here is said loudly, and the exit code is 1.
# Usage: deploy/release.sh [TARGET...]
#   Default: x86_64-unknown-linux-musl aarch64-unknown-linux-musl armv7-unknown-linux-musleabihf, all static.
#   A target of glibc, such as armv7-unknown-linux-gnueabihf, needs the glibc of the system that it is built on, or newer.
#   OUT=dist                      the folder, which must not exist
#   PROFILE=dist                  another profile of Cargo.toml
#   FEATURES=default              what is in it, as for tests/edge/build.sh, which builds it and says what it needs
#   MAINTAINER='NAME <ADDRESS>'   who answers for the Debian packages
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

step() { printf '\n=== %s ===\n' "$*"; }
skip() { printf '\nSKIPPED: %s\n' "$*" >&2; }

targets=("$@")
[ $# != 0 ] || targets=(x86_64-unknown-linux-musl aarch64-unknown-linux-musl armv7-unknown-linux-musleabihf)
out=${OUT:-dist}
export PROFILE=${PROFILE:-dist} FEATURES=${FEATURES-default}
maintainer=${MAINTAINER:-The pstrain contributors <contributors@pstrain.invalid>}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
version=$(cargo pkgid --locked -p pstrain)
version=${version##*[@#]}
root=${CARGO_TARGET_DIR:-$PWD/target}
mkdir "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# put MODE FOLDER FILE...
put() {
    local mode=$1 folder=$2
    shift 2
    mkdir -p "$folder"
    install -m "$mode" "$@" "$folder"
}

# packed FOLDER NAME...: a tar of what is in a folder, the same on every machine and at any time
packed() {
    tar --create --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --directory "$@" | xz -9 --threads=1
}

# licences TARGET: the crates in the binary of a target, and the texts of their licences, each once
licences() {
    local crate file sum sums=()
    local -A crates=() texts=()
    cargo tree --locked -p pstrain -e normal --target "$1" --no-default-features --features "$FEATURES" \
        --prefix none --format '{p}: {l}' | sed -n '/^pstrain\|(\*)$/!s/ v/-/p' | sort -u >"$work/crates"
    while IFS=: read -r crate _; do
        crate=${crate%% *}
        for file in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$crate"/{LICEN[CS]E,COPYING,COPYRIGHT,NOTICE,license}*; do
            [ -f "$file" ] || continue
            sum=$(md5sum <"$file")
            [ -n "${texts[$sum]-}" ] || sums+=("$sum")
            texts[$sum]=$file
            crates[$sum]+=" $crate"
        done
    done <"$work/crates"
    printf 'pstrain contains these crates, the standard library of Rust (MIT OR Apache-2.0) and, in static binaries, musl\n'
    printf '(MIT, Copyright 2005-2020 Rich Felker, et al.).\n\n'
    cat "$work/crates"
    for sum in "${sums[@]}"; do
        printf '\n==== %s\n\n' "${crates[$sum]# }"
        cat "${texts[$sum]}"
    done
}

# archive TARGET: one folder with the program and what belongs to it
archive() {
    local name=pstrain-$version-$1
    local tree=$work/$name
    put 755 "$tree" "$root/$1/$PROFILE/pstrain"
    put 644 "$tree" README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$work/licences/$1/THIRD-PARTY"
    put 644 "$tree/man/man1" "$work"/man/*.1
    put 644 "$tree/completions" "$work"/completions/*
    put 644 "$tree/systemd" deploy/systemd/*.service
    put 644 "$tree/examples" deploy/job.toml
    packed "$work" "$name" >"$out/$name.tar.xz"
}

# needs BINARY: the packages that it needs, as a line of a Debian package's control file
needs() {
    local glibc
    glibc=$(readelf --version-info "$1" | sed -n 's/.*Name: \(GLIBC_[0-9.]*\) .*/\1/p' | sort -uV | tail -1)
    [ -z "$glibc" ] || printf 'Depends: libc6 (>= %s), libgcc-s1\n' "${glibc#GLIBC_}"
}

# package TARGET: the Debian package. Its units are not enabled, and they run as users that systemd makes, so that it
# adds none.
package() {
    local tree=$work/debian/$1 deb=$work/deb/$1 binary=$root/$1/$PROFILE/pstrain
    local doc=$tree/usr/share/doc/pstrain unit architecture
    case $1 in
    x86_64-*) architecture=amd64 ;;
    aarch64-*) architecture=arm64 ;;
    armv7-*hf) architecture=armhf ;;
    *) skip "a Debian package for $1"; return ;;
    esac
    put 755 "$tree/usr/bin" "$binary"
    put 644 "$tree/usr/share/man/man1" "$work"/man/*.1
    put 644 "$doc" README.md "$work/licences/$1/THIRD-PARTY"
    put 644 "$doc/examples" deploy/job.toml
    install -m 644 CHANGELOG.md "$doc/changelog"
    {
        printf 'pstrain (%s-1) unstable; urgency=medium\n\n  * Release %s: see changelog.gz.\n\n' "$version" "$version"
        printf ' -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -uRd "@$SOURCE_DATE_EPOCH")"
    } >"$doc/changelog.Debian"
    gzip -9n "$doc"/{changelog,changelog.Debian,THIRD-PARTY} "$tree"/usr/share/man/man1/*
    {
        printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: pstrain\n\n'
        printf 'Files: *\nCopyright: %s %s\nLicense: MIT or Apache-2.0\n' \
            "$(date -ud "@$SOURCE_DATE_EPOCH" +%Y)" "$(sed -n 's/^Copyright (c) //p' LICENSE-MIT)"
        printf 'Comment: the licences of what the program contains are in THIRD-PARTY.gz.\n\nLicense: MIT\n'
        sed -e '1,/^Copyright/d' -e '/./!d' -e 's/^/ /' LICENSE-MIT
        printf '\nLicense: Apache-2.0\n The text is in /usr/share/common-licenses/Apache-2.0.\n'
    } >"$doc/copyright"
    install -Dm 644 "$work/completions/pstrain.bash" "$tree/usr/share/bash-completion/completions/pstrain"
    put 644 "$tree/usr/share/zsh/vendor-completions" "$work/completions/_pstrain"
    put 644 "$tree/usr/share/fish/vendor_completions.d" "$work/completions/pstrain.fish"
    for unit in deploy/systemd/*.service; do
        put 644 "$tree/usr/lib/systemd/system" "$unit"
        sed -i 's|/usr/local/bin/|/usr/bin/|' "$tree/usr/lib/systemd/system/${unit##*/}"
    done
    mkdir -p "$tree/usr/share/lintian/overrides"
    {
        # It is not for Debian's archive; patterns of units are stopped by systemctl alone; on purpose, the program is
        # static, to run on every release.
        echo 'pstrain: initial-upload-closes-no-bugs'
        echo 'pstrain: maintainer-script-calls-systemctl'
        [[ $1 != *-musl* ]] || printf 'pstrain: %s\n' shared-library-lacks-prerequisites statically-linked-binary
    } >"$tree/usr/share/lintian/overrides/pstrain"

    mkdir -p "$deb/control"
    put 755 "$deb/control" deploy/debian/*
    (cd "$tree" && find . -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$deb/control/md5sums"
    {
        printf 'Package: pstrain\nVersion: %s-1\nArchitecture: %s\nMaintainer: %s\n' "$version" "$architecture" "$maintainer"
        printf 'Installed-Size: %s\nSection: science\nPriority: optional\n' "$(du -sk --apparent-size "$tree" | cut -f1)"
        needs "$binary"
        printf 'Description: parameter-server training across slow, uneven networks\n'
        printf ' Workers hold part of the data and compute gradients; a server holds the model.\n'
        printf ' How strictly they wait for each other is one word, and links and machines can\n'
        printf ' be simulated before they exist. One program is server, worker and tools.\n'
    } >"$deb/control/control"
    chmod 644 "$deb/control"/{control,md5sums}
    echo 2.0 >"$deb/debian-binary"
    packed "$deb/control" . >"$deb/control.tar.xz"
    packed "$tree" . >"$deb/data.tar.xz"
    (cd "$deb" && ar qcD "$out/pstrain_$version-1_$architecture.deb" debian-binary control.tar.xz data.tar.xz)
}

built=()
for target in "${targets[@]}"; do
    step "$target"
    if ! rustup target list --installed | grep -qx "$target" && ! rustup target add "$target"; then
        skip "$target: rustup does not give it"
    elif tests/edge/build.sh "$target"; then
        built+=("$target")
    else
        skip "$target: it does not build here"
    fi
done
[ ${#built[@]} != 0 ] || exit 1

step "archives and packages"
# Manual and completions are the same for all targets: by a binary that runs here.
pstrain=''
for target in "${built[@]}"; do
    if "$root/$target/$PROFILE/pstrain" --version 2>/dev/null; then pstrain=$root/$target/$PROFILE/pstrain; fi
done
if [ -z "$pstrain" ]; then
    cargo build -p pstrain --locked
    pstrain=$root/debug/pstrain
fi
mkdir "$work/completions"
"$pstrain" man --out "$work/man"
"$pstrain" completions bash >"$work/completions/pstrain.bash"
"$pstrain" completions zsh >"$work/completions/_pstrain"
"$pstrain" completions fish >"$work/completions/pstrain.fish"
for target in "${built[@]}"; do
    mkdir -p "$work/licences/$target"
    licences "$target" >"$work/licences/$target/THIRD-PARTY"
    archive "$target"
    package "$target"
done
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
[ "${#built[@]}" = "${#targets[@]}" ]

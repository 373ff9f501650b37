# shellcheck shell=bash
# What cargo has to know of the machines that are built for: sourced.

# lld_folder: where the linker that comes with Rust is under the name that gcc calls it by
lld_folder() {
    printf '%s/lib/rustlib/%s/bin/gcc-ld' "$(rustc --print sysroot)" "$(rustc -vV | sed -n 's/^host: //p')"
}

# use_target TARGET: its linker, its C compiler (for ring, of which TLS is made) and, for programs of
# that machine, what runs them here
use_target() {
    local name variable gcc='' root='' emulator=''
    name=${1//-/_}
    variable=CARGO_TARGET_${name^^}
    case $1 in
    x86_64-unknown-linux-musl) export CC_x86_64_unknown_linux_musl=gcc ;;
    aarch64-unknown-linux-*) gcc=aarch64-linux-gnu-gcc emulator=qemu-aarch64 root=/usr/aarch64-linux-gnu ;;
    armv7-unknown-linux-*) gcc=arm-linux-gnueabihf-gcc emulator=qemu-arm root=/usr/arm-linux-gnueabihf ;;
    esac
    if [ -n "$gcc" ]; then
        export "CC_$name=$gcc" "${variable}_RUNNER=$emulator -L $root"
    fi
    # A panic ends the program, so nothing is ever unwound; and of functions that came out the same one is
    # enough.
    local flags="-Cforce-unwind-tables=no${STATIC:+ -Ctarget-feature=+crt-static}"
    # A binary does not name the folders that it was built in: it is the same from everywhere.
    flags+=" --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$PWD=/pstrain"
    # Instructions of 16 and 32 bits, which every such processor has: a quarter shorter. Fused products and sums,
    # which Cortex-A8 and A9 lack. The compiler warns that these names may change.
    [[ $1 != armv7-* ]] || flags+=' -Ctarget-feature=+thumb-mode,+vfp4 --cfg vfp4'
    case $1 in
    # Rust brings its own musl and linker; the C compiler's headers are enough for ring.
    *-musl*)
        export "${variable}_LINKER=rust-lld"
        flags+=' -Clink-arg=--icf=all'
        # Addresses in a short form, which musl reads from 1.2.4 on: that of Rust 1.93.
        if [ "$(printf '%s\n' 1.93 "$(rustc --version | cut -d' ' -f2)" | sort -V | head -1)" = 1.93 ]; then
            flags+=' -Clink-arg=--pack-dyn-relocs=relr'
        fi
        ;;
    *)
        [ -z "$gcc" ] || export "${variable}_LINKER=$gcc"
        # The compiler's own linker would not fold functions; not every Rust comes with another.
        local lld
        lld=$(lld_folder)
        [ ! -x "$lld/ld.lld" ] || flags+=" -Clink-arg=-fuse-ld=lld -Clink-arg=-B$lld -Clink-arg=-Wl,--icf=all"
        ;;
    esac
    export "${variable}_RUSTFLAGS=$flags"
}

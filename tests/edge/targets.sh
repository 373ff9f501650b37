# shellcheck shell=bash
# What cargo has to know of the machines that are built for: sourced.

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
    case $1 in
    # Rust brings its own musl and linker; the C compiler's headers are enough for ring.
    *-musl*) export "${variable}_LINKER=rust-lld" ;;
    *) if [ -n "$gcc" ]; then export "${variable}_LINKER=$gcc"; fi ;;
    esac
    # A panic ends the program, so nothing is ever unwound.
    export "${variable}_RUSTFLAGS=-Cforce-unwind-tables=no${STATIC:+ -Ctarget-feature=+crt-static}"
}

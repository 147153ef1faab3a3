# shellcheck shell=sh
# Which Rust the project works with; sourced by the other scripts, changes nothing.

# The newest LLVM whose bitcode llvmlite reads, the last nightly that has it, and the Rust that is tested.
NEWEST_LLVM=22
LAST_NIGHTLY=nightly-2026-08-05
TESTED_RUST=1.96

# rust_version RUSTC: its version, such as 1.96.0.
rust_version() {
    "$1" -vV 2>/dev/null | sed -n 's/^release: \([0-9.]*\).*/\1/p'
}

# llvm_version RUSTC: the major version of its LLVM.
llvm_version() {
    "$1" -vV 2>/dev/null | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p'
}

# library_sources RUSTC: the folder of the standard library's sources, whether it is there or not.
library_sources() {
    echo "$("$1" --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library"
}

# usable_rustc RUSTC: whether device code can be compiled with it.
usable_rustc() {
    rustc_llvm=$(llvm_version "$1")
    [ -n "$rustc_llvm" ] && [ "$rustc_llvm" -le "$NEWEST_LLVM" ] || return 1
    rustc_library=$(library_sources "$1")
    [ -f "$rustc_library/core/src/lib.rs" ] && [ -d "$rustc_library/compiler-builtins/compiler-builtins" ]
}

# at_least VERSION WANTED
at_least() {
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]
}

# rustc_candidates: every rustc in rgcc's order: rustup's nightlies and other toolchains, then those on PATH.
rustc_candidates() {
    toolchains=${RUSTUP_HOME:-$HOME/.rustup}/toolchains
    for toolchain in "$toolchains/${RUSTUP_TOOLCHAIN:-nightly}"* "$toolchains"/nightly* "$toolchains"/*; do
        if [ -x "$toolchain/bin/rustc" ]; then echo "$toolchain/bin/rustc"; fi
    done
    printf '%s:/usr/local/bin:/usr/bin' "$PATH" | tr ':' '\n' | while read -r folder; do
        case $(readlink -f "$folder/rustc") in
            */rustup) ;;
            *) if [ -x "$folder/rustc" ]; then echo "$folder/rustc"; fi ;;
        esac
    done
}

# find_rustc: the path of a usable rustc: RGLINK_RUSTC, else the first usable candidate; fails where there is none.
find_rustc() {
    if [ -n "${RGLINK_RUSTC:-}" ]; then
        usable_rustc "$RGLINK_RUSTC" && echo "$RGLINK_RUSTC"
        return
    fi
    rustc_candidates | {
        while read -r candidate; do
            if usable_rustc "$candidate"; then echo "$candidate" && exit 0; fi
        done
        exit 1
    }
}

# find_cargo RUSTC: the cargo beside it, else the one on PATH.
find_cargo() {
    beside=$(dirname "$1")/cargo
    if [ -x "$beside" ]; then echo "$beside"; else command -v cargo; fi
}

# cargo_build RUSTC WORKSPACE TARGET-DIR ARGUMENT...: builds a workspace for the device, with the library's own
# vendored dependencies where the sources bring them, so that no crates registry is needed.
cargo_build() {
    cargo_rustc=$1 cargo_workspace=$2 cargo_target=$3
    shift 3
    vendored=$(library_sources "$cargo_rustc")/vendor
    if [ -d "$vendored" ]; then
        set -- "$@" --offline --config 'source.crates-io.replace-with="library"' \
            --config "source.library.directory=\"$vendored\""
    fi
    (cd "$cargo_workspace" && RUSTC="$cargo_rustc" RUSTC_BOOTSTRAP=1 "$(find_cargo "$cargo_rustc")" build \
        --target-dir "$cargo_target" "$@")
}

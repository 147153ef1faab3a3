#!/bin/sh
# Sets up everything that `make demo` and `make test` need: Python with venv, a Rust with library sources, LLVM's
# tools, the package in .venv. What is there already stays as it is; a Rust toolchain above all.
set -eu
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

say() {
    echo "setup: $*" >&2
}

stop() {
    say "$@"
    exit 1
}

may_use_sudo() {
    command -v sudo >/dev/null && sudo -n true 2>/dev/null
}

# apt_get ARGUMENTS: as root, or by sudo where it asks for no password.
apt_get() {
    if [ "$(id -u)" -eq 0 ]; then
        DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >/dev/null
    else
        sudo DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >/dev/null
    fi
}

# Updates the package index once, where that is allowed: an old one offers old compilers.
refresh_packages() {
    [ -z "${packages_fresh:-}" ] && command -v apt-get >/dev/null || return 0
    [ "$(id -u)" -eq 0 ] || may_use_sudo || return 0
    apt_get update
    packages_fresh=1
}

# install_packages PACKAGE...: never at the price of a package that is there; else prints the command and stops.
install_packages() {
    command -v apt-get >/dev/null || stop "no apt-get here; install these by your system's own means: $*"
    refresh_packages
    [ -n "${packages_fresh:-}" ] || stop "system packages are missing; run as root: apt-get update && apt-get install $*"
    say "installing $*"
    apt_get install -y --no-install-recommends --no-remove "$@"
}

# has_package PACKAGE: whether apt offers it.
has_package() {
    apt-cache policy "$1" 2>/dev/null | grep -q '^  Candidate: [^(]'
}

# good_python PYTHON: 3.11 or later, able to make an environment with pip.
good_python() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        good_python "$python" && echo "$python" && return
    done
    return 1
}

set_up_python() {
    if ! python=$(find_python); then
        install_packages python3 python3-venv ca-certificates
        python=$(find_python) || stop "no Python 3.11 or later with venv; name one in the variable PYTHON"
    fi
    [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -n "${SSL_CERT_FILE:-}" ] || install_packages ca-certificates
}

# system_rustc: the rustc that is installed for all users, usable or not.
system_rustc() {
    for there in /usr/local/bin/rustc /usr/bin/rustc; do
        if [ -e "$there" ]; then echo "$there" && return; fi
    done
}

# Says what is wrong with the Rust that is there and which command would bring a right one.
refuse_rust() {
    say "no Rust here can build device code; wanted: rustc with its library sources and LLVM $NEWEST_LLVM or older"
    for there in ${RGLINK_RUSTC:-$(system_rustc)}; do
        say "found $there: version $(rust_version "$there"), LLVM $(llvm_version "$there"), sources wanted in $(library_sources "$there")"
    done
    say "the set-up replaces no toolchain that is there; what would bring a usable one, in this order:"
    if command -v rustup >/dev/null; then
        say "  rustup toolchain install $LAST_NIGHTLY --component rust-src"
    fi
    if dpkg -s rustc-web >/dev/null 2>&1; then
        say "  apt-get install rust-web-src cargo-web"
    elif has_package rustc-web; then
        say "  apt-get install rustc-web rust-web-src cargo-web    (takes the place of the system's rustc)"
    fi
    stop "  RGLINK_RUSTC=PATH: the name of a rustc that is elsewhere"
}

# offered_rust: the distribution's packages of compiler, sources and cargo, where they are new enough.
offered_rust() {
    if has_package rustc-web; then
        echo rustc-web rust-web-src cargo-web
    elif at_least "$(apt-cache policy rustc 2>/dev/null | sed -n 's/^  Candidate: //p')" "$TESTED_RUST"; then
        echo rustc rust-src cargo
    fi
}

set_up_rust() {
    if rustc=$(find_rustc); then return; fi
    if [ -n "${RGLINK_RUSTC:-}" ] || [ -n "$(system_rustc)" ]; then refuse_rust; fi
    command -v apt-get >/dev/null || refuse_rust
    refresh_packages
    packages=$(offered_rust)
    [ -n "$packages" ] || refuse_rust
    # shellcheck disable=SC2086
    install_packages $packages
    rustc=$(find_rustc) || refuse_rust
}

# LLVM's own tools are second opinions in tests and peers in benchmarks; what needs them says so where they lack.
set_up_llvm_tools() {
    command -v "llvm-link-$NEWEST_LLVM" >/dev/null && return
    package=llvm-$NEWEST_LLVM
    refresh_packages
    if [ -z "${packages_fresh:-}" ]; then
        say "$package is missing: some tests will be skipped; as root: apt-get install $package"
    elif has_package "$package"; then
        install_packages "$package"
    else
        say "$package is missing and not offered here: some tests will be skipped"
    fi
}

set_up_venv() {
    if [ ! -x .venv/bin/python ] || ! good_python .venv/bin/python; then
        say "making .venv"
        "$python" -m venv --clear .venv
    fi
    say "installing the package and its tools into .venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --prefer-binary --editable '.[dev]'
}

set_up_python
set_up_rust
set_up_llvm_tools
set_up_venv
say "ready: $(.venv/bin/python --version), rustc $(rust_version "$rustc") ($rustc)"

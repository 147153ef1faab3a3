#!/bin/sh
# Measures link times; brings the LLVM tools that rustc's own linker would call, where they are missing.
set -eu
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

for tool in llvm-link opt llc; do
    command -v "$tool-$NEWEST_LLVM" >/dev/null && continue
    package=llvm-$NEWEST_LLVM
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "bench: $tool-$NEWEST_LLVM is missing; run as root: apt-get update && apt-get install $package" >&2
        exit 3
    fi
    apt-get -qq update >&2
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends --no-remove "$package" >&2
    break
done

rustc=$(find_rustc) || { echo "bench: no usable Rust; try: sh scripts/setup.sh" >&2; exit 3; }
PATH=$PWD/.venv/bin:$PATH
mkdir -p benchmarks/out
export CARGO_TARGET_NVPTX64_NVIDIA_CUDA_LINKER="$PWD/benchmarks/record_inputs.py"
cargo_build "$rustc" samples "$PWD/benchmarks/out/cargo" --release
exec .venv/bin/python benchmarks/link_time.py benchmarks/out/cargo/nvptx64-nvidia-cuda/release/deps/sensor_kernels.ptx.inputs.json "$@"

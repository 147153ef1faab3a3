#!/bin/sh
# Measures link times against the LLVM tools that rustc's own linker would call.
set -eu
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

for tool in llvm-link opt llc; do
    command -v "$tool-$NEWEST_LLVM" >/dev/null && continue
    echo "bench: $tool-$NEWEST_LLVM is missing; run as root: apt-get update && apt-get install llvm-$NEWEST_LLVM" >&2
    exit 3
done

rustc=$(find_rustc) || { echo "bench: no usable Rust; try: sh scripts/setup.sh" >&2; exit 3; }
PATH=$PWD/.venv/bin:$PATH
out=$PWD/benchmarks/out
mkdir -p "$out"

# measure TITLE WORKSPACE NAME: records what rustc hands to its linker for the workspace's program, then links it.
measure() {
    echo "== $1"
    CARGO_TARGET_NVPTX64_NVIDIA_CUDA_LINKER="$PWD/benchmarks/record_inputs.py" \
        cargo_build "$rustc" "$2" "$out/$3-target" --release --quiet
    set -- "$out/$3-target/nvptx64-nvidia-cuda/release/deps/$3.ptx.inputs.json"
    .venv/bin/python benchmarks/link_time.py "$1"
}

measure "the samples" samples sensor_kernels
.venv/bin/python benchmarks/generate_workspace.py "$out/generated" --crates 30 --functions 50 --seed 2
measure "generated: 30 crates, 1500 functions" "$out/generated" program

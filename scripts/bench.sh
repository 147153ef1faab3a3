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

# As `pip install` of a wheel does it; an editable install compiles a module when it is first imported, or never.
.venv/bin/python -m compileall -q rglink

# compile CRATE NAME [DEPENDENCY...]: an .rgo of a sample crate.
compile() {
    externs=
    for each in $3; do externs="$externs --extern $each=$out/$each.rgo"; done
    (cd samples && RGLINK_RUSTC=$rustc rgcc -c "$1/src/lib.rs" -o "$out/$2.rgo" --crate-name "$2" --edition 2024 $externs)
}

compile vecmath vecmath ""
compile blocks blocks vecmath
compile windows windows "vecmath blocks"
compile sensor-kernels sensor_kernels "vecmath blocks windows"
echo "== the samples by hand: rgcc's objects"
.venv/bin/python benchmarks/link_time_rgo.py --drop blocks_selftest --drop dump_histogram \
    "$out/vecmath.rgo" "$out/blocks.rgo" "$out/windows.rgo" "$out/sensor_kernels.rgo"

measure "the samples under cargo: unoptimized crates with line tables, five architectures" samples sensor_kernels
.venv/bin/python benchmarks/generate_workspace.py "$out/generated" --crates 30 --functions 50 --seed 2
measure "generated: 30 crates, 1500 functions" "$out/generated" program

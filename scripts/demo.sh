#!/bin/sh
# Links the sample workspace twice, through cargo and by hand, shows what came out and runs some of it on the CPU.
# Results: demo-out/.
set -eu
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

architectures=sm_75,sm_80,sm_90,sm_100,sm_120,compute_75
out=$PWD/demo-out

title() {
    printf '\n== %s\n' "$*"
}

# run COMMAND...: shows the command, then runs it.
run() {
    printf '$ %s\n' "$*"
    "$@"
}

rustc=$(find_rustc) || { echo "demo: no usable Rust; try: sh scripts/setup.sh" >&2; exit 3; }
export RGLINK_RUSTC="$rustc" RUSTC="$rustc" RUSTC_BOOTSTRAP=1
PATH=$PWD/.venv/bin:$PATH
mkdir -p "$out"

title "through cargo: samples/.cargo/config.toml names rglink as the linker"
cargo_build "$rustc" samples "$out/cargo" --release
built=$out/cargo/nvptx64-nvidia-cuda/release
cp "$built/sensor_kernels.ptx" "$built/sensor_kernels.fatbin" "$out"
run rgdump demo-out/sensor_kernels.fatbin

title "by hand: one .rgo for each crate, then the link"
cd samples
compile="rgcc -c --edition 2024 --lineinfo"
run $compile vecmath/src/lib.rs -o ../demo-out/vecmath.rgo --crate-name vecmath
run $compile blocks/src/lib.rs -o ../demo-out/blocks.rgo --crate-name blocks --extern vecmath=../demo-out/vecmath.rgo
run $compile windows/src/lib.rs -o ../demo-out/windows.rgo --crate-name windows \
    --extern vecmath=../demo-out/vecmath.rgo --extern blocks=../demo-out/blocks.rgo
run $compile sensor-kernels/src/lib.rs -o ../demo-out/sensor_kernels.rgo --crate-name sensor_kernels \
    --extern vecmath=../demo-out/vecmath.rgo --extern blocks=../demo-out/blocks.rgo \
    --extern windows=../demo-out/windows.rgo
cd ../demo-out
run rglink vecmath.rgo blocks.rgo windows.rgo sensor_kernels.rgo -o app.fatbin --arch "$architectures" \
    --drop blocks_selftest --drop dump_histogram --print-resources --print-gc
cd ..

title "what is in it, by rglink and by NVIDIA's own tool"
run rgdump demo-out/app.fatbin
cuobjdump=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia/cu13/bin/cuobjdump
printf '$ cuobjdump -lelf -lptx demo-out/app.fatbin\n'
"$cuobjdump" -lelf -lptx demo-out/app.fatbin

title "a reduction on the CPU, and what its lines cost"
run rgrun demo-out/app.fatbin --sources samples --kernel block_sum --grid 2 --block 256 \
    --arg 'f32[1000]=ones' --arg u64=1000 --arg out:f32[2] --profile

title "a race between two crates: samples/flawed leaves out a barrier"
cd samples
run $compile flawed/src/lib.rs -o ../demo-out/flawed.rgo --crate-name flawed --extern blocks=../demo-out/blocks.rgo
cd ..
run rglink demo-out/flawed.rgo demo-out/blocks.rgo demo-out/vecmath.rgo -o demo-out/flawed.fatbin \
    --arch sm_75,compute_75 --keep slopes
if run rgrun demo-out/flawed.fatbin --sources samples --kernel slopes --block 64 \
    --arg 'f32[64]=arange' --arg out:f32[64] 2>&1; then
    echo "demo: rgrun has not found the race" >&2
    exit 1
fi

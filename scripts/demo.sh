#!/bin/sh
# Links the sample workspace twice, through cargo and by hand, and shows what came out. Results: demo-out/.
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
run rgcc -c vecmath/src/lib.rs -o ../demo-out/vecmath.rgo --crate-name vecmath --edition 2024
run rgcc -c blocks/src/lib.rs -o ../demo-out/blocks.rgo --crate-name blocks --edition 2024 \
    --extern vecmath=../demo-out/vecmath.rgo
run rgcc -c windows/src/lib.rs -o ../demo-out/windows.rgo --crate-name windows --edition 2024 \
    --extern vecmath=../demo-out/vecmath.rgo --extern blocks=../demo-out/blocks.rgo
run rgcc -c sensor-kernels/src/lib.rs -o ../demo-out/sensor_kernels.rgo --crate-name sensor_kernels --edition 2024 \
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

"""The samples under `rgrun`, with line tables, on both routes: a planted race between crates, a reduction's profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rglink.emulate import CheckFailed, Checks, load
from tests.rust.test_samples import SAMPLES, checked, compile_samples, run
from tests.tools import require_rustc

pytestmark = pytest.mark.rust

FLAWED = SAMPLES / "flawed/src/lib.rs"
STORE, LOADS = "*tile.add(thread::in_block()) =", "*slopes.add(thread::in_grid()) ="
ROUTES = ("llvm", "nvvm")


def line_of(file: str, text: str) -> int:
    """The only line of a sample's source with `text` in it."""
    (found,) = [at for at, line in enumerate((SAMPLES / file).read_text().splitlines(), 1) if text in line]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """app-ROUTE.ptx: all samples; flawed-ROUTE.ptx: the kernel with a mistake; mended.ptx: with its barrier."""
    require_rustc()
    folder = tmp_path_factory.mktemp("samples")
    objects = compile_samples(SAMPLES, folder, "--lineinfo")
    mended = FLAWED.read_text().replace("stage(samples, tile);", "stage(samples, tile); _syncthreads();")
    mended = mended.replace("#![feature(abi_ptx)]", "#![feature(abi_ptx, stdarch_nvptx)]")
    (folder / "mended.rs").write_text(
        mended.replace("use blocks::shared", "use core::arch::nvptx::*;\nuse blocks::shared")
    )
    for name, source in (("flawed", "flawed/src/lib.rs"), ("mended", folder / "mended.rs")):
        checked(
            "rgcc", "-c", source, "-o", folder / f"{name}.rgo", "--crate-name", "flawed", "--edition", "2024",
            "--lineinfo", "--extern", f"blocks={folder}/blocks.rgo", cwd=SAMPLES,
        )  # fmt: skip
    few = ["vecmath.rgo", "blocks.rgo", "--keep", "slopes"]
    checked("rglink", "mended.rgo", *few, "-o", "mended.ptx", "--arch", "sm_75", cwd=folder)
    for route in ROUTES:
        options = (f"--codegen={route}", "--arch", "sm_75")
        checked("rglink", "flawed.rgo", *few, "-o", f"flawed-{route}.ptx", *options, cwd=folder)
        checked("rglink", *objects, "-o", f"app-{route}.ptx", *options, cwd=folder)
    return folder


@pytest.mark.parametrize("route", ROUTES)
def test_a_planted_race_is_told_with_the_lines_of_both_crates(folder: Path, route: str) -> None:
    command = ["--kernel", "slopes", "--block", "64", "--arg", "f32[64]=arange", "--arg", "out:f32[64]"]
    done = run("rgrun", f"flawed-{route}.ptx", *command, "--sources", SAMPLES, cwd=folder)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0].startswith("rgrun: error: kernel slopes: data race on shared flawed::TILE+")
    store, loads = line_of("blocks/src/shared.rs", STORE), line_of("flawed/src/lib.rs", LOADS)
    told = {line.split()[1] for line in lines if " of 4 bytes by thread " in line}
    assert told == {f"blocks/src/shared.rs:{store}:", f"flawed/src/lib.rs:{loads}:"}
    quoted = {line.split(" | ")[1].split(" = ")[0] for line in lines if f"{store} | " in line or f"{loads} | " in line}
    assert quoted == {"unsafe { *tile.add(thread::in_block())", "*slopes.add(thread::in_grid())"}
    call = line_of("flawed/src/lib.rs", "stage(samples, tile);")
    inlined = f">>> flawed/src/lib.rs:{call}: inlined here" in lines
    assert inlined == (route == "nvvm"), "libNVVM alone tells where the store was inlined"


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_the_planted_race_needs_no_luck(folder: Path, seed: int | None) -> None:
    samples, slopes = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    with pytest.raises(CheckFailed, match="data race on shared flawed::TILE"):
        load(folder / "flawed-llvm.ptx")["slopes"].launch(1, 64, (samples, slopes), seed=seed)


def test_with_its_barrier_the_kernel_is_right(folder: Path) -> None:
    samples, slopes = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    load(folder / "mended.ptx", checks=Checks(schedules=4))["slopes"][2, 64](samples, slopes)
    assert slopes.tolist() == ([1] * 63 + [-63]) * 2


@pytest.mark.parametrize("route", ROUTES)
def test_the_profile_of_a_reduction_names_its_lines(folder: Path, route: str) -> None:
    command = ["--kernel", "block_sum", "--grid", "2", "--block", "256", "--profile", "--json"]
    command += ["--arg", "f32[1000]=ones", "--arg", "u64=1000", "--arg", "out:f32[2]"]
    found: dict[str, Any] = json.loads(checked("rgrun", f"app-{route}.ptx", *command, cwd=folder).stdout)
    assert found["arrays"][1]["values"] == [512, 488]
    lines = {(line["file"], line["line"]): line for line in found["profile"]["lines"]}
    assert not any("/rustc/" in file for file, _ in lines), "Rust's library has its lines from the user's"
    source = "blocks/src/lib.rs"
    tree = lines[source, line_of(source, "*partial.add(me) += *partial.add(me + width);")]
    # 128, 64, 32, 16 ... 1 threads of two blocks read two words and write one: 4 + 2 + 6 warps each.
    assert (tree["shared_requests"], tree["shared_wavefronts"]) == (3 * 2 * 12, 3 * 2 * 12)
    last = lines[source, line_of(source, "*sums.add(thread::block()) = *partial;")]
    assert (last["global_requests"], last["global_sectors"], last["global_used"]) == (2, 2, 8)
    reads = [line for (file, _), line in lines.items() if line["global_requests"] and line is not last]
    assert sum(line["global_used"] for line in reads) == 4 * 1000


@pytest.mark.parametrize("route", ROUTES)
def test_a_kernel_goes_by_its_rust_path(folder: Path, route: str) -> None:
    data = np.arange(8, dtype=np.float64)
    program = load(folder / f"app-{route}.ptx")
    program["blocks::scale::<f64>"][1, 8](data, len(data), np.float64(0.5))
    assert data.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]
    smoothed = np.zeros(8, np.float32)
    program["blocks::smooth"][1, 8](np.ones(8, np.float32), 8, smoothed)
    assert smoothed.tolist() == [1] * 8
    words = [
        "--kernel",
        "blocks::smooth",
        "--block",
        "4",
        "--arg",
        "f32[4]=ones",
        "--arg",
        "u64=4",
        "--arg",
        "out:f32[4]",
    ]
    done = checked("rgrun", f"app-{route}.ptx", *words, cwd=folder)
    assert done.stdout == "arg3: f32[4] =\n  [1. 1. 1. 1.]\n"

"""All kernels of the sample workspace on both routes, against NumPy; float32 step by step, so every bit counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rglink.emulate import KernelFault, LoadedProgram, load
from tests.conformance.crate import checked
from tests.rust.test_samples import SAMPLES, compile_samples
from tests.tools import require_rustc

pytestmark = [pytest.mark.rust, pytest.mark.slow]

Floats = NDArray[np.float32]
SEEDS = (None, 1, 2)
ROUTES = (("llvm", "-O0", "sm_75"), ("llvm", "-O3", "sm_75"), ("nvvm", "-O3", "sm_75"), ("llvm", "-O3", "sm_100"))


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    require_rustc()
    return compile_samples(SAMPLES, tmp_path_factory.mktemp("objects"))


@pytest.fixture(scope="module", params=ROUTES, ids="-".join)
def program(
    request: pytest.FixtureRequest, objects: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> LoadedProgram:
    """The samples as a fat binary with PTX on the llvm route, as nvJitLink's own PTX on the other."""
    route, level, arch = request.param
    folder = tmp_path_factory.mktemp("image")
    kind = "app.fatbin" if route == "llvm" else "app.ptx"
    wanted = f"{arch},{arch.replace('sm', 'compute')}" if route == "llvm" else arch
    inputs = [str(path) for path in objects]
    checked(("rglink", *inputs, "-o", kind, level, f"--codegen={route}", "--arch", wanted), folder)
    return load(folder / kind)


def kernel_named(program: LoadedProgram, part: str) -> str:
    """The one kernel whose mangled name holds `part`."""
    (found,) = [name for name in program.kernels if part in name]
    return found


def floats(count: int, seed: int = 5) -> Floats:
    return np.random.default_rng(seed).normal(0, 10, count).astype(np.float32)


@pytest.mark.parametrize("seed", SEEDS)
def test_calibrate_ends_blocks_early_by_a_shared_flag(program: LoadedProgram, seed: int | None) -> None:
    raw = floats(6 * 64)
    raw[[70, 100, 300]] = np.nan
    coefficients = np.array([0.25, -1.5, 2.0, 0.125], np.float32)
    corrected, rejected = np.full(6 * 64, -7, np.float32), np.full(6, 9, np.uint32)
    program["calibrate"].launch(6, 64, (raw, coefficients, 3, corrected, rejected), seed=seed)
    assert rejected.tolist() == [0, 1, 0, 0, 1, 0]
    expected = np.zeros_like(raw)
    for coefficient in coefficients:
        expected = expected * raw + coefficient
    expected[np.repeat(rejected, 64) == 1] = -7
    assert corrected.tolist() == expected.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_block_sum(program: LoadedProgram, seed: int | None) -> None:
    samples, sums = floats(3_000), np.zeros(4, np.float32)
    program["block_sum"].launch(4, 128, (samples, len(samples), sums), seed=seed)
    partial = np.zeros(512, np.float32)
    for start in range(0, len(samples), 512):
        row = samples[start : start + 512]
        partial[: len(row)] += row
    tree = partial.reshape(4, 128)
    while tree.shape[1] > 1:
        tree = tree[:, : tree.shape[1] // 2] + tree[:, tree.shape[1] // 2 :]
    assert sums.tolist() == tree[:, 0].tolist()


def test_gather(program: LoadedProgram) -> None:
    source = floats(50)
    index = np.random.default_rng(6).integers(0, 50, 128, np.uint32)
    out = np.zeros(128, np.float32)
    program["gather"][2, 64](source, len(source), index, out)
    assert out.tolist() == source[index].tolist()


def test_gather_ends_at_an_index_outside(program: LoadedProgram) -> None:
    """The panic is a trap, and the report names the thread."""
    source, index, out = floats(50), np.arange(32, dtype=np.uint32), np.zeros(32, np.float32)
    index[7] = 50
    with pytest.raises(KernelFault, match="trap") as raised:
        program["gather"][1, 32](source, len(source), index, out)
    assert "thread (7, 0, 0)" in raised.value.diagnostic.render()


def sectors_of(angles: Floats, sectors: int) -> NDArray[np.int64]:
    tau = np.float32(2 * np.pi)
    turn = np.fmod(angles, tau) / tau
    turn = np.where(turn < 0, turn + np.float32(1), turn)
    return np.minimum((turn * np.float32(sectors)).astype(np.int64), sectors - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_histogram_and_watch(program: LoadedProgram, seed: int | None) -> None:
    angles = floats(1_000) * np.float32(3)
    bins, ready, alarm = np.zeros(12, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    seen = int(program.variables["SAMPLES_SEEN"].read(np.uint32)[0])
    program["watch"].launch(1, 32, (bins, 12, ready, 10, alarm), seed=seed)
    assert alarm[0] == 0
    program["histogram"].launch(3, 64, (angles, len(angles), bins, 12, ready), seed=seed)
    counts = np.bincount(sectors_of(angles, 12), minlength=12)
    assert (bins.tolist(), ready.tolist()) == (counts.tolist(), [1])
    assert program.variables["SAMPLES_SEEN"].read(np.uint32)[0] == seen + len(angles)
    limit = int(np.sort(counts)[-3])
    program["watch"].launch(1, 32, (bins, 12, ready, limit, alarm), seed=seed)
    assert int(alarm[0]) - 1 in np.flatnonzero(counts > limit)
    program["watch"].launch(1, 32, (bins, 12, ready, int(counts.max()), np.zeros(1, np.uint32)), seed=seed)


def test_seed_noise(program: LoadedProgram) -> None:
    words = np.zeros(100, np.uint64)
    program["seed_noise"][2, 64](1234, words, len(words))
    for at, word in enumerate(words.tolist()):
        product = (1234 ^ 0x9E3779B97F4A7C15) * (at ^ 0xD6E8FEB86659FD93)
        assert word == (product >> 64 ^ product) & (2**64 - 1)


@pytest.mark.parametrize("width", [1, 4, 7])
def test_moving_median_on_the_heap(program: LoadedProgram, width: int) -> None:
    samples, medians = floats(90), np.zeros(90, np.float32)
    program["moving_median"][3, 32](samples, len(samples), width, medians)
    half = np.float32(0.5)
    for at in range(len(samples)):
        window = np.sort(samples[max(0, at + 1 - width) : at + 1])
        middle = len(window) // 2
        expected = window[middle] if len(window) % 2 else window[middle - 1] * half + window[middle] * half
        assert medians[at] == expected


def test_smooth(program: LoadedProgram) -> None:
    samples, smoothed = floats(90), np.zeros(90, np.float32)
    program[kernel_named(program, "6blocks6smooth")][3, 32](samples, len(samples), smoothed)
    half, one = np.float32(0.5), np.float32(1)

    def lerp(a: Floats, b: Floats, t: Any) -> Floats:
        return np.asarray(a * (one - t) + b * t)

    before, after = samples[:-2], samples[2:]
    x = before - after
    weight = half + half * x / (np.float32(2) + np.abs(x))
    expected = samples.copy()
    expected[1:-1] = lerp(samples[1:-1], lerp(before, after, weight), half)
    assert smoothed.tolist() == expected.tolist()


@pytest.mark.parametrize(("part", "dtype"), [("6blocks5scalef", np.float32), ("6blocks5scaled", np.float64)])
def test_scale_of_two_precisions(program: LoadedProgram, part: str, dtype: type[np.floating[Any]]) -> None:
    given = np.random.default_rng(7).normal(0, 1e3, 100).astype(dtype)
    data, factor = given.copy(), dtype(-1.7)
    program[kernel_named(program, part)][4, 32](data, 90, factor)
    assert data.tolist() == [*(given[:90] * factor).tolist(), *given[90:].tolist()]


def test_what_is_for_debugging(program: LoadedProgram) -> None:
    bins, copy, failures = np.arange(9, dtype=np.uint32), np.zeros(9, np.uint32), np.zeros(3, np.uint32)
    program["dump_histogram"][1, 1](bins, 9, copy)
    program["blocks_selftest"][3, 64](failures)
    assert (copy.tolist(), failures.tolist()) == (bins.tolist(), [0, 0, 0])

"""`kernels.rs` on both routes: every kernel's results against the same Rust code on the host, or against NumPy."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rglink.emulate import LoadedProgram, load
from tests.conformance.crate import Configuration, build_device, build_host, link_device
from tests.tools import require_rustc

pytestmark = [pytest.mark.rust, pytest.mark.slow]

SOURCE = Path(__file__).with_name("kernels.rs")
ALONE = tuple(re.findall(r"^per_thread!\((\w+),", SOURCE.read_text(), re.MULTILINE))
CONFIGURATIONS = (
    Configuration(0, "llvm", "sm_75"),
    Configuration(3, "llvm", "sm_75"),
    Configuration(3, "nvvm", "sm_75"),
    Configuration(3, "nvvm", "sm_100"),
)
THREADS = 200
BLOCK = 64
SEEDS = (None, 1, 2)
Words = NDArray[np.uint32]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    output = tmp_path_factory.mktemp("host") / "kernels.so"
    build_host(require_rustc(), SOURCE, output)
    return ctypes.CDLL(str(output))


@pytest.fixture(scope="module", params=CONFIGURATIONS, ids=str)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedProgram:
    require_rustc()
    source = Path(shutil.copy(SOURCE, tmp_path_factory.mktemp("device")))
    configuration: Configuration = request.param
    return load(link_device(build_device(source, configuration.level), configuration))


def words(count: int, seed: int = 3) -> Words:
    return np.random.default_rng(seed).integers(0, 2**32, count, np.uint32)


@pytest.mark.parametrize("name", ALONE)
def test_threads_alone_equal_the_host(program: LoadedProgram, host: ctypes.CDLL, name: str) -> None:
    given = words(THREADS)
    expected, out = np.zeros(THREADS, np.uint64), np.zeros(THREADS, np.uint64)
    getattr(host, name)(*(ctypes.c_void_p(a.ctypes.data) for a in (given, expected)), ctypes.c_size_t(THREADS))
    program[name][-(-THREADS // BLOCK), BLOCK](given, out, THREADS)
    assert out.tolist() == expected.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_tree_reduction(program: LoadedProgram, seed: int | None) -> None:
    given, sums = words(8 * 128), np.zeros(8, np.uint32)
    program["tree_reduction"].launch(8, 128, (given, sums), seed=seed)
    assert sums.tolist() == given.reshape(8, 128).sum(axis=1, dtype=np.uint32).tolist()


@pytest.mark.parametrize("size", [16, 40, 63])
def test_transpose(program: LoadedProgram, size: int) -> None:
    given = np.arange(size * size, dtype=np.float32).reshape(size, size)
    out = np.zeros_like(given)
    tiles = -(-size // 16)
    program["transpose"][(tiles, tiles), (16, 16)](given, out, size)
    assert (out == given.T).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_scan(program: LoadedProgram, seed: int | None) -> None:
    given, sums = words(5 * 96), np.zeros(5 * 96, np.uint32)
    program["scan"].launch(5, 96, (given, sums), seed=seed)
    assert (sums.reshape(5, 96) == np.cumsum(given.reshape(5, 96), axis=1, dtype=np.uint32)).all()


def test_stencil_with_a_halo(program: LoadedProgram) -> None:
    given, sums = words(300), np.zeros(300, np.uint32)
    program["stencil"][5, 64](given, sums, 300)
    padded = np.concatenate([np.zeros(2, np.uint32), given, np.zeros(2, np.uint32)])
    expected = np.lib.stride_tricks.sliding_window_view(padded, 5).sum(axis=1, dtype=np.uint32)
    assert sums.tolist() == expected.tolist()


def test_counts_in_shared_and_global_memory(program: LoadedProgram) -> None:
    given = np.random.default_rng(4).integers(0, 256, 5_000, np.uint8)
    counts = np.zeros(256, np.uint32)
    program["byte_counts"][4, 96](given, len(given), counts)
    assert counts.tolist() == np.bincount(given, minlength=256).tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stack_without_locks(program: LoadedProgram, seed: int | None) -> None:
    threads = 160
    head, below, popped = np.zeros(1, np.uint32), np.zeros(threads + 1, np.uint32), np.zeros(threads, np.uint32)
    program["stack"].launch(5, 32, (head, below, popped), seed=seed)
    left: list[int] = []
    top = int(head[0])
    while top:
        left.append(top)
        top = int(below[top])
    taken = popped[popped > 0].tolist()
    assert sorted(left + taken) == list(range(1, threads + 1))
    assert len(taken) == threads // 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_ticket_lock(program: LoadedProgram, seed: int | None) -> None:
    threads = 96
    tickets, serving, total = (np.zeros(1, np.uint32) for _ in range(3))
    order = np.zeros(threads, np.uint32)
    program["ticket_lock"].launch(3, 32, (tickets, serving, total, order), seed=seed)
    assert sorted(order.tolist()) == list(range(threads))
    assert total[0] == threads * (threads - 1) // 2
    assert serving[0] == threads


def test_warp_collectives(program: LoadedProgram) -> None:
    threads = 192
    given = words(threads)
    sums, largest, below = (np.zeros(threads, np.uint32) for _ in range(3))
    program["warp_shuffles"][2, 96](given, sums, largest, below)
    warps = given.reshape(-1, 32)
    odd = warps % 2
    assert sums[::32].tolist() == warps.sum(axis=1, dtype=np.uint32).tolist()
    assert (largest.reshape(-1, 32) == warps.max(axis=1)[:, None]).all()
    assert (below.reshape(-1, 32) == np.cumsum(odd, axis=1) - odd).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_block_sums_up(program: LoadedProgram, seed: int | None) -> None:
    given = words(7 * 64)
    parts, done, total = np.zeros(7, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    program["last_block"].launch(7, 64, (given, parts, done, total), seed=seed)
    assert int(total[0]) == int(given.sum(dtype=np.uint32))

"""`kernels.rs` on both routes: every kernel's results against the same Rust code on the host, or against NumPy."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from rglink.emulate import LoadedProgram, load
from tests.conformance.crate import Configuration, build_device, build_host, link_device
from tests.conformance.programs.cases import CASES, SOURCE, words
from tests.tools import require_rustc

pytestmark = [pytest.mark.rust, pytest.mark.slow]

ALONE = tuple(re.findall(r"^per_thread!\((\w+),", SOURCE.read_text(), re.MULTILINE))
CONFIGURATIONS = (
    Configuration(0, "llvm", "sm_75"),
    Configuration(3, "llvm", "sm_75"),
    Configuration(3, "nvvm", "sm_75"),
    Configuration(3, "nvvm", "sm_100"),
)
THREADS = 200
BLOCK = 64
SEEDS = (None, 1)


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


@pytest.mark.parametrize("name", ALONE)
def test_threads_alone_equal_the_host(program: LoadedProgram, host: ctypes.CDLL, name: str) -> None:
    given = words(THREADS)
    expected, out = np.zeros(THREADS, np.uint64), np.zeros(THREADS, np.uint64)
    getattr(host, name)(*(ctypes.c_void_p(a.ctypes.data) for a in (given, expected)), ctypes.c_size_t(THREADS))
    program[name][-(-THREADS // BLOCK), BLOCK](given, out, THREADS)
    assert out.tolist() == expected.tolist()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: CASES[number].kernel)
def test_threads_together(program: LoadedProgram, number: int, seed: int | None) -> None:
    case = CASES[number]
    arguments = case.arguments()
    program[case.kernel].launch(case.grid, case.block, arguments, seed=seed)
    assert case.holds(*arguments)


def test_every_kernel_has_a_case() -> None:
    found = set(re.findall(r'extern "ptx-kernel" fn (\w+)\(', SOURCE.read_text()))
    assert found == {case.kernel for case in CASES}

"""The conformance table and the programs on a GPU, against the PTX machine: `python scripts/gpu_conformance.py`.

Links fat binaries for the GPU by both routes, runs every kernel on it through cuda.core and the same binary's PTX on
the PTX machine, and compares: operations by the table's rule on NaNs, programs bit for bit, programs whose results
depend on the order of threads by what must hold of them. Without a GPU, driver or Rust it says so and ends with 0; with
1 when a result differs. Two types of each operation, some minutes; `--all` takes the whole table.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from rglink.diagnostics import RglinkError  # noqa: E402
from rglink.emulate import LoadedProgram, load  # noqa: E402
from rglink.frontend.rustc import find_rustc  # noqa: E402
from rglink.ir import LLVM_MAJOR  # noqa: E402
from tests.conformance import compare  # noqa: E402
from tests.conformance.crate import build_device, checked, crate_source  # noqa: E402
from tests.conformance.programs.cases import CASES, SOURCE, Case, words  # noqa: E402
from tests.conformance.table import Operation, all_operations, sample  # noqa: E402

ALONE = tuple(re.findall(r"^per_thread!\((\w+),", SOURCE.read_text(), re.MULTILINE))
THREADS, BLOCK = 200, 64
Array = NDArray[Any]


class Gpu:
    """The first GPU, as cuda.core gives it."""

    def __init__(self) -> None:
        import cuda.core as core

        self.core = core
        self.device = core.Device(0)
        self.device.set_current()
        self.stream = self.device.create_stream()
        self.pinned = core.LegacyPinnedMemoryResource()

    @property
    def arch(self) -> str:
        """Its architecture: "90"."""
        capability = self.device.compute_capability
        return f"{capability.major}{capability.minor}"

    def run(self, code: Any, kernel: str, shape: tuple[Any, Any], arguments: Sequence[Array | int]) -> None:
        """Launch; arrays are copied to the GPU and back in place, integers are 64 bits wide."""
        buffers: list[tuple[Array, Any]] = []
        given: list[Any] = []
        for argument in arguments:
            if isinstance(argument, int):
                given.append(argument)
                continue
            buffer = self.device.allocate(max(argument.nbytes, 1), stream=self.stream)
            self._copy(argument, buffer, to_device=True)
            buffers.append((argument, buffer))
            given.append(buffer)
        grid, block = shape
        config = self.core.LaunchConfig(grid=grid, block=block)
        self.core.launch(self.stream, config, code.get_kernel(kernel), *given)
        self.stream.sync()
        for array, buffer in buffers:
            self._copy(array, buffer, to_device=False)
            buffer.close(self.stream)

    def _copy(self, array: Array, buffer: Any, to_device: bool) -> None:
        staging = self.pinned.allocate(max(array.nbytes, 1), stream=self.stream)
        view = np.from_dlpack(staging).view(np.uint8)[: array.nbytes]
        flat = array.reshape(-1).view(np.uint8)
        if to_device:
            view[:] = flat
            buffer.copy_from(staging, stream=self.stream)
            self.stream.sync()
        else:
            buffer.copy_to(staging, stream=self.stream)
            self.stream.sync()
            flat[:] = view
        staging.close(self.stream)


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything; prints one line a program and route."""
    parser = argparse.ArgumentParser(prog="gpu_conformance", description="compare the GPU with the PTX machine")
    parser.add_argument("--all", action="store_true", help="every type of every operation")
    options = parser.parse_args(argv)
    try:
        find_rustc(LLVM_MAJOR)
        gpu = Gpu()
    except RglinkError as error:
        print(f"skipped: {error.diagnostic.message}")
        return 0
    # cuda.core's errors have no class in common: no driver, no device, a driver that is too old.
    except Exception as error:
        print(f"skipped: no usable GPU ({type(error).__name__}: {error})")
        return 0
    operations = list(all_operations()) if options.all else sample()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="gpu-conformance-") as name:
        for route in ("llvm", "nvvm"):
            wrong += _run_operations(gpu, operations, route, Path(name))
            wrong += _run_programs(gpu, route, Path(name))
    print(f"{wrong} kernels differ")
    return int(wrong > 0)


def _linked(gpu: Gpu, crate: Path, route: str) -> tuple[Any, LoadedProgram]:
    """A crate as the GPU's code and as a program of the PTX machine, from one fat binary."""
    output = crate.with_suffix(f".{route}.fatbin")
    arches = f"sm_{gpu.arch},compute_{gpu.arch}"
    checked(("rglink", crate.name, "-o", output.name, f"--codegen={route}", "--arch", arches), crate.parent)
    return gpu.core.ObjectCode.from_fatbin(output.read_bytes()), load(output, checks=None)


def _run_operations(gpu: Gpu, operations: Sequence[Operation], route: str, folder: Path) -> int:
    source = folder / "operations.rs"
    source.write_text(crate_source(operations))
    code, program = _linked(gpu, build_device(source, 3), route)
    emulated = compare.DeviceProgram(program)
    start, found = time.monotonic(), []
    shape = (-(-compare.ROWS // compare.BLOCK), compare.BLOCK)
    for operation in operations:
        arguments = compare.inputs(operation, 1)
        out = compare.empty_results(operation)
        gpu.run(code, operation.name, shape, (*arguments, out, compare.ROWS))
        differs = compare.difference(operation, arguments, emulated.results(operation, arguments), out)
        found += [f"{differs.operation}: {differs.shown}"] if differs else []
    return _report(f"operations, {route}", len(operations), found, start)


def _run_programs(gpu: Gpu, route: str, folder: Path) -> int:
    source = Path(shutil.copy(SOURCE, folder / "kernels.rs"))
    code, program = _linked(gpu, build_device(source, 3), route)
    start, found = time.monotonic(), []
    for name in ALONE:
        given, here, there = words(THREADS), np.zeros(THREADS, np.uint64), np.zeros(THREADS, np.uint64)
        shape = (-(-THREADS // BLOCK), BLOCK)
        gpu.run(code, name, shape, (given, here, THREADS))
        program[name][shape](given, there, THREADS)
        found += [f"{name}: thread {np.flatnonzero(here != there)[0]}"] if (here != there).any() else []
    found += [case.kernel for case in CASES if not _case_agrees(gpu, code, program, case)]
    return _report(f"programs, {route}", len(ALONE) + len(CASES), found, start)


def _case_agrees(gpu: Gpu, code: Any, program: LoadedProgram, case: Case) -> bool:
    here, there = case.arguments(), case.arguments()
    gpu.run(code, case.kernel, (case.grid, case.block), here)
    program[case.kernel].launch(case.grid, case.block, there)
    if not case.holds(*here) or not case.holds(*there):
        return False
    return not case.is_deterministic or all(np.array_equal(a, b) for a, b in zip(here, there, strict=True))


def _report(what: str, count: int, found: Iterable[str], start: float) -> int:
    lines = list(found)
    print(f"{what}: {len(lines)} of {count} kernels differ, {time.monotonic() - start:.0f} s")
    for line in lines:
        print(f"  {line}")
    return len(lines)


if __name__ == "__main__":
    raise SystemExit(main())

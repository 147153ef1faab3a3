"""PTX of nvcc: idioms of CUDA C++ compiled here, without optimization and with all of it, against NumPy.

Every kernel runs plainly, and again with all checks under two schedules: to the same values, without a report.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rglink.emulate import LoadedProgram, load
from rglink.emulate.checks import Checks, launch_checked
from tests.tools import NVIDIA_BIN

FOLDER = Path(__file__).parent / "cuda"
HEADERS = NVIDIA_BIN.parent / "include"
BUILDS = [*((arch, level) for arch in (75, 90) for level in ("O0", "O3")), (100, "G")]
Array = NDArray[Any]


@cache
def compiled(source: str, arch: int, level: str) -> LoadedProgram:
    """What nvcc makes of a file for compute_`arch`; `level` is that of the device compiler, or G to debug."""
    if not (NVIDIA_BIN / "nvcc").exists():
        pytest.skip("nvcc is not installed; the dev extra brings it (nvidia-cuda-nvcc)")
    if shutil.which("g++") is None:
        pytest.skip("nvcc wants a host compiler, and there is no g++")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.ptx"
        levels = ["-G"] if level == "G" else ["-Xcicc", f"-{level}"]
        flags = ["-ptx", f"-arch=compute_{arch}", *levels, "-o", str(out)]
        command = [str(NVIDIA_BIN / "nvcc"), *flags, str(FOLDER / source)]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return load(out)


@pytest.fixture(params=BUILDS, ids=[f"sm_{arch}-{level}" for arch, level in BUILDS])
def program(request: pytest.FixtureRequest) -> LoadedProgram:
    """The idioms, once for each build."""
    return compiled("idioms.cu", *request.param)


@pytest.fixture(params=BUILDS, ids=[f"sm_{arch}-{level}" for arch, level in BUILDS])
def with_headers(request: pytest.FixtureRequest) -> LoadedProgram:
    """The kernels that include cuda_fp16.h, which includes nv/target."""
    if not (HEADERS / "nv" / "target").exists():
        pytest.skip("cuda_fp16.h wants nv/target, which is not in nvcc's package but in nvidia-cuda-cccl")
    return compiled("headers.cu", *request.param)


def run(program: LoadedProgram, name: str, grid: Any, block: Any, *args: Any, shared: int = 0) -> str:
    """Launch plainly on copies, then with all checks under two schedules; returns what was printed."""
    kernel = program[name]
    plain = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
    output = kernel.launch(grid, block, plain, shared=shared).output
    checked = launch_checked(kernel, grid, block, args, Checks(schedules=2), shared=shared)
    assert not [report for report in checked.reports if report.level == "error"]
    for first, second in zip(plain, args, strict=True):
        if isinstance(first, np.ndarray):
            assert np.array_equal(first.view(np.uint8), second.view(np.uint8))
    return output


def random_words(count: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)


def test_saxpy(program: LoadedProgram) -> None:
    x, y = np.arange(1000, dtype=np.float32), np.arange(1000, 0, -1, dtype=np.float32)
    expected = 3 * x + y
    run(program, "saxpy", 3, 64, 1000, 3.0, x, y)
    assert (y == expected).all()


def test_reduction_by_shuffles(program: LoadedProgram) -> None:
    x, sums, total = np.arange(1024, dtype=np.int32) ** 2, np.zeros(4, np.int32), np.zeros(1, np.int32)
    run(program, "block_sums", 4, 256, x, sums, total)
    assert (sums == x.reshape(4, 256).sum(axis=1)).all()
    assert total[0] == x.sum()


def test_transpose(program: LoadedProgram) -> None:
    matrix = np.arange(40 * 25, dtype=np.float32).reshape(40, 25)
    out = np.zeros((25, 40), np.float32)
    run(program, "transpose", (2, 3), (16, 16), matrix, out, 40, 25)
    assert (out == matrix.T).all()


def test_pairs_of_halves(program: LoadedProgram) -> None:
    a, b = (np.random.default_rng(seed).integers(-40, 40, (64, 2)).astype(np.float16) for seed in (1, 2))
    products, greater = np.zeros((64, 2), np.float16), np.zeros((64, 2), np.uint16)
    run(program, "half_pairs", 1, 64, a, b, products, greater)
    assert (products == a * b + a).all()
    assert (greater == np.where(a > b, 0xFFFF, 0)).all()


def test_a_loop_of_compare_and_swap(program: LoadedProgram) -> None:
    x, most = np.random.default_rng(3).random(512, np.float32), np.zeros(1, np.float32)
    run(program, "float_max", 2, 256, x, most)
    assert most[0] == x.max()


def ackermann(m: int, n: int) -> int:
    if m == 0:
        return n + 1
    return ackermann(m - 1, 1 if n == 0 else ackermann(m, n - 1))


def test_recursion(program: LoadedProgram) -> None:
    out = np.zeros(40, np.uint32)
    run(program, "recursion", 1, 40, out)
    assert out.tolist() == [ackermann(i % 3, i // 3) for i in range(40)]


def test_function_pointers(program: LoadedProgram) -> None:
    out = np.zeros(70, np.int32)
    run(program, "function_pointers", 1, 70, out)
    factors = [3, 5, 7, 11]
    operations = [lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b]
    assert out.tolist() == [operations[i % 3](i, factors[i & 3]) for i in range(70)]


def test_printf(program: LoadedProgram) -> None:
    word = np.frombuffer(b"thread\0", np.uint8).copy()
    output = run(program, "print", 1, 32, 3, word, 1.25)
    lines = [f"thread {i} of 3: {1.25 * i:.3f} {255:5x}|{7:<4d}|{chr(97 + i)}%\n" for i in range(3)]
    assert output == "".join(lines)


def test_a_scan_in_dynamic_shared_memory(program: LoadedProgram) -> None:
    x, out = random_words(200), np.zeros(200, np.uint32)
    run(program, "inclusive_scan", 1, 200, x, out, shared=2 * 200 * 4)
    assert (out == np.cumsum(x, dtype=np.uint32)).all()


def test_mma(program: LoadedProgram) -> None:
    a, b = (np.random.default_rng(rows).integers(-8, 9, (rows, 8)).astype(np.float16) for rows in (16, 8))
    c = np.zeros((16, 8), np.float32)
    run(program, "matrix_product", 1, 32, a, b, c)
    assert (c == a.astype(np.float32) @ b.astype(np.float32).T + 1).all()


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_asynchronous_copies_and_warp_reductions(level: str) -> None:
    program = compiled("idioms.cu", 90, level)
    tiles, out = np.arange(5 * 256, dtype=np.int32) ** 2 % 1009, np.zeros(256, np.int32)
    run(program, "copied_ahead", 1, 64, tiles, out, 5)
    assert (out == tiles.reshape(5, 256)[:, ::-1].sum(axis=0)).all()
    x, sums, least = random_words(64), np.zeros(64, np.uint32), np.zeros(64, np.int32)
    run(program, "warp_sums", 1, 64, x, sums, least)
    assert (sums.reshape(2, 32) == x.reshape(2, 32).sum(axis=1, dtype=np.uint32)[:, None]).all()
    fours = x.view(np.int32).reshape(2, 8, 4).min(axis=1)
    assert (least.reshape(2, 8, 4) == fours[:, None, :]).all()


def test_structs_by_value_and_a_switch(program: LoadedProgram) -> None:
    layout = np.dtype([("kind", "<i2"), ("sides", "<f8", 3), ("tag", "u1")], align=True)
    base = np.array([(0, (2.0, 3.0, 5.0), 200)], layout)
    out = np.zeros(50)
    run(program, "structs", 1, 50, base[0], out)
    for i, found in enumerate(out.tolist()):
        sides = [2.0, 3.0, 5.0]
        sides[i % 3] += i
        x, y, z = sides
        expected = [x * y * z, x * x * y, z - y, x / y, np.sqrt(z), x * y + z, 200, -1, -1][i % 9]
        assert found == expected, i


def test_elementary_functions(program: LoadedProgram) -> None:
    """The bounds are those that the CUDA C++ Programming Guide states, in units in the last place."""
    source = np.random.default_rng(4)
    x = np.concatenate([source.uniform(-4, 4, 128), source.uniform(-1e6, 1e6, 128)]).astype(np.float32)
    y = source.uniform(1e-3, 1e6, 256)
    sines, exponentials, logarithms, powers = (np.zeros(256, t) for t in (np.float32, np.float32, float, float))
    run(program, "elementary", 2, 128, x, sines, exponentials, y, logarithms, powers)
    wide = x.astype(np.longdouble)
    scaled = (x * np.float32(8e-5)).astype(np.longdouble)
    exact_y = y.astype(np.longdouble)
    for found, exact, bound in (
        (sines, np.sin(wide), 2),
        (exponentials, np.exp(scaled), 2),
        (logarithms, np.log(exact_y), 1),
        (powers, exact_y**1.5, 2),
    ):
        unit = np.spacing(np.abs(exact).astype(found.dtype)).astype(np.longdouble)
        assert (np.abs(found - exact) <= (bound + 0.5) * unit).all()


def bits_of(v: int) -> int:
    """What the kernel `bits` computes of one word."""
    low, high = 2**32 - 1, 2**64 - 1
    w = v * 0x9E3779B97F4A7C15 & high
    word = w & low
    signed = v - 2**32 if v >> 31 else v
    first_set = (v & -v).bit_length()
    found = v.bit_count() + 32 - v.bit_length() + first_set + w.bit_count() + 64 - (w | 1).bit_length()
    both = v.to_bytes(4, "little") + word.to_bytes(4, "little")
    permuted = int.from_bytes(bytes(both[n] for n in (1, 7, 4, 2)), "little")
    shifted = ((word << 32 | v) << (v & 31)) >> 32 & low
    found ^= int(f"{v:032b}"[::-1], 2) ^ permuted ^ shifted
    found += w // (v | 1) + w % 1000003 + (v * 0xDEADBEEF >> 32) + (signed * -77 >> 32)
    dotted = sum(x * y for x, y in zip(v.to_bytes(4, "little"), word.to_bytes(4, "little"), strict=True))
    return found + dotted + 5 & low


def test_bits(program: LoadedProgram) -> None:
    x = random_words(128)
    x[:4] = (0, 1, 2**31, 2**32 - 1)
    out = np.zeros(128, np.uint32)
    run(program, "bits", 1, 128, x, out)
    assert out.tolist() == [bits_of(int(v)) for v in x]


def test_the_last_block_adds_up(program: LoadedProgram) -> None:
    x, partial, out = random_words(640), np.zeros(10, np.uint32), np.zeros(1, np.uint32)
    run(program, "last_block", 10, 64, x, partial, out)
    assert out[0] == x.sum(dtype=np.uint32)


def test_virtual_functions_of_objects_on_the_heap(program: LoadedProgram) -> None:
    out = np.zeros(64, np.int32)
    run(program, "virtual_calls", 1, 64, out)
    assert out.tolist() == [2 * i if i % 2 else 7 * i for i in range(64)]


def test_halves_by_their_names(with_headers: LoadedProgram) -> None:
    a, b = (np.random.default_rng(seed).integers(-9, 9, (64, 2)).astype(np.float16) for seed in (1, 2))
    sums, flags = np.zeros((64, 2), np.float16), np.zeros(64, np.int32)
    run(with_headers, "half_pairs", 1, 64, a, b, sums, flags)
    assert (sums == a * b + np.maximum(a, b)).all()
    assert (flags == (a > b).all(axis=1) + 2 * (a != b).all(axis=1)).all()


def test_matrices_by_their_names(with_headers: LoadedProgram) -> None:
    a, b = (np.random.default_rng(seed).integers(-8, 9, (16, 32)).astype(np.float16) for seed in (1, 2))
    c = np.zeros((16, 16), np.float32)
    run(with_headers, "matrices", 1, 32, a, b, c)
    assert (c == 2 * (a.astype(np.float32) @ b.astype(np.float32).T + 0.5)).all()

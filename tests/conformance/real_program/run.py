"""The kernels on both sides: inputs, launches, and which results may differ in a NaN's bits."""

from __future__ import annotations

import base64
import ctypes
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rglink.emulate import LoadedProgram

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
CHUNK = 64
BLOCK = 128
# Bytes that kernels may read behind the last chunk.
TAIL = 320
# Their results are the bits of an f64: any NaN equals any.
FLOATS = frozenset("float_functions distributions half_floats text_to_float mandelbrot".split())


def inputs(threads: int, seed: int = 11) -> Bytes:
    """A chunk of 64 bytes for each thread, in turn of every sort that some kernel understands."""
    rng = np.random.default_rng(seed)
    chunks = [_chunk(number % 8, rng) for number in range(threads)]
    return np.frombuffer(b"".join(chunks) + rng.bytes(TAIL), np.uint8).copy()


def _chunk(sort: int, rng: np.random.Generator) -> bytes:
    noise = rng.bytes(CHUNK)
    number = f"{rng.normal(0, 1e3):.7g}e{rng.integers(-30, 30)}"
    found = {
        0: noise,
        1: noise[:32].hex().encode(),
        2: base64.b64encode(noise[:48]),
        3: number.ljust(16).encode() + noise,
        4: _deflated(b"gpu " * int(rng.integers(3, 90)) + noise[:8]) + noise,
        5: noise[:4] + b"," + noise[5:30] + b"gpu" + noise,
        6: f"  -{rng.integers(0, 10**9)}.5".ljust(16).encode() + bytes([1, 2]) + noise,
        7: bytes(rng.integers(0, 4, CHUNK, np.uint8)),
    }[sort]
    return found[:CHUNK]


def _deflated(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


def host_results(library: Path, kernel: str, given: Bytes, threads: int) -> Words:
    """What the host computes, shape (threads,)."""
    out = np.zeros(threads, np.uint64)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (given, out)]
    getattr(ctypes.CDLL(str(library)), kernel)(
        pointers[0], ctypes.c_size_t(len(given)), pointers[1], ctypes.c_size_t(threads)
    )
    return out


def device_results(program: LoadedProgram, kernel: str, given: Bytes, threads: int) -> Words:
    """What the PTX machine computes, shape (threads,)."""
    out = np.zeros(threads, np.uint64)
    program[kernel][-(-threads // BLOCK), BLOCK](given, len(given), out, threads)
    return out


def differing(kernel: str, host: Words, device: Words) -> NDArray[np.int64]:
    """The threads whose results differ."""
    wrong = host != device
    if kernel in FLOATS:
        wrong &= ~(np.isnan(host.view(np.float64)) & np.isnan(device.view(np.float64)))
    if kernel == "float_functions_32":
        narrow = (host.astype(np.uint32).view(np.float32), device.astype(np.uint32).view(np.float32))
        wrong &= ~(np.isnan(narrow[0]) & np.isnan(narrow[1]))
    return np.flatnonzero(wrong)

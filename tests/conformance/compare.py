"""Runs each operation on the host and on the PTX machine and compares every bit of every result."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rglink.diagnostics import RglinkError
from rglink.emulate import LoadedProgram, load
from tests.conformance.table import ANY_ZERO, EXACT, Operation
from tests.conformance.types import FRACTION, Bytes, Scalar, argument_values, result_shape

# 1,000 random inputs and more; three in ten of all arguments are edge values.
ROWS = 1_280
BLOCK = 128
FILL = 0xA5


@dataclass(frozen=True)
class Difference:
    """An operation whose results differ; `shown` names the first of the `count` inputs and both results."""

    operation: str
    count: int
    shown: str


def inputs(operation: Operation, seed: int) -> list[Bytes]:
    """An operation's arguments, each of shape (ROWS, size); the same for the same seed."""
    rng = np.random.default_rng([seed, zlib.crc32(operation.name.encode())])
    found: list[Bytes] = []
    for spec in operation.arguments:
        values = argument_values(spec, ROWS, rng)
        # Equal arguments are an edge of their own.
        if found and spec == operation.arguments[0]:
            equal = rng.random(ROWS) < 0.1
            values[equal] = found[0][equal]
        found.append(_aligned(values))
    return found


class HostLibrary:
    """The crate as the host runs it."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def results(self, operation: Operation, arguments: list[Bytes]) -> Bytes:
        """The results, shape (ROWS, size of a result)."""
        out = empty_results(operation)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arguments, out)]
        getattr(self._library, operation.name)(*pointers, ctypes.c_size_t(ROWS))
        return out


class DeviceProgram:
    """The crate as one configuration links it, run by the PTX machine."""

    def __init__(self, linked: Path | LoadedProgram) -> None:
        self.program = load(linked, checks=None) if isinstance(linked, Path) else linked

    def results(self, operation: Operation, arguments: list[Bytes]) -> Bytes:
        """The results, shape (ROWS, size of a result)."""
        out = empty_results(operation)
        self.program[operation.name][-(-ROWS // BLOCK), BLOCK](*arguments, out, ROWS)
        return out


def compare(operations: Iterable[Operation], host: HostLibrary, device: DeviceProgram, seed: int) -> list[Difference]:
    """What differs, in the operations' order; a kernel that the machine stops differs in every row."""
    found: list[Difference] = []
    for operation in operations:
        arguments = inputs(operation, seed)
        expected = host.results(operation, arguments)
        try:
            results = device.results(operation, arguments)
        except RglinkError as error:
            found.append(Difference(operation.name, ROWS, error.diagnostic.render()))
            continue
        differs = difference(operation, arguments, expected, results)
        found.extend([differs] if differs else [])
    return found


def difference(operation: Operation, arguments: list[Bytes], host: Bytes, device: Bytes) -> Difference | None:
    """How the device's results differ from the host's, or None."""
    wrong = np.flatnonzero(~equal_results(operation, host, device))
    if not len(wrong):
        return None
    row = int(wrong[0])
    values = ", ".join(_hex(array[row]) for array in arguments)
    shown = f"{operation.rust} at ({values}): host {_hex(host[row])}, device {_hex(device[row])}"
    return Difference(operation.name, len(wrong), shown)


def equal_results(operation: Operation, host: Bytes, device: Bytes) -> NDArray[np.bool_]:
    """Which rows are equal by the operation's rule, shape (ROWS,)."""
    scalar, count = result_shape(operation.result)
    shape = (ROWS, count, scalar.size)
    same = np.all(host.reshape(shape) == device.reshape(shape), axis=2)
    if operation.rule != EXACT:
        same |= _is_nan(scalar, host) & _is_nan(scalar, device)
    if operation.rule == ANY_ZERO:
        same |= _is_zero(scalar, host) & _is_zero(scalar, device)
    return np.asarray(np.all(same, axis=1))


def _words(scalar: Scalar, values: Bytes) -> NDArray[np.uint64]:
    """Floats without their sign, shape (ROWS, count)."""
    unsigned = values.view(f"u{scalar.size}").astype(np.uint64)
    return unsigned & np.uint64((1 << scalar.bits - 1) - 1)


def _is_nan(scalar: Scalar, values: Bytes) -> NDArray[np.bool_]:
    fraction = FRACTION[scalar.bits]
    infinity = (1 << scalar.bits - 1) - (1 << fraction)
    return np.asarray(_words(scalar, values) > np.uint64(infinity))


def _is_zero(scalar: Scalar, values: Bytes) -> NDArray[np.bool_]:
    return np.asarray(_words(scalar, values) == 0)


def empty_results(operation: Operation) -> Bytes:
    """Room for an operation's results, shape (ROWS, size of a result), filled with a pattern."""
    scalar, count = result_shape(operation.result)
    return _aligned(np.full((ROWS, scalar.size * count), FILL, np.uint8))


def _aligned(values: Bytes) -> Bytes:
    """A copy at a multiple of 16 bytes, as the host wants 128-bit integers."""
    room = np.empty(values.size + 16, np.uint8)
    start = -room.ctypes.data % 16
    copy = room[start : start + values.size].reshape(values.shape)
    copy[:] = values
    return copy


def _hex(value: Bytes) -> str:
    return f"0x{int.from_bytes(value.tobytes(), 'little'):0{2 * value.size}x}"

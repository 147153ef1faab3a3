"""Arguments of a launch to the bytes of a kernel's parameters.

An array is copied into the machine's memory and passed as a pointer; afterwards it is copied back in place. Arrays
that share memory share it in the machine too. A number takes the type of its parameter: where PTX says only `.b32` or
`.b64`, an int is an integer and a float is a float of that size.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rglink.demangle import demangle
from rglink.emulate.errors import LaunchError
from rglink.emulate.memory import Arena
from rglink.emulate.ptx import Function, Parameter

# A tuple is an aggregate of 8-byte words: pointers and integers.
Argument: TypeAlias = "NDArray[Any] | np.generic | int | float | bool | bytes | tuple[Any, ...]"
FLOAT_CODES = {2: "<e", 4: "<f", 8: "<d"}


class Buffers:
    """The arrays of one launch in the machine's memory."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.found: dict[int, tuple[NDArray[Any], int]] = {}

    def address(self, array: NDArray[Any], what: str) -> int:
        """Where the array lies; it is copied in on first sight.

        Raises:
            LaunchError: it is not one contiguous stretch of memory.
        """
        if not array.flags.c_contiguous:
            raise LaunchError(f"{what} is not contiguous; pass a copy")
        root = array
        while isinstance(root.base, np.ndarray) and root.base.flags.c_contiguous:
            root = root.base
        if id(root) not in self.found:
            name = f"the array of {what}"
            address = self.arena.allocate(name, "buffer", root.nbytes)
            self.arena.slice(address, root.nbytes)[:] = _bytes(root)
            self.found[id(root)] = (root, address)
        start = self.found[id(root)][1]
        return start + int(array.__array_interface__["data"][0]) - int(root.__array_interface__["data"][0])

    def copy_back(self) -> None:
        """Bring what the kernel wrote into the arrays that can be written."""
        for root, address in self.found.values():
            if root.flags.writeable:
                _bytes(root)[:] = self.arena.slice(address, root.nbytes)


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def pack_arguments(function: Function, args: Sequence[Argument], buffers: Buffers) -> bytes:
    """The parameter bytes of a kernel.

    Raises:
        LaunchError: another number of arguments, or one that does not fit its parameter.
    """
    if len(args) != len(function.parameters):
        wanted = ", ".join(f".{p.type}" if p.size <= 8 else f"{p.size} bytes" for p in function.parameters)
        raise LaunchError(
            f"{demangle(function.name)} takes {len(function.parameters)} arguments ({wanted or 'none'}),"
            f" {len(args)} were given"
        )
    data = bytearray()
    for number, (parameter, argument) in enumerate(zip(function.parameters, args, strict=True), 1):
        data.extend(bytes(-len(data) % parameter.align))
        data += _argument_bytes(f"argument {number} of {demangle(function.name)}", parameter, argument, buffers)
    return bytes(data)


def _argument_bytes(what: str, parameter: Parameter, argument: Argument, buffers: Buffers) -> bytes:
    size = parameter.size
    if isinstance(argument, tuple):
        argument = b"".join(_word(what, item, buffers) for item in argument)
    if isinstance(argument, bytes | np.void):
        data = argument if isinstance(argument, bytes) else argument.tobytes()
        if len(data) != size:
            raise LaunchError(f"{what} has {len(data)} bytes, the parameter {size}")
        return data
    if isinstance(argument, np.ndarray):
        if size != 8:
            raise LaunchError(f"{what} is an array, the parameter is no pointer but {size} bytes (.{parameter.type})")
        return buffers.address(argument, what).to_bytes(8, "little")
    if isinstance(argument, np.generic):
        return _scalar_bytes(what, parameter, argument)
    if isinstance(argument, bool | int | float):
        return _number_bytes(what, parameter, argument)
    raise LaunchError(f"{what} is a {type(argument).__name__}, wanted an array, a number or bytes")


def _word(what: str, item: Any, buffers: Buffers) -> bytes:
    if isinstance(item, np.ndarray):
        return buffers.address(item, what).to_bytes(8, "little")
    if isinstance(item, int | np.integer):
        return (int(item) & (2**64 - 1)).to_bytes(8, "little")
    raise LaunchError(f"{what} holds a {type(item).__name__}, wanted arrays and integers")


def _scalar_bytes(what: str, parameter: Parameter, scalar: np.generic) -> bytes:
    """A NumPy scalar, whose type is taken at its word."""
    is_float = parameter.type in ("f16", "f32", "f64")
    kind = scalar.dtype.kind
    if (
        scalar.dtype.itemsize != parameter.size
        or (kind == "f") < is_float
        or (kind == "f" and parameter.type[0] in "us")
    ):
        raise LaunchError(f"{what} is a {scalar.dtype}, the parameter is .{parameter.type} of {parameter.size} bytes")
    return scalar.tobytes()


def _number_bytes(what: str, parameter: Parameter, number: bool | int | float) -> bytes:
    size, ptx_type = parameter.size, parameter.type
    if size not in (1, 2, 4, 8):
        raise LaunchError(f"{what} is a number, the parameter has {size} bytes")
    if ptx_type[0] == "f" or (isinstance(number, float) and ptx_type[0] == "b" and size in FLOAT_CODES):
        try:
            return struct.pack(FLOAT_CODES[size], float(number))
        except OverflowError:
            raise LaunchError(f"{what} is {number}, out of the range of a float of {size} bytes") from None
    if isinstance(number, float):
        raise LaunchError(f"{what} is {number}, the parameter is an integer (.{ptx_type})")
    if not -(1 << 8 * size - 1) <= number < 1 << 8 * size:
        raise LaunchError(f"{what} is {number}, which does not fit into {size} bytes")
    return (int(number) & ((1 << 8 * size) - 1)).to_bytes(size, "little")

"""Variables and parameters as PTX declares them.

Source: PTX ISA, "State Spaces, Types, and Variables", "Function Declarations and Definitions".
"""

from __future__ import annotations

import math

from rglink.emulate.constants import TokenStream, initializer_of
from rglink.emulate.ptx import TYPE_SIZES, Parameter, Relocation, Variable

LINKAGE = frozenset((".visible", ".extern", ".weak", ".common"))


def type_of(stream: TokenStream) -> str:
    """A type such as `.b32`, without its dot."""
    word = stream.take()
    name = word[1:]
    if word[0] != "." or (name not in TYPE_SIZES and name not in ("pred", "texref", "samplerref", "surfref")):
        raise stream.error(f"{word!r} is no type of PTX")
    return name


def _dimensions(stream: TokenStream) -> list[int]:
    found: list[int] = []
    while stream.accept("["):
        found.append(0 if stream.text == "]" else stream.integer())
        stream.expect("]")
    return found


def _alignment(stream: TokenStream) -> int:
    return stream.integer() if stream.accept(".align") else 0


def read_variable(stream: TokenStream, space: str, external: bool) -> list[Variable]:
    """Read the declaration after its state space, up to and with the semicolon; several names may share it."""
    space = space.split("::")[0].split("[")[0]
    if stream.accept("["):  # .const[3], the banks of old
        stream.integer()
        stream.expect("]")
    if stream.accept(".attribute"):
        while stream.take() != ")":
            pass
    align = _alignment(stream)
    lanes = {".v2": 2, ".v4": 4, ".v8": 8}.get(stream.text, 1)
    if lanes > 1:
        stream.take()
    ptx_type = type_of(stream)
    align = align or _alignment(stream)
    width = TYPE_SIZES.get(ptx_type, 8)
    found: list[Variable] = []
    while True:
        found.append(_named_variable(stream, space, (ptx_type, width, lanes, align or width * lanes), external))
        if not stream.accept(","):
            stream.expect(";")
            return found


def _named_variable(stream: TokenStream, space: str, shape: tuple[str, int, int, int], external: bool) -> Variable:
    """One name of a declaration; `shape` is its type, the type's bytes, elements of a vector, and alignment."""
    ptx_type, width, lanes, align = shape
    name = stream.take()
    dimensions = _dimensions(stream)
    if lanes > 1:
        dimensions.append(lanes)
    initial = b""
    relocations: tuple[Relocation, ...] = ()
    if stream.accept("="):
        read = initializer_of(stream, ptx_type, width, dimensions)
        initial, relocations = bytes(read.data), tuple(read.relocations)
        if dimensions and dimensions[0] == 0:
            row = width * math.prod(dimensions[1:])
            dimensions[0] = -(-len(initial) // row)
    size = width * math.prod(dimensions)
    if len(initial) > size:
        raise stream.error(f"the initialiser of {name} has {len(initial)} bytes, the variable {size}")
    return Variable(name, space, ptx_type, align, size, initial, relocations, external)


def parameters_of(stream: TokenStream) -> tuple[Parameter, ...]:
    """Read a parenthesised list of formal parameters or results."""
    stream.expect("(")
    found: list[Parameter] = []
    while not stream.accept(")"):
        found.append(_parameter(stream))
        if not stream.accept(","):
            stream.expect(")")
            break
    return tuple(found)


def _parameter(stream: TokenStream) -> Parameter:
    word = stream.take()
    if word not in (".param", ".reg"):
        raise stream.error(f"found {word!r}, wanted a parameter")
    align = _alignment(stream)
    ptx_type = type_of(stream)
    while stream.text in (".ptr", ".align", ".global", ".shared", ".const", ".local", ".param"):
        # The alignment of what a pointer parameter points to says nothing of the parameter itself.
        if stream.take() == ".align":
            stream.integer()
    name = stream.take()
    size = width = TYPE_SIZES.get(ptx_type, 8)
    for extent in _dimensions(stream):
        size *= extent
    return Parameter(name, ptx_type, align or width, size, word == ".reg")

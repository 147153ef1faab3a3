"""All arithmetic instructions of PTX by name: which module knows an opcode, and its function made once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from rglink.emulate import compare, convert, floats, integers, matrix
from rglink.emulate.errors import Unsupported
from rglink.emulate.forms import Builder, Modifiers, Operation, operations, spell

_ELSEWHERE: Mapping[str, Builder] = {**compare.BUILDERS, **convert.BUILDERS, **matrix.BUILDERS}
NAMES = frozenset({*integers.BUILDERS, *floats.BUILDERS, *_ELSEWHERE})


@cache
def resolve(name: str, modifiers: Modifiers) -> Operation:
    """The function of bit patterns that the opcode stands for: see `forms` for operands and the floating-point state.

    `modifiers` are the dot parts after the name, the type last. Results that are a pair (with .cc, a predicate beside
    the destination) come as a tuple. Cached.

    Raises:
        Unsupported: no such instruction, or a modifier or type that it does not have; the text names it.
    """
    builder = _ELSEWHERE.get(name)
    if builder is None:
        ours = floats.BUILDERS if any(part in floats.KINDS for part in modifiers) else integers.BUILDERS
        builder = ours.get(name)
    if builder is None:
        raise Unsupported(f"{spell(name, modifiers)}: no such instruction")
    return builder(modifiers)


def _builder(name: str) -> Builder:
    return lambda modifiers: resolve(name, modifiers)


OPERATIONS = operations({name: _builder(name) for name in sorted(NAMES)})

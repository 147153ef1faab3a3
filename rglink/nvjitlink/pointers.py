"""Where the generic pointers of a function point, as far as their history tells.

Inline PTX hides a pointer from LLVM's own inference (`InferAddressSpaces.cpp`); a generic `atom` is slower than one
with a state space, and one on local memory is an error of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rglink.irinst import Instruction, instructions, phi_incoming
from rglink.irtext import Item, read_function, split_commas

LOCAL_SPACE = 5
_CAST = re.compile(r"addrspacecast \(ptr addrspace\((\d+)\) (.*) to ptr\)$")
_CONSTANT_GEP = re.compile(r"getelementptr (?:(?:inbounds|nuw|nusw|inrange\([^)]*\)) )*\(")


class PointerSpaces:
    """Which address space a generic pointer of one function is known to point to.

    Inline PTX hides the pointer from LLVM's own inference, and a generic `atom` is slower; one on local memory is
    an error of the machine.
    """

    def __init__(self, item: Item) -> None:
        function = read_function(item.head)
        self._made: Mapping[str, Instruction] = {each.result: each for each in instructions(item.body) if each.result}
        # What a kernel is given points to global memory (CUDA programming guide); `byval` is a local copy.
        kernel = function.calling_convention == "ptx_kernel"
        self._parameters = {
            p.name: LOCAL_SPACE if "byval" in p.attributes else 1 if kernel else 0
            for p in function.parameters
            if p.type == "ptr"
        }

    def of(self, space: int, pointer: str) -> tuple[int, str]:
        """The space, and the operand ("ptr addrspace(3) @x") where no new cast is needed ("" otherwise)."""
        if space != 0:
            return space, ""
        cast = _CAST.match(pointer)
        if cast:
            return int(cast[1]), f"ptr addrspace({cast[1]}) {cast[2]}"
        known = self._known(pointer, set())
        return known or 0, ""

    def _known(self, pointer: str, visited: set[str]) -> int | None:
        """The one space of all that `pointer` may be; 0 when unknown, None when it is only itself again."""
        if pointer in visited or pointer in ("null", "undef", "poison"):
            return None
        visited.add(pointer)
        if not pointer.startswith("%"):
            return _constant_space(pointer)
        if pointer in self._parameters:
            return self._parameters[pointer]
        made = self._made.get(pointer)
        if made is None:
            return 0
        if made.opcode == "alloca":
            return LOCAL_SPACE
        if made.opcode == "addrspacecast":
            match = re.match(r"ptr addrspace\((\d+)\) ", made.rest)
            return int(match[1]) if match else 0
        return self._of_all(_sources(made), visited)

    def _of_all(self, sources: Sequence[str], visited: set[str]) -> int | None:
        found = {self._known(source, visited) for source in sources} - {None}
        if len(found) > 1 or not sources:
            return 0
        return found.pop() if found else None


def _sources(made: Instruction) -> list[str]:
    """The pointers that an instruction's result is derived from, all of one function."""
    if made.opcode == "phi":
        return [value for value, _ in phi_incoming(made)[1]]
    parts = split_commas(made.rest)
    if made.opcode == "select":
        return [part.removeprefix("ptr ") for part in parts[1:3]]
    if made.opcode == "getelementptr":
        return [part.removeprefix("ptr ") for part in parts[1:2] if part.startswith("ptr ")]
    if made.opcode == "freeze":
        return [part.removeprefix("ptr ") for part in parts[:1]]
    return []


def _constant_space(pointer: str) -> int:
    """Of a constant expression: a variable in the generic space ends up in global memory."""
    if pointer.startswith("@"):
        return 1
    cast = _CAST.match(pointer)
    if cast:
        return int(cast[1])
    element = _CONSTANT_GEP.match(pointer)
    if element:
        parts = split_commas(pointer[element.end() : -1])
        return _constant_space(parts[1].removeprefix("ptr ")) if len(parts) > 1 else 0
    return 0

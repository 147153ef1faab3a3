"""Step 3 of the device ABI: memory that a kernel reaches through its parameters is global.

A host can pass the address of global memory only (device memory, or host memory mapped into the same window): the
shared and local windows exist inside a running block. So the ABI lets every pointer parameter of a kernel be read
as global, and every word of an aggregate parameter that the kernel turns into a pointer: rustc passes slices and
by-value structs as arrays of integers. Pointers read from memory stay generic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rglink.irinst import instructions
from rglink.irtext import Item, ModuleText, read_function
from rglink.lto.derived import GLOBAL, retarget_accesses

KERNEL_CONVENTION = "ptx_kernel"
_WORD = re.compile(r".* (%\S+), \d+(?:, |\Z)")
_TO_POINTER = re.compile(r"i64 (%\S+) to ptr(?:,|\Z)")


@dataclass(frozen=True)
class GlobalizeCounts:
    """Kernels looked at, their pointers that come from parameters, and the accesses seen and changed."""

    kernels: int = 0
    roots: int = 0
    seen: int = 0
    changed: int = 0


def globalize_kernel_pointers(text: ModuleText) -> GlobalizeCounts:
    """Send the kernels' accesses through parameters to addrspace(1). Wants always-inline and SROA to have run."""
    kernels = roots = seen = changed = 0
    for item in text.of_kind("define"):
        if KERNEL_CONVENTION not in item.head:
            continue
        function = read_function(item.head)
        if function.calling_convention != KERNEL_CONVENTION:
            continue
        kernels += 1
        found = _roots(item)
        if not found:
            continue
        counts = retarget_accesses(item, dict.fromkeys(found, GLOBAL))
        roots += len(found)
        seen += counts.seen
        changed += counts.changed
    return GlobalizeCounts(kernels, roots, seen, changed)


def _roots(item: Item) -> list[str]:
    """Pointer parameters, and the pointers made of words of aggregate parameters."""
    parameters = read_function(item.head).parameters
    roots = [p.name for p in parameters if p.type == "ptr" and not re.search(r"\bbyval\b", p.attributes)]
    aggregates = {p.name for p in parameters if p.type[:1] in "[{<%"}
    if not aggregates:
        return roots
    body = list(instructions(item.body))
    words: set[str] = set()
    for instruction in body:
        if instruction.opcode != "extractvalue":
            continue
        source = _WORD.match(instruction.rest)
        if source and source[1] in aggregates | words:
            words.add(instruction.result)
    for instruction in body:
        pointer = _TO_POINTER.match(instruction.rest) if instruction.opcode == "inttoptr" else None
        if pointer and pointer[1] in words:
            roots.append(instruction.result)
        if instruction.opcode == "extractvalue" and instruction.result in words:
            roots += [instruction.result] if _extracts_pointer(instruction.rest) else []
    return roots


def _extracts_pointer(rest: str) -> bool:
    """Whether an extractvalue of a flat struct `{ ptr, i64 }` or array takes a pointer out of it."""
    match = re.match(r"(?:\{ (.*) \}|\[\d+ x (ptr)\]) %\S+, (\d+)(?:, !|\Z)", rest)
    if match is None:
        return False
    if match[2]:
        return True
    fields = match[1].split(", ")
    return not re.search(r"[\[{<]", match[1]) and fields[int(match[3])] == "ptr"

"""What an instruction means to the memory model: its order, its scope.

Source: PTX ISA, "Memory Consistency Model": strong operations, morally strong, release and acquire patterns.
"""

from __future__ import annotations

from dataclasses import dataclass

from rglink.emulate.ptx import Instruction

STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "mmio"))


@dataclass(frozen=True, slots=True)
class Meaning:
    """`strong` operations may meet others without a race; `wide` says that the scope reaches beyond the block."""

    strong: bool
    acquires: bool
    releases: bool
    wide: bool


class Meanings:
    """Meanings of instructions, each found once."""

    def __init__(self) -> None:
        self._found: dict[int, Meaning] = {}

    def of(self, instruction: Instruction) -> Meaning:
        """The meaning of a load, store, atomic or fence; a fence without an order is acquire and release."""
        found = self._found.get(id(instruction))
        if found is None:
            found = self._found[id(instruction)] = meaning_of(instruction)
        return found


def meaning_of(instruction: Instruction) -> Meaning:
    name, *parts = instruction.opcode
    words = set(parts)
    wide = "cta" not in words
    if name in ("membar", "fence"):
        ordering = "proxy" not in words and "mbarrier_init" not in words
        acquires = ordering and "release" not in words
        return Meaning(ordering, acquires, ordering and "acquire" not in words, wide)
    if name == "mbarrier":
        waits, ordered = parts[0].endswith("_wait"), "relaxed" not in words
        begins = parts[0] in ("init", "inval")
        return Meaning(not begins, waits and ordered, parts[0].startswith("arrive") and ordered, "cluster" in words)
    strong = name in ("atom", "red") or bool(words & STRONG)
    both = bool(words & {"acq_rel", "sc"})
    return Meaning(strong, both or "acquire" in words, both or "release" in words, wide)

"""Which pointers of a function lead into one address space only, and accesses through them.

A pointer is derived from a space if it is a root, a cast from that space, an address within a derived one, or a
phi or select whose every incoming value is derived from the same space or null, undef, poison. The solution is the
greatest one, so that loops that walk a pointer are derived.

LLVM's own pass for this (InferAddressSpaces) is not in `default<O3>`. Two shapes survive that pipeline: addresses
computed in the space itself (`Derived.inside`), used where the base is known in it, and a cast right at the access,
used behind phis and for parameters; a cast at the parameter and back would be folded away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rglink.irinst import Access, Instruction, instructions, phi_incoming, read_access
from rglink.irtext import Item, code_of, expect_equal, split_commas

GLOBAL, SHARED, CONSTANT = 1, 3, 4
_GENERIC = 0
_NEUTRAL = frozenset({"null", "undef", "poison"})
_SPACE = re.compile(r"ptr addrspace\((\d+)\) ")
_CAST = re.compile(r"addrspacecast \(ptr addrspace\((\d+)\) (.*) to ptr\)\Z")
_OFFSET = re.compile(r"(getelementptr (?:(?:[a-z]+|inrange\([-0-9, ]+\)) )*)\((.*)\)\Z")
_FROM_SPACE = re.compile(r"ptr addrspace\((\d+)\) (.*) to ptr(?:,|\Z)")


@dataclass(frozen=True)
class AccessCounts:
    """Accesses through derived pointers that were seen still generic, and those that were changed.

    `constant_stores` are body lines that write through a pointer into constant memory; they are left alone.
    """

    seen: int = 0
    changed: int = 0
    constant_stores: tuple[int, ...] = ()


@dataclass
class Derived:
    """`spaces` of local names; `inside` the name or constant, in that space, that a generic name stands for."""

    spaces: dict[str, int]
    inside: dict[str, tuple[int, str]] = field(default_factory=dict)

    def of(self, value: str) -> int | None:
        """The space of an operand, 0 for generic, None for one that fits any."""
        if value in _NEUTRAL:
            return None
        known = self.within(value)
        return known[0] if known else self.spaces.get(value, _GENERIC)

    def within(self, value: str) -> tuple[int, str] | None:
        """An operand's space and its name or constant in that space, where that is known."""
        return self.inside.get(value) or constant_within(value)


def constant_within(value: str) -> tuple[int, str] | None:
    """As `Derived.within` for a constant expression: a cast, or an offset from one."""
    if match := _CAST.match(value):
        return int(match[1]), match[2]
    match = _OFFSET.match(value)
    if match is None:
        return None
    element, base, *indices = split_commas(match[2])
    known = constant_within(base.removeprefix("ptr "))
    if known is None:
        return None
    space, inner = known
    return space, f"{match[1]}({', '.join([element, f'ptr addrspace({space}) {inner}', *indices])})"


def find_derived(body: Sequence[Instruction], roots: Mapping[str, int], prefix: str) -> Derived:
    """All pointers derived from `roots` (names with `%`) and from casts. New names begin with `prefix`."""
    derived = Derived(dict(roots))
    pointers = {i.result: i for i in body if i.opcode in ("getelementptr", "phi", "select", "addrspacecast")}
    sources = {name: source for name, i in pointers.items() if (source := _sources(i)) is not None}
    for name, instruction in pointers.items():
        cast = _FROM_SPACE.match(instruction.rest) if instruction.opcode == "addrspacecast" else None
        if cast:
            derived.inside[name] = int(cast[1]), cast[2]
    _follow_offsets(pointers, derived, prefix)
    # Start from "fits any" and lower until nothing changes.
    undecided: dict[str, int | None] = {name: None for name in sources if name not in derived.inside}
    changed = True
    while changed:
        changed = False
        for name, old in undecided.items():
            new = _meet(undecided[s] if s in undecided else derived.of(s) for s in sources[name])
            if new != old:
                undecided[name] = new
                changed = True
    derived.spaces.update({name: space for name, space in undecided.items() if space})
    return derived


def _follow_offsets(pointers: Mapping[str, Instruction], derived: Derived, prefix: str) -> None:
    """Name the addresses that can be computed in the space itself."""
    offsets = [i for i in pointers.values() if i.opcode == "getelementptr" and _sources(i) is not None]
    changed = True
    while changed:
        changed = False
        for instruction in offsets:
            known = derived.within(_base(instruction))
            if known and instruction.result not in derived.inside:
                derived.inside[instruction.result] = known[0], f"%{prefix}{len(derived.inside)}"
                changed = True


def _base(instruction: Instruction) -> str:
    return split_commas(instruction.rest)[1].removeprefix("ptr ")


def _sources(instruction: Instruction) -> list[str] | None:
    """The generic pointers that an address, phi or select takes its value from; None for anything else."""
    rest = instruction.rest
    if instruction.opcode == "getelementptr":
        _, base, *indices = split_commas(rest)
        if not base.startswith("ptr ") or _SPACE.match(base) or any(index.startswith("<") for index in indices):
            return None
        return [base.removeprefix("ptr ")]
    if instruction.opcode == "phi":
        if not rest.startswith("ptr ["):
            return None
        return [value for value, _ in phi_incoming(instruction)[1]]
    if instruction.opcode == "select":
        _, first, second, *_ = split_commas(rest)
        if not first.startswith("ptr ") or _SPACE.match(first):
            return None
        return [first.removeprefix("ptr "), second.removeprefix("ptr ")]
    return None


def _meet(spaces: Iterable[int | None]) -> int | None:
    known = {space for space in spaces if space is not None}
    if len(known) > 1:
        return _GENERIC
    return known.pop() if known else None


def retarget_accesses(item: Item, roots: Mapping[str, int]) -> AccessCounts:
    """Send each load, store and atomic of a definition through its pointer's space; `item` is changed in place."""
    body = list(instructions(item.body))
    prefix = _fresh_prefix(item)
    derived = find_derived(body, roots, prefix)
    edit = _BodyEdit(item, prefix)
    seen = 0
    stores: list[int] = []
    for instruction in body:
        if instruction.opcode == "getelementptr" and edit.wants(instruction, derived):
            edit.move_offset(instruction, derived)
            continue
        access = read_access(instruction)
        space = derived.of(access.pointer) if access and access.pointer_type == "ptr" else None
        if access is None or not space:
            continue
        if space == CONSTANT and access.opcode != "load":
            stores.append(instruction.index)
            continue
        if space == CONSTANT and instruction.rest.startswith(("atomic ", "volatile ")):
            continue  # PTX has neither for .const; the generic form reads the same bytes
        seen += 1
        edit.move_access(instruction, access, space, derived)
    edit.finish()
    expect_equal(f"{item.name}: accesses through derived pointers", seen, edit.changed)
    return AccessCounts(seen, edit.changed, tuple(stores))


def _fresh_prefix(item: Item) -> str:
    """The beginning of names that the function does not have."""
    text = "\n".join([item.head, *item.body])
    number = 0
    while f"%rg{number}." in text:
        number += 1
    return f"rg{number}."


class _BodyEdit:
    """Lines to put before, after and in place of those of a body, applied by `finish`."""

    def __init__(self, item: Item, prefix: str) -> None:
        self._item = item
        self._prefix = prefix
        self._lines: dict[int, list[str]] = {}
        self._casts = 0
        self.changed = 0

    def wants(self, instruction: Instruction, derived: Derived) -> bool:
        known = derived.inside.get(instruction.result)
        return known is not None and known[1].startswith(f"%{self._prefix}")

    def move_offset(self, instruction: Instruction, derived: Derived) -> None:
        """Compute an address in its space; the generic name becomes a cast of it."""
        space, name = derived.inside[instruction.result]
        element, base, *indices = split_commas(instruction.rest)
        known = derived.within(base.removeprefix("ptr "))
        assert known is not None
        operands = ", ".join([element, f"ptr addrspace({space}) {known[1]}", *indices])
        self._lines[instruction.index] = [
            f"  {name} = getelementptr {operands}",
            f"  {instruction.result} = addrspacecast ptr addrspace({space}) {name} to ptr",
        ]

    def move_access(self, instruction: Instruction, access: Access, space: int, derived: Derived) -> None:
        """Read or write through the pointer in its space, cast here when it has no name there."""
        known = derived.within(access.pointer)
        line = code_of(self._item.body[instruction.index]).rstrip()
        start = len(line) - len(instruction.rest.rstrip()) + access.pointer_position
        old = f"ptr {access.pointer}"
        if not line.startswith(old, start):
            return
        before: list[str] = []
        if known is None:
            name = f"%{self._prefix}c{self._casts}"
            self._casts += 1
            before = [f"  {name} = addrspacecast ptr {access.pointer} to ptr addrspace({space})"]
        else:
            name = known[1]
        new = f"{line[:start]}ptr addrspace({space}) {name}{line[start + len(old) :]}"
        self._lines[instruction.index] = [*before, new]
        self.changed += 1

    def finish(self) -> None:
        body: list[str] = []
        for index, line in enumerate(self._item.body):
            body += self._lines.get(index, [line])
        self._item.body = body


def mentions_space(item: Item) -> bool:
    """Whether a definition can hold a pointer whose space is known without roots."""
    return any("addrspace(" in line for line in item.body)

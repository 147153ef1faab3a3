"""Atomic operations on local memory become ordinary ones, for both routes.

Local memory belongs to one thread, and PTX has no `atom` for it: LLVM 22 aborts on `byval` parameters and writes
`atom.local.cas`, which ptxas refuses; libNVVM writes a generic `atom`, which fails when it runs.
"""

from __future__ import annotations

import re

from rglink.irinst import Instruction, instructions, read_access
from rglink.irtext import Item, ModuleText, expect_equal, skip_type, split_commas
from rglink.nvjitlink.atomics import AtomicRmw, read_rmw
from rglink.nvjitlink.pointers import LOCAL_SPACE, PointerSpaces

_ATOMIC = re.compile(r"^\s*(?:%\S+ = )?(?:atomicrmw|cmpxchg|load atomic|store atomic) ")
_ORDERS = r"(?:unordered|monotonic|acquire|release|acq_rel|seq_cst)"
_ORDER = re.compile(rf'(?: syncscope\("[^"]*"\))?(?: {_ORDERS})+$')
_COMPARES = {"max": "sgt", "min": "slt", "umax": "ugt", "umin": "ult"}
_PLAIN = frozenset({"add", "sub", "and", "or", "xor", "fadd", "fsub"})


def make_local_atomics_plain(module: ModuleText) -> int:
    """Replace each atomic operation whose pointer is known to be local; returns how many there were."""
    return sum(_edit(item) for item in module.of_kind("define") if any(_ATOMIC.match(line) for line in item.body))


def _edit(item: Item) -> int:
    spaces = PointerSpaces(item)
    at = {each.index: each for each in instructions(item.body) if _ATOMIC.match(item.body[each.index])}
    expect_equal(f"atomic operations in {item.name}", sum(1 for line in item.body if _ATOMIC.match(line)), len(at))
    body: list[str] = []
    changed = 0
    for index, line in enumerate(item.body):
        new = _plain(at[index], spaces, changed) if index in at else []
        changed += bool(new)
        body += [f"  {each}" for each in new] or [line]
    item.body = body
    return changed


def _plain(instruction: Instruction, spaces: PointerSpaces, number: int) -> list[str]:
    """The ordinary instructions, none where the pointer is not local."""
    access = read_access(instruction)
    assert access is not None
    space = re.search(r"addrspace\((\d+)\)", access.pointer_type)
    if spaces.of(int(space[1]) if space else 0, access.pointer)[0] != LOCAL_SPACE:
        return []
    pointer = f"{access.pointer_type} {access.pointer}"
    if instruction.opcode == "atomicrmw":
        return _plain_rmw(read_rmw(instruction), pointer, number)
    if instruction.opcode == "cmpxchg":
        return _plain_exchange(instruction, pointer, number)
    rest = instruction.rest.removeprefix("atomic ")
    value, target, *suffix = split_commas(rest)
    front = f"{instruction.result} = load" if instruction.opcode == "load" else "store"
    return [", ".join([f"{front} {value}", _ORDER.sub("", target), *suffix])]


def _plain_rmw(rmw: AtomicRmw, pointer: str, number: int) -> list[str]:
    old, new, test = rmw.result, f"%rglink.local.v{number}", f"%rglink.local.c{number}"
    type_, value = rmw.type, rmw.value
    middle = _new_value(rmw, old, new, test)
    if not middle and rmw.operation != "xchg":
        return []
    stored = value if rmw.operation == "xchg" else new
    lines = [f"{old} = load {type_}, {pointer}", *middle, f"store {type_} {stored}, {pointer}"]
    return [line + rmw.debug for line in lines]


def _new_value(rmw: AtomicRmw, old: str, new: str, test: str) -> list[str]:
    """The instructions that make `new` (LangRef, "atomicrmw"); none for an operation that is not known here."""
    type_, value, operation = rmw.type, rmw.value, rmw.operation
    if operation in _PLAIN:
        return [f"{new} = {operation} {type_} {old}, {value}"]
    if operation in _COMPARES:
        return [
            f"{test} = icmp {_COMPARES[operation]} {type_} {old}, {value}",
            f"{new} = select i1 {test}, {type_} {old}, {type_} {value}",
        ]
    if operation == "nand":
        return [f"{test} = and {type_} {old}, {value}", f"{new} = xor {type_} {test}, -1"]
    if operation == "uinc_wrap":
        return [
            f"{test} = icmp uge {type_} {old}, {value}",
            f"{test}.next = add {type_} {old}, 1",
            f"{new} = select i1 {test}, {type_} 0, {type_} {test}.next",
        ]
    return []


def _plain_exchange(instruction: Instruction, pointer: str, number: int) -> list[str]:
    _, expected, wanted, *suffix = split_commas(instruction.rest)
    wanted = _ORDER.sub("", wanted)
    type_ = expected[: skip_type(expected, 0)]
    name = f"%rglink.local.x{number}"
    lines = [
        f"{name}.old = load {type_}, {pointer}",
        f"{name}.same = icmp eq {type_} {name}.old, {expected[len(type_) :].strip()}",
        f"{name}.new = select i1 {name}.same, {wanted}, {type_} {name}.old",
        f"store {type_} {name}.new, {pointer}",
        f"{name}.pair = insertvalue {{ {type_}, i1 }} poison, {type_} {name}.old, 0",
        f"{instruction.result} = insertvalue {{ {type_}, i1 }} {name}.pair, i1 {name}.same, 1",
    ]
    debug = next((f", {part}" for part in suffix if part.startswith("!dbg ")), "")
    return [line + debug for line in lines]

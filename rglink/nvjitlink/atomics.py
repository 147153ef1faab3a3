"""Exact lowering of `atomicrmw` for the llvm route.

LLVM 22's NVPTX back end drops ordering and scope of every `atomicrmw` that is one `atom` instruction (plain
`atom.global.add` is `.relaxed.gpu`); `cmpxchg`, atomic loads and stores, and fences it gets right, and so what it
expands into a `cmpxchg` loop (8 and 16 bits, nand, fmin, ...). Those single instructions are written here as
inline PTX; everything else stays LLVM's.

Mapping: PTX ISA, "atom", and the one that LLVM uses for `cmpxchg` (`NVPTXISelLowering.cpp`, after Lustig et al.,
"A Formal Analysis of the NVIDIA PTX Memory Consistency Model"): a sequentially consistent operation is
`fence.sc` followed by an acquiring one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rglink.arch import Arch
from rglink.diagnostics import InputError
from rglink.irinst import Instruction, instructions
from rglink.irtext import Item, ModuleText, expect_equal, skip_type, split_commas
from rglink.nvjitlink.pointers import PointerSpaces

# PTX operation and type of each LLVM operation on each LLVM type. PTX does not subtract: the negated value is added.
_BITS = {"i32": "b32", "i64": "b64", "float": "b32", "double": "b64", "ptr": "b64"}
_NATIVE: dict[str, dict[str, str]] = {
    "add": {"i32": "add.u32", "i64": "add.u64"},
    "sub": {"i32": "add.u32", "i64": "add.u64"},
    "and": {"i32": "and.b32", "i64": "and.b64"},
    "or": {"i32": "or.b32", "i64": "or.b64"},
    "xor": {"i32": "xor.b32", "i64": "xor.b64"},
    "xchg": {type_: f"exch.{bits}" for type_, bits in _BITS.items()},
    "max": {"i32": "max.s32", "i64": "max.s64"},
    "min": {"i32": "min.s32", "i64": "min.s64"},
    "umax": {"i32": "max.u32", "i64": "max.u64"},
    "umin": {"i32": "min.u32", "i64": "min.u64"},
    "uinc_wrap": {"i32": "inc.u32"},
    "udec_wrap": {"i32": "dec.u32"},
    "fadd": {"float": "add.f32", "double": "add.f64", "half": "add.noftz.f16", "bfloat": "add.noftz.bf16"},
}
_BFLOAT_ARCH = 90  # first with atom.add.noftz.bf16; f16 has been there since sm_70
_CONSTRAINT = {"i32": "r", "i64": "l", "ptr": "l", "float": "f", "double": "d", "i16": "h"}
_SEMANTICS = {"monotonic": "relaxed", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
# NVPTX usage guide, "Memory scopes".
_SCOPES = {"": "sys", "device": "gpu", "cluster": "cluster", "block": "cta"}
_SPACES = {0: "", 1: ".global", 3: ".shared", 7: ".shared::cluster"}

_RMW = re.compile(r"^\s*(?:%\S+ = )?atomicrmw ")
_OPERATION = re.compile(r"(?:volatile )?([a-z_]+) ")
_ORDER = re.compile(r'(?: syncscope\("([^"]*)"\))? (monotonic|acquire|release|acq_rel|seq_cst)$')
_SPACE = re.compile(r"ptr addrspace\((\d+)\)$")


@dataclass(frozen=True)
class AtomicRmw:
    """An `atomicrmw`, taken apart."""

    result: str
    operation: str
    space: int
    pointer: str
    type: str
    value: str
    scope: str  # LLVM's word
    ordering: str
    debug: str  # ", !dbg !7" or ""


def lower_atomics(module: ModuleText, arch: Arch) -> int:
    """Write each `atomicrmw` that is one PTX instruction on `arch` as inline PTX; returns how many were.

    Raises:
        InputError: an unknown synchronisation scope.
    """
    lowered = 0
    for item in module.of_kind("define"):
        if any("atomicrmw " in line for line in item.body):
            lowered += _lower_function(item, arch)
    return lowered


def widen_scopes(module: ModuleText, arch: Arch) -> None:
    """Give `cluster` atomics the wider `device` scope where PTX has no `.cluster` (before sm_90)."""
    if arch.number >= 90:
        return
    for item in module.of_kind("define"):
        item.body = [line.replace('syncscope("cluster")', 'syncscope("device")') for line in item.body]


def _lower_function(item: Item, arch: Arch) -> int:
    spaces = PointerSpaces(item)
    seen = sum(1 for line in item.body if _RMW.match(line))
    left = lowered = 0
    body: list[str] = []
    at = {instruction.index: instruction for instruction in instructions(item.body)}
    for index, line in enumerate(item.body):
        instruction = at.get(index)
        if instruction is None or instruction.opcode != "atomicrmw":
            body.append(line)
            continue
        new = _lower(read_rmw(instruction), spaces, arch, lowered)
        if new:
            body += new
            lowered += 1
        else:
            body.append(line)
            left += 1
    expect_equal(f"atomicrmw in {item.name}", seen, lowered + left)
    item.body = body
    return lowered


def read_rmw(instruction: Instruction) -> AtomicRmw:
    """Take "add ptr %p, i32 1 syncscope("block") acq_rel, align 4, !dbg !7" apart."""
    target, operand, *suffix = split_commas(instruction.rest)
    operation = _OPERATION.match(target)
    order = _ORDER.search(operand)
    assert operation is not None
    assert order is not None
    pointer = operation.end()
    pointer_end = skip_type(target, pointer)
    space = _SPACE.match(target[pointer:pointer_end])
    value = skip_type(operand, 0)
    debug = next((f", {part}" for part in suffix if part.startswith("!dbg ")), "")
    return AtomicRmw(
        instruction.result,
        operation[1],
        int(space[1]) if space else 0,
        target[pointer_end:].strip(),
        operand[:value],
        operand[value : order.start()].strip(),
        order[1] or "",
        order[2],
        debug,
    )


def _lower(rmw: AtomicRmw, spaces: PointerSpaces, arch: Arch, number: int) -> list[str]:
    """The lines that replace `rmw`; none when it is left to LLVM."""
    native = _NATIVE.get(rmw.operation, {}).get(rmw.type)
    if native is None or (rmw.type == "bfloat" and arch.number < _BFLOAT_ARCH):
        return []
    space, pointer = spaces.of(rmw.space, rmw.pointer)
    if space not in _SPACES:
        return []
    # One thread's order is part of its block's.
    scope = "block" if rmw.scope == "singlethread" else rmw.scope
    if scope not in _SCOPES:
        known = ", ".join(f'"{name}"' for name in _SCOPES if name)
        raise InputError(f'atomicrmw with unknown syncscope "{rmw.scope}", wanted {known}', slug="bad-ir")
    lines: list[str] = []
    if rmw.ordering == "seq_cst":
        fence_scope = f'syncscope("{scope}") ' if scope else ""
        lines.append(f"fence {fence_scope}seq_cst{rmw.debug}")
    semantics = _SEMANTICS.get(rmw.ordering, "acquire")
    operand = f"ptr addrspace({rmw.space}) {rmw.pointer}" if rmw.space else f"ptr {rmw.pointer}"
    if pointer:
        operand = pointer
    elif space != rmw.space:
        lines.append(f"%rglink.atom.p{number} = addrspacecast {operand} to ptr addrspace({space})")
        operand = f"ptr addrspace({space}) %rglink.atom.p{number}"
    text = f"atom.{semantics}.{_SCOPES[scope]}{_SPACES[space]}.{native} $0, [$1], $2;"
    lines += _call(rmw, text, operand, number)
    return [f"  {line}" for line in lines]


def _call(rmw: AtomicRmw, text: str, pointer: str, number: int) -> list[str]:
    """The inline PTX with its operand made ready and its result given back its type."""
    name = f"%rglink.atom.v{number}"
    type_, value, before = rmw.type, rmw.value, []
    if rmw.operation == "sub":
        before, value = [f"{name} = sub {type_} 0, {value}"], name
    if rmw.type in ("half", "bfloat"):
        type_ = "i16"
        before, value = [f"{name} = bitcast {rmw.type} {value} to i16"], name
    letter = _CONSTRAINT[type_]
    result = rmw.result if type_ == rmw.type else f"%rglink.atom.r{number}"
    # Whoever reads a numbered result counts lines that define one: `atomicrmw` always has a result, so has the call.
    front = f"{result} = " if result else ""
    call = (
        f'{front}call {type_} asm sideeffect "{text}", "={letter},l,{letter},~{{memory}}"'
        f"({pointer}, {type_} {value}){rmw.debug}"
    )
    after = [f"{rmw.result} = bitcast i16 {result} to {rmw.type}"] if type_ != rmw.type and rmw.result else []
    return [*before, call, *after]

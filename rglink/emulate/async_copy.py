"""Asynchronous copies: cp.async with its groups, cp.async.bulk in one dimension.

The bytes move at once; a program that waits as it must sees nothing else. The observer hears of both sides of a copy
and of the waits, so that it can tell who did not wait.

Source: PTX ISA, "Data Movement and Conversion Instructions: Asynchronous Copy".
"""

from __future__ import annotations

import numpy as np

from rglink.emulate import mbarrier
from rglink.emulate.access import address_of
from rglink.emulate.code import Step
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Active, Vector
from rglink.emulate.memory import BadAccess
from rglink.emulate.ptx import Immediate, Instruction, Negated, Operand, Register
from rglink.emulate.slots import SlotTable

WAITS = frozenset(("commit_group", "wait_group", "wait_all"))
COPY_HINTS = frozenset(("ca", "cg", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"))


def decode_copy(table: SlotTable, instruction: Instruction) -> Step:
    """cp.async and its companions."""
    parts = instruction.opcode
    if parts[1] != "async":
        raise Unsupported(f"instruction {instruction.text}")
    if parts[2] == "bulk":
        return _decode_bulk(table, instruction)
    if parts[2] in WAITS:
        return _decode_wait(instruction)
    if parts[2] == "mbarrier":
        return mbarrier.decode_copy_arrive(table, instruction)
    if parts[-2:] != ("shared", "global") and [p.split("::")[0] for p in parts if p not in COPY_HINTS][2:] != [
        "shared",
        "global",
    ]:
        raise Unsupported(f"instruction {instruction.text}")
    target, source, size, *rest = instruction.operands
    if "L2::cache_hint" in parts:
        rest = rest[:-1]  # a cache policy
    if not isinstance(size, Immediate) or size.value not in (4, 8, 16) or len(rest) > 1:
        raise Unsupported(f"instruction {instruction.text} of such a size")
    width = size.value
    to, origin = address_of(table, target), address_of(table, source)
    ignores = bool(rest) and is_predicate(rest[0])
    given = table.source(rest[0], "pred" if ignores else "u32") if rest else -1

    def copy(active: Active) -> None:
        r = active.registers
        given_size: Vector = np.array([width], np.uint32)
        if given >= 0:
            given_size = np.where(r[given], np.uint32(0), np.uint32(width)) if ignores else r[given]
        _copy(active, instruction, r[to], r[origin], width, given_size)

    return copy


def is_predicate(operand: Operand) -> bool:
    """Whether the fourth operand is `ignore-src`, a predicate, and not a size."""
    return isinstance(operand, Negated) or (isinstance(operand, Register) and operand.type == "pred")


def _copy(active: Active, instruction: Instruction, to: Vector, origin: Vector, width: int, given: Vector) -> None:
    wave = active.wave
    spaces, observer = wave.spaces, wave.observer
    if observer is not None:
        observer.on_access("async-load", "global", active, origin, width, instruction)
        observer.on_access("async-store", "shared", active, to, width, instruction)
    unit = 4
    try:
        for offset in range(0, width, unit):
            wanted = given > np.uint32(offset)
            place = to + np.uint64(offset)
            if wanted.all():
                value = spaces.load("global", active, origin + np.uint64(offset), unit)
            else:
                value = np.zeros(active.count, np.uint32)
                index = np.flatnonzero(np.broadcast_to(wanted, (active.count,)))
                if len(index):
                    some = np.broadcast_to(origin, (active.count,))[index] + np.uint64(offset)
                    value[index] = spaces.load("global", active.subset(index, ()), some, unit)
            spaces.store("shared", active, place, unit, value)
    except BadAccess as bad:
        wave.fault(bad.text, active, bad.position, instruction, bad.slug)


def _decode_wait(instruction: Instruction) -> Step:
    def wait(active: Active) -> None:
        if active.wave.observer is not None:
            active.wave.observer.on_fence(active, instruction)

    return wait


def _decode_bulk(table: SlotTable, instruction: Instruction) -> Step:
    """cp.async.bulk.dst.src: global to shared with an mbarrier, shared to global in bulk groups."""
    parts = [part.split("::")[0] for part in instruction.opcode[3:] if part != "L2::cache_hint"]
    if parts and (parts[0] in WAITS or parts == ["wait_group", "read"]):
        return _decode_wait(instruction)
    if parts == ["prefetch", "L2", "global"]:
        return lambda active: None
    if parts[:2] == ["shared", "global"] and parts[2:] == ["mbarrier", "complete_tx"][: len(parts) - 2]:
        target, source, size, barrier = instruction.operands[:4]
        signal = address_of(table, barrier)
    elif parts == ["global", "shared", "bulk_group"]:
        target, source, size = instruction.operands[:3]
        signal = -1
    else:
        raise Unsupported(f"instruction {instruction.text}")
    to, origin = address_of(table, target), address_of(table, source)
    amount = table.source(size, "u32")
    spaces = (parts[1], parts[0])

    def bulk(active: Active) -> None:
        r = active.registers
        everyone = [np.broadcast_to(r[slot], (active.count,)) for slot in (to, origin, amount)]
        for lane in range(active.count):
            one = active.subset(np.array([lane]), ())
            place, start, size = (int(vector[lane]) for vector in everyone)
            _copy_bulk(one, instruction, spaces, (start, place), size)
            if signal >= 0:
                where = np.broadcast_to(r[signal], (active.count,))[lane : lane + 1]
                mbarrier.complete_bytes(one, where, size, instruction)

    return bulk


def _copy_bulk(
    active: Active, instruction: Instruction, spaces: tuple[str, str], places: tuple[int, int], size: int
) -> None:
    wave = active.wave
    if size % 16 or places[0] % 16 or places[1] % 16:
        wave.fault("a bulk copy's addresses and size must be multiples of 16", active, 0, instruction)
    if not size:
        return
    origin, target = (np.uint64(place) + np.arange(0, size, 8, dtype=np.uint64) for place in places)
    if wave.observer is not None:
        wave.observer.on_access("async-load", spaces[0], active, origin[:1], size, instruction)
        wave.observer.on_access("async-store", spaces[1], active, target[:1], size, instruction)
    # One lane copies many words: as many lanes of its own block.
    copying = Active(wave, np.repeat(active.lanes, len(origin)), False, [])
    try:
        words = wave.spaces.load(spaces[0], copying, origin, 8)
        wave.spaces.store(spaces[1], copying, target, 8, words)
    except BadAccess as bad:
        wave.fault(bad.text, active, 0, instruction, bad.slug)

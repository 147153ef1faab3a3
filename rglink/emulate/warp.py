"""Warp-wide instructions: shfl, vote, match, redux, activemask, elect, bar.warp.

A `.sync` instruction waits until every thread that its mask names, and that has not ended, has executed one "with the
same qualifiers and same membermask value": the same instruction, or another with an equal opcode and mask. The matrix
instructions want the very same one.

Source: PTX ISA, "Data Movement: shfl.sync", "Parallel Synchronization: vote, match, redux, activemask, elect".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.code import Control, Exchange
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Group, Lanes, Vector, joined
from rglink.emulate.ptx import Immediate, Instruction, Operand, Pair, Sink
from rglink.emulate.slots import SlotTable
from rglink.emulate.wave import Key, Wave, key_of

ALL = 0xFFFF_FFFF
LANES = np.arange(32)
U32 = np.uint32
Rows = NDArray[Any]
# What a warp instruction computes: from (rows of 32 operands, which lanes take part) to rows of results.
WarpOperation = Callable[..., tuple[Rows, ...]]


def bits_of(rows: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Rows of 32 bools as 32-bit masks."""
    return np.packbits(rows, axis=1, bitorder="little").view(U32)[:, 0]


class WarpMeetings:
    """The groups that wait for other threads of their warps, each with the instruction that it waits at."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.waiting: dict[Key, tuple[Group, Instruction]] = {}

    def gather(self, group: Group, exchange: Exchange, instruction: Instruction) -> Group | None:
        """The group of those lanes, with others that waited here, whose masks are complete; the rest waits.

        None if nobody can go on.
        """
        wave = self.wave
        _check_masks(group, group.registers[exchange.mask], instruction)
        key = (0, *key_of(group)[1:])
        waited = self.waiting.pop(key, None)
        if waited is not None:
            group = joined([waited[0], group])
        elif group.count == wave.alive_count:
            return group
        missing = self._missing(group.lanes, group.registers[exchange.mask])
        if missing is None:
            return group
        live = group.code.live_at(group.pc)
        self.waiting[key] = (group.part(np.flatnonzero(missing), live), instruction)
        if exchange.anywhere and len(self.waiting) > 1:
            self._meet_across(instruction.opcode)
        return None if missing.all() else group.part(np.flatnonzero(~missing), live)

    def _missing(self, lanes: Lanes, masks: Vector) -> NDArray[np.bool_] | None:
        """Which lanes have a warp that is not complete; None if none has."""
        wave = self.wave
        present = np.zeros(wave.lanes, np.bool_)
        present[lanes] = True
        lacking = bits_of((wave.alive & ~present).reshape(-1, 32))
        if not lacking.any():
            return None
        unmet = (lacking[lanes >> 5] & masks) != 0
        return unmet if unmet.any() else None

    def recheck(self) -> None:
        """Lanes have ended: let all that wait try again."""
        waiting, self.waiting = self.waiting, {}
        for group, _ in waiting.values():
            self.wave.scheduler.push(group)

    def _meet_across(self, opcode: tuple[str, ...]) -> None:
        """Let lanes complete each other that wait at different instructions with one opcode under one mask."""
        waiting = [(key, *entry) for key, entry in sorted(self.waiting.items()) if entry[1].opcode == opcode]
        masks = np.zeros(self.wave.lanes, U32)
        for _, group, _ in waiting:
            masks[group.lanes] = group.registers[group.code.exchanges[group.pc].mask]
        met = self._agreed(masks)
        parts: list[Group] = []
        for key, group, instruction in waiting:
            free = met[group.lanes]
            if not free.any():
                continue
            del self.waiting[key]
            live = group.code.live_at(group.pc)
            if not free.all():
                self.waiting[key] = (group.part(np.flatnonzero(~free), live), instruction)
            parts.append(group.part(np.flatnonzero(free), live))
        if parts:
            self._exchange(parts, next(i for _, group, i in waiting if met[group.lanes].any()))

    def _agreed(self, masks: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which lanes wait with every lane of their mask, all under the same mask (0: the lane does not wait)."""
        rows = masks.reshape(-1, 32)
        wanted = (rows[:, :, None] >> LANES.astype(U32)) & U32(1) != 0
        other = (rows[:, :, None] != rows[:, None, :]) & self.wave.alive.reshape(-1, 1, 32)
        agreed: NDArray[np.bool_] = (rows != 0) & ~(wanted & other).any(axis=2)
        return agreed.reshape(-1)

    def _exchange(self, parts: list[Group], instruction: Instruction) -> None:
        """Compute for all lanes of `parts` at once, by the slots of the first part's instruction; let them go on."""
        wave = self.wave
        exchanges = [part.code.exchanges[part.pc] for part in parts]
        order = np.argsort(np.concatenate([part.lanes for part in parts]))
        lanes = np.concatenate([part.lanes for part in parts])[order]
        first = exchanges[0]
        registers = parts[0].code.template.copy()
        for at, slot in enumerate((first.mask, *first.sources)):
            vectors = [
                np.broadcast_to(part.registers[(one.mask, *one.sources)[at]], (part.count,))
                for part, one in zip(parts, exchanges, strict=True)
            ]
            registers[slot] = np.concatenate(vectors)[order]
        everyone = Group(wave, lanes, len(lanes) == wave.lanes, parts[0].code, registers)
        if wave.observer is not None:
            wave.observer.on_warp_sync(everyone, registers[first.mask], instruction)
        first.compute(everyone, registers[first.mask])
        for part, one in zip(parts, exchanges, strict=True):
            mine = np.searchsorted(lanes, part.lanes)
            for source, target in zip(first.targets, one.targets, strict=True):
                vector = everyone.registers[source]
                part.registers[target] = vector if len(vector) == 1 else vector[mine]
            part.pc += 1
            wave.scheduler.push(part)

    def stuck(self) -> list[tuple[Group, Instruction]]:
        """The groups that wait, with their instructions."""
        return [entry for _, entry in sorted(self.waiting.items())]


def _check_masks(group: Group, masks: Vector, instruction: Instruction) -> None:
    if len(masks) == 1 and int(masks[0]) == ALL:
        return
    own = (masks >> (group.lanes & 31).astype(U32)) & U32(1)
    if not own.all():
        bad = int(np.flatnonzero(own == 0)[0])
        text = f"membermask 0x{int(masks[bad % len(masks)]):08x} does not name the thread that executes it"
        group.wave.fault(text, group, bad, instruction, "bad-membermask")


def _check_whole(group: Group, instruction: Instruction) -> None:
    """Instructions on matrices want every thread of the warp, and none that has ended."""
    counts = np.bincount(group.lanes >> 5)
    short = np.flatnonzero((counts > 0) & (counts < 32))
    if len(short):
        first = int(np.flatnonzero(group.lanes >> 5 == short[0])[0])
        text = f"{instruction.opcode[0]} is executed by {counts[short[0]]} threads of a warp, wanted all 32"
        group.wave.fault(text, group, first, instruction, "partial-warp")


def rows_of(group: Group, vector: Vector) -> Rows:
    """A register as rows of whole warps; lanes that are not in the group hold zero."""
    if len(vector) == 1:
        return np.broadcast_to(vector, (group.wave.lanes >> 5, 32))
    if group.full:
        return vector.reshape(-1, 32)
    rows = np.zeros(group.wave.lanes, vector.dtype)
    rows[group.lanes] = vector
    return rows.reshape(-1, 32)


def presence(group: Group) -> NDArray[np.bool_]:
    """Rows of whole warps: which lanes are in the group."""
    if group.full:
        return np.ones((group.wave.lanes >> 5, 32), np.bool_)
    present = np.zeros(group.wave.lanes, np.bool_)
    present[group.lanes] = True
    return present.reshape(-1, 32)


def lanes_of(group: Group, rows: Rows) -> Vector:
    """The lanes of the group from rows of whole warps (or one value a warp)."""
    if rows.ndim == 1:
        rows = np.broadcast_to(rows[:, None], (len(rows), 32))
    flat = np.ascontiguousarray(rows).reshape(-1)
    return flat if group.full else flat[group.lanes]


def sync_control(
    table: SlotTable,
    instruction: Instruction,
    at: int,
    mask: Operand,
    compute: Callable[[Group, Vector], None],
    slots: tuple[Sequence[int], Sequence[int]],
    anywhere: bool = True,
) -> Control:
    """A control that lets `compute` run for lanes whose warps are complete.

    `slots` are those of operands and of results; see `Exchange` for `anywhere`.
    """
    sources, targets = slots
    exchange = Exchange(table.source(mask, "b32"), tuple(sources), tuple(targets), compute, anywhere)
    table.code.exchanges[at] = exchange

    def meet(group: Group) -> bool:
        wave = group.wave
        ready = wave.meetings.gather(group, exchange, instruction)
        if ready is None:
            return False
        masks = ready.registers[exchange.mask]
        if not anywhere:
            _check_whole(ready, instruction)
        if wave.observer is not None:
            wave.observer.on_warp_sync(ready, masks, instruction)
        compute(ready, masks)
        ready.pc += 1
        if ready is group:
            return True
        wave.scheduler.push(ready)
        return False

    return meet


def decode_shfl(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """shfl.sync.mode.b32 d|p, a, b, c, mask."""
    target, value, lane, clamp, *rest = instruction.operands
    mask: Operand = rest[0] if rest else Immediate(ALL)
    mode = instruction.opcode[2] if instruction.opcode[1] == "sync" else instruction.opcode[1]
    if mode not in ("up", "down", "bfly", "idx") or instruction.opcode[1] != "sync":
        raise Unsupported(f"instruction {instruction.text}")
    a, b, c = table.source(value, "b32"), table.source(lane, "b32"), table.source(clamp, "b32")
    pair = target if isinstance(target, Pair) else None
    d = table.destination(pair.first if pair else target, "b32")
    p = table.destination(pair.second if pair else Sink(), "pred")

    def shuffle(group: Group, masks: Vector) -> None:
        r = group.registers
        segment = r[c] if len(r[c]) > 1 else r[c][:1]
        limits, sources = rows_of(group, segment).astype(np.int64), rows_of(group, r[b]).astype(np.int64) & 31
        high = (limits >> 8) & 31
        bound = limits & 31
        most = (LANES & high) | (bound & ~high)
        least = LANES & high
        if mode == "up":
            wanted = LANES - sources
            valid = wanted >= most
        elif mode == "down":
            wanted = LANES + sources
            valid = wanted <= most
        elif mode == "bfly":
            wanted = LANES ^ sources
            valid = wanted <= most
        else:
            wanted = least | (sources & ~high)
            valid = wanted <= most
        wanted = np.where(valid, wanted, LANES)
        rows = rows_of(group, r[a])
        r[d] = lanes_of(group, np.take_along_axis(rows, wanted, axis=1))
        r[p] = lanes_of(group, np.broadcast_to(valid, rows.shape))

    return sync_control(table, instruction, at, mask, shuffle, ((a, b, c), (d, p)))


def named(group: Group, masks: Vector) -> NDArray[np.bool_]:
    """Rows (lane, other) of which other lanes of the warp take part with a lane: (warps, 32) if all masks agree."""
    present = presence(group)
    if len(masks) == 1 and int(masks[0]) == ALL:
        return present
    rows = rows_of(group, masks)
    wanted = (rows[:, :, None] >> LANES.astype(U32)) & U32(1) != 0
    both: NDArray[np.bool_] = wanted & present[:, None, :]
    return both


def ballots(group: Group, predicate: Vector, masks: Vector) -> tuple[Vector, Vector]:
    """For each lane of the group: who of its mask holds the predicate, and who takes part; as 32-bit masks."""
    present = bits_of(presence(group))
    holding = bits_of(np.ascontiguousarray(rows_of(group, predicate) & presence(group)))
    warps = group.lanes >> 5
    return holding[warps] & masks, present[warps] & masks


def decode_vote(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """vote.sync.{all,any,uni,ballot}."""
    parts = instruction.opcode
    if parts[1] != "sync" or parts[2] not in ("all", "any", "uni", "ballot"):
        raise Unsupported(f"instruction {instruction.text}")
    mode = parts[2]
    target, predicate, mask = instruction.operands
    p = table.source(predicate, "pred")
    d = table.destination(target, "b32" if mode == "ballot" else "pred")

    def vote(group: Group, masks: Vector) -> None:
        holding, present = ballots(group, group.registers[p], masks)
        found: Vector = holding
        if mode == "all":
            found = holding == present
        elif mode == "any":
            found = holding != 0
        elif mode == "uni":
            found = (holding == 0) | (holding == present)
        group.registers[d] = found

    return sync_control(table, instruction, at, mask, vote, ((p,), (d,)))


def decode_match(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """match.{any,all}.sync.type d[|p], a, mask."""
    mode, ptx_type = instruction.opcode[1], instruction.opcode[-1]
    if mode not in ("any", "all") or ptx_type not in ("b32", "b64"):
        raise Unsupported(f"instruction {instruction.text}")
    target, value, mask = instruction.operands
    a = table.source(value, ptx_type)
    pair = target if isinstance(target, Pair) else None
    d = table.destination(pair.first if pair else target, "b32")
    p = table.destination(pair.second if pair else Sink(), "pred")

    def match(group: Group, masks: Vector) -> None:
        rows = rows_of(group, group.registers[a])
        present = presence(group)
        same = (rows[:, :, None] == rows[:, None, :]) & present[:, None, :]
        equal = np.packbits(same, axis=2, bitorder="little").view(U32)[:, :, 0]
        mine = lanes_of(group, equal) & masks
        if mode == "any":
            group.registers[d] = mine
            return
        everyone = bits_of(present)[group.lanes >> 5] & masks
        all_equal = mine == everyone
        group.registers[d], group.registers[p] = np.where(all_equal, everyone, U32(0)), all_equal

    return sync_control(table, instruction, at, mask, match, ((a,), (d, p)))


REDUCTIONS: Mapping[str, tuple[np.ufunc, int]] = {
    "add": (np.add, 0),
    "and": (np.bitwise_and, ALL),
    "or": (np.bitwise_or, 0),
    "xor": (np.bitwise_xor, 0),
}


def decode_redux(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """redux.sync.op.type d, a, mask."""
    target, value, mask = instruction.operands
    a, d = table.source(value, "b32"), table.destination(target, "b32")
    if instruction.opcode[-1] == "f32":
        reduce = _float_reduction(instruction, a, d)
    else:
        reduce = _integer_reduction(instruction, a, d)
    return sync_control(table, instruction, at, mask, reduce, ((a,), (d,)))


def _integer_reduction(instruction: Instruction, a: int, d: int) -> Callable[[Group, Vector], None]:
    operator, ptx_type = instruction.opcode[2], instruction.opcode[-1]
    if instruction.opcode[1] != "sync" or ptx_type not in ("u32", "s32", "b32") or len(instruction.opcode) != 4:
        raise Unsupported(f"instruction {instruction.text}")
    dtype: np.dtype[Any] = np.dtype(U32)
    if operator in ("min", "max"):
        dtype = np.dtype(np.int32 if ptx_type == "s32" else U32)
        limits = np.iinfo(dtype)
        ufunc: np.ufunc = np.minimum if operator == "min" else np.maximum
        neutral = int(limits.max if operator == "min" else limits.min)
    elif operator in REDUCTIONS:
        ufunc, neutral = REDUCTIONS[operator]
    else:
        raise Unsupported(f"instruction {instruction.text}")

    def reduce(group: Group, masks: Vector) -> None:
        rows = np.ascontiguousarray(rows_of(group, group.registers[a])).view(dtype)
        found = _reduced(ufunc, rows, named(group, masks), neutral)
        group.registers[d] = lanes_of(group, found).view(U32)

    return reduce


def _reduced(ufunc: np.ufunc, rows: Rows, who: NDArray[np.bool_], neutral: int) -> Rows:
    """One value a warp, or one a lane where `who` differs from lane to lane."""
    if who.ndim == 3:
        rows = rows[:, None, :]
    filled = np.where(who, rows, rows.dtype.type(neutral))
    found: Rows = ufunc.reduce(filled, axis=-1, dtype=rows.dtype)
    return found


def _float_reduction(instruction: Instruction, a: int, d: int) -> Callable[[Group, Vector], None]:
    """min and max of f32, on integers that have the order of the numbers; -0 comes before +0."""
    _, sync, operator, *options, _ = instruction.opcode
    if sync != "sync" or operator not in ("min", "max") or options not in ([], ["abs"], ["NaN"], ["abs", "NaN"]):
        raise Unsupported(f"instruction {instruction.text}")
    ufunc, neutral = (np.minimum, ALL) if operator == "min" else (np.maximum, 0)
    sign, canonical = U32(0x8000_0000), U32(0x7FFF_FFFF)

    def reduce(group: Group, masks: Vector) -> None:
        rows = rows_of(group, group.registers[a])
        is_nan = rows & canonical > U32(0x7F80_0000)
        numbers = rows & canonical if "abs" in options else rows
        keys = np.where(numbers & sign, ~numbers, numbers | sign)
        who = named(group, masks)
        nan_here = is_nan if who.ndim == 2 else is_nan[:, None, :]
        counting = who & ~nan_here
        found = _reduced(ufunc, keys, counting, neutral)
        bits = np.where(found & sign, found & canonical, ~found)
        spoilt = (who & nan_here).any(axis=-1) if "NaN" in options else ~counting.any(axis=-1)
        group.registers[d] = lanes_of(group, np.where(spoilt, canonical, bits))

    return reduce


def decode_elect(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """elect.sync d|p, mask: the lowest lane of the mask leads."""
    target, mask = instruction.operands
    if not isinstance(target, Pair):
        raise Unsupported(f"instruction {instruction.text} without two destinations")
    d, p = table.destination(target.first, "b32"), table.destination(target.second, "pred")

    def elect(group: Group, masks: Vector) -> None:
        taking = bits_of(presence(group))[group.lanes >> 5] & masks
        lowest = taking & (~taking + U32(1))
        leader = np.bitwise_count(lowest - U32(1)).astype(U32)
        group.registers[d] = leader
        group.registers[p] = leader == (group.lanes & 31)

    return sync_control(table, instruction, at, mask, elect, ((), (d, p)))


def decode_activemask(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """activemask.b32: the threads of the warp that run together now."""
    d = table.destination(instruction.operands[0], "b32")

    def active(group: Group) -> bool:
        group.registers[d] = bits_of(presence(group))[group.lanes >> 5]
        group.pc += 1
        return True

    return active


def decode_warp_barrier(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """bar.warp.sync mask."""
    return sync_control(table, instruction, at, instruction.operands[0], lambda group, masks: None, ((), ()))

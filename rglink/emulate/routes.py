"""Which decoder takes which instruction, and guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from rglink.demangle import demangle
from rglink.emulate import access, async_copy, atomics, cluster, control, decode, mbarrier, sync, tensor, warp, wmma
from rglink.emulate.code import Control, Step
from rglink.emulate.errors import PtxError, Unsupported
from rglink.emulate.frames import Active, Group
from rglink.emulate.ptx import Instruction
from rglink.emulate.signatures import OPERANDS
from rglink.emulate.slots import SlotTable

if TYPE_CHECKING:
    from rglink.emulate.image import Image

StepDecoder = Callable[[SlotTable, Instruction], Step]
ControlDecoder = Callable[[SlotTable, Instruction, int], Control]


def _nothing(table: SlotTable, instruction: Instruction) -> Step:
    return lambda active: None


def _nanosleep(table: SlotTable, instruction: Instruction) -> Step:
    def sleep(active: Active) -> None:
        active.waits += 1

    return sleep


# Steps that neither read nor write memory: for some lanes only, they run for all and the results are chosen.
PURE: Mapping[str, StepDecoder] = {
    "mov": decode.decode_mov,
    "setp": decode.decode_setp,
    "set": decode.decode_set,
    "selp": decode.decode_choice,
    "slct": decode.decode_choice,
    "cvta": decode.decode_cvta,
    "isspacep": decode.decode_isspacep,
    "getctarank": cluster.decode_rank,
}
EFFECTS: Mapping[str, StepDecoder] = {
    "ld": access.decode_load,
    "ldu": access.decode_load,
    "st": access.decode_store,
    "atom": atomics.decode_atomic,
    "red": atomics.decode_atomic,
    "membar": sync.decode_fence,
    "fence": sync.decode_fence,
    "prefetch": _nothing,
    "prefetchu": _nothing,
    "discard": _nothing,
    "applypriority": _nothing,
    "createpolicy": _nothing,
    "setmaxnreg": _nothing,
    "griddepcontrol": _nothing,
    "pmevent": _nothing,
    "nanosleep": _nanosleep,
    "cp": async_copy.decode_copy,
    "mapa": cluster.decode_mapa,
    "mbarrier": mbarrier.decode_mbarrier,
}
CONTROLS: Mapping[str, ControlDecoder] = {
    "brx": control.decode_indexed_branch,
    "ret": control.decode_ret,
    "exit": control.decode_exit,
    "trap": control.decode_trap,
    "brkpt": control.decode_trap,
    "bar": sync.decode_barrier,
    "barrier": sync.decode_barrier,
    "shfl": warp.decode_shfl,
    "vote": warp.decode_vote,
    "match": warp.decode_match,
    "redux": warp.decode_redux,
    "elect": warp.decode_elect,
    "activemask": warp.decode_activemask,
    "mma": tensor.decode_mma,
    "wmma": wmma.decode_wmma,
    "ldmatrix": tensor.decode_ldmatrix,
    "stmatrix": tensor.decode_stmatrix,
    "movmatrix": tensor.decode_movmatrix,
}


def decode_one(table: SlotTable, instruction: Instruction, at: int, image: Image) -> Step | Control:
    """One instruction; `table.code` gets it as a step or as a control.

    Raises:
        Unsupported: the machine does not know it.
    """
    name = instruction.opcode[0]
    if name == "bra":
        return _as_control(table, control.decode_branch(table, instruction, at))
    control_decoder = CONTROLS.get(name)
    if name == "call":
        return _guarded_control(table, instruction, at, control.decode_call(table, instruction, at, image))
    if instruction.opcode[:2] == ("bar", "warp"):
        control_decoder = warp.decode_warp_barrier
    elif instruction.opcode[:2] == ("barrier", "cluster"):
        control_decoder = cluster.decode_cluster_barrier
    if control_decoder is not None:
        return _guarded_control(table, instruction, at, control_decoder(table, instruction, at))
    pure = PURE.get(name)
    if pure is None and name in OPERANDS:
        predicate = instruction.opcode[-1] == "pred"
        pure = decode.decode_predicate_logic if predicate else decode.decode_arithmetic
    decoder = pure or EFFECTS.get(name)
    if decoder is None:
        raise Unsupported(f"instruction {instruction.text}")
    step = _whole(table, decoder(table, instruction))
    if instruction.guard is not None:
        step = _guarded_pure(table, instruction, step) if pure else _guarded_effect(table, instruction, step)
    table.code.steps[at] = step
    return step


def _whole(table: SlotTable, step: Step) -> Step:
    """The step with those that must come before and after it."""
    if not table.before and not table.after:
        return step
    chain = (*table.before, step, *table.after)
    if len(chain) == 2:
        first, second = chain

        def both(active: Active) -> None:
            first(active)
            second(active)

        return both

    def all_of_them(active: Active) -> None:
        for one in chain:
            one(active)

    return all_of_them


def _as_control(table: SlotTable, found: Control) -> Control:
    """The control with the steps that must come before it (none come after a control, but results are widened)."""
    before, after = tuple(table.before), tuple(table.after)
    if after:
        raise Unsupported("a result in a wider register")
    if before:
        inner = found

        def prepared(group: Group) -> bool:
            for one in before:
                one(group)
            return inner(group)

        found = prepared
    return found


def _guarded_control(table: SlotTable, instruction: Instruction, at: int, found: Control) -> Control:
    found = _as_control(table, found)
    if instruction.guard is None:
        table.code.controls[at] = found
        return found
    register, negated = instruction.guard
    slot = table.source(register, "pred")
    table.flow.reads |= table.flow.kills
    table.flow.kills, table.flow.falls = 0, True
    found = control.guarded(found, table, slot, negated, at)
    table.code.controls[at] = found
    return found


def _guarded_pure(table: SlotTable, instruction: Instruction, step: Step) -> Step:
    assert instruction.guard is not None
    register, negated = instruction.guard
    targets = _kept(table)
    slot = table.source(register, "pred")

    def chosen(active: Active) -> None:
        r = active.registers
        old = [r[target] for target in targets]
        mask = r[slot]
        step(active)
        for target, value in zip(targets, old, strict=True):
            r[target] = np.where(mask, value, r[target]) if negated else np.where(mask, r[target], value)

    return chosen


def _kept(table: SlotTable) -> list[int]:
    """The slots that the instruction writes; lanes that are left out keep what was in them, so they are read too."""
    flow = table.flow
    targets = [slot for slot in table.registers if flow.kills >> slot & 1]
    flow.reads |= flow.kills
    flow.kills = 0
    return targets


def _guarded_effect(table: SlotTable, instruction: Instruction, step: Step) -> Step:
    assert instruction.guard is not None
    register, negated = instruction.guard
    targets = _kept(table)
    reads = [slot for slot in table.registers if table.flow.reads >> slot & 1]
    slot = table.source(register, "pred")

    def some(active: Active) -> None:
        r = active.registers
        mask = r[slot]
        index = np.flatnonzero(~mask if negated else mask)
        if len(index) == len(mask):
            step(active)
            return
        if not len(index):
            return
        part = active.subset(index, reads)
        step(part)
        active.waits += part.waits
        for target in targets:
            merged = np.array(np.broadcast_to(r[target], (active.count,)))
            merged[index] = part.registers[target]
            r[target] = merged

    return some


def refusal(program: str, function: str, instruction: Instruction, reason: Unsupported) -> PtxError:
    """The error that says that the machine does not know an instruction."""
    place = f"{program}: line {instruction.line}: in {demangle(function)}"
    text = str(reason)
    what = text if text.startswith(("instruction", "register")) else f"instruction {instruction.text}: {text}"
    return PtxError(f"{place}: unsupported {what}", slug="unsupported-instruction")


def refusing(error: PtxError) -> Step:
    """A step that raises `error` when a thread comes to it."""

    def refuse(active: Active) -> NoReturn:
        raise error

    return refuse

"""The machine itself: runs the groups of a wave until every lane has ended.

One step of the loop takes the group whose turn it is and runs it, straight code as one sequence of vector operations,
until a branch, call, barrier or end leaves nothing to go on with, or another group has its turn.
"""

from __future__ import annotations

import numpy as np

from rglink.demangle import demangle
from rglink.emulate.cluster import ClusterBarriers
from rglink.emulate.errors import KernelFault
from rglink.emulate.frames import Group
from rglink.emulate.image import Image
from rglink.emulate.ptx import Instruction
from rglink.emulate.sync import Barriers
from rglink.emulate.warp import WarpMeetings
from rglink.emulate.wave import Wave


def run_wave(wave: Wave, image: Image) -> None:
    """Run all blocks of `wave` to their ends.

    Raises:
        KernelFault: a trap, failed assertion, wild access, deadlock, or no end within the step budget.
        PtxError: a thread came to an instruction that the machine does not know.
    """
    wave.barriers, wave.clusters, wave.meetings = Barriers(wave), ClusterBarriers(wave), WarpMeetings(wave)
    wave.instruction_of = lambda number, pc: image.instruction(number)(pc)
    code = image.entry()
    lanes = np.flatnonzero(wave.alive)
    wave.spaces.grow_stack(code.local_bytes)
    if wave.observer is not None:
        wave.observer.on_wave(wave)
    wave.scheduler.start(Group(wave, lanes, len(lanes) == wave.lanes, code, code.template.copy()))
    with np.errstate(all="ignore"):
        while True:
            group = wave.scheduler.pop()
            if group is None:
                break
            run_group(group, wave)
    if wave.alive_count:
        raise deadlock(wave)


def run_group(group: Group, wave: Wave) -> None:
    """Run one group until it ends, waits, splits, or another one has its turn."""
    scheduler, budget = wave.scheduler, wave.budget
    ready = scheduler.ready
    observer = wave.observer
    while True:
        code, first = group.code, group.pc
        steps, end, control = code.run_from(first)
        if scheduler.random is not None and scheduler.cuts(end - first):
            steps, end, control = code.first_steps(first, 1 + scheduler.random.randrange(end - first))
        for step in steps:
            step(group)
        count = end - first + (control is not None)
        group.steps += count
        budget.executed += count * group.count
        if observer is not None:
            observer.on_run(group, code.number, first, first + count - 1)
        group.pc = end
        if control is not None and not control(group):
            return
        if (ready or scheduler.random is not None) and not scheduler.goes_on(group):
            scheduler.push(group)
            return


def deadlock(wave: Wave) -> KernelFault:
    """What to say when lanes wait that nobody will wake."""
    waiting: list[tuple[Group, Instruction, str]] = [
        (group, instruction, f"barrier {number}") for group, instruction, number in wave.barriers.stuck()
    ]
    waiting += [(group, instruction, "the barrier of the cluster") for group, instruction in wave.clusters.stuck()]
    waiting += [(group, instruction, "other threads of the warp") for group, instruction in wave.meetings.stuck()]
    told: list[tuple[str, Instruction]] = []
    for group, instruction, what in waiting[:8]:
        block, thread = wave.position(int(group.lanes[0]))
        lanes = "1 thread waits" if group.count == 1 else f"{group.count} threads wait"
        told.append((f"{lanes} for {what}, the first is thread {thread} of block {block}", instruction))
    places = [f"{'' if at.loc is None else f'{at.place}, '}PTX line {at.line}: {text}" for text, at in told]
    first = waiting[0]
    block, thread = wave.position(int(first[0].lanes[0]))
    return KernelFault(
        f"deadlock in kernel {demangle(wave.kernel)}: {wave.alive_count} threads have not ended and none can go on",
        *places,
        kernel=wave.kernel,
        instruction=first[1],
        block=block,
        thread=thread,
        slug="deadlock",
        waiting=tuple(told),
    )

"""What a check or a profile may watch while a kernel runs.

`Wave.observer` is None unless somebody watches; then nothing of this costs anything. All calls are made in the order
in which the machine executes, on the lanes of one group (ascending places in the wave; `Wave.position` names them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rglink.emulate.frames import Active, Lanes
from rglink.emulate.memory import Addresses
from rglink.emulate.ptx import Instruction

if TYPE_CHECKING:
    from rglink.emulate.wave import Wave


class Observer(Protocol):
    """Every method may raise `KernelFault` to end the launch."""

    def on_wave(self, wave: Wave) -> None:
        """A wave of blocks begins, with fresh shared and local memory."""

    def on_access(
        self, kind: str, space: str, active: Active, addresses: Addresses, size: int, instruction: Instruction
    ) -> None:
        """Before an access that passed the bounds check of the arena or not yet.

        `kind` is load, store, atomic, reduction, async-load or async-store; `space` as the instruction says it
        ("generic" if it does not), `addresses` in that space, one for all lanes or one for each; `size` in bytes of
        the whole access, vectors included.
        """

    def on_fence(self, active: Active, instruction: Instruction) -> None:
        """A memory fence."""

    def on_barrier(self, active: Active, barrier: int, instruction: Instruction, arrives: bool) -> None:
        """Lanes arrive at a barrier of their block (`arrives`), or leave it."""

    def on_warp_sync(self, active: Active, masks: Addresses, instruction: Instruction) -> None:
        """Lanes of warps met at a `.sync` instruction, under `masks` (32 bits)."""

    def on_branch(self, active: Active, taken: int, instruction: Instruction) -> None:
        """`taken` of the lanes took a conditional branch."""

    def on_run(self, active: Active, code_number: int, first: int, last: int) -> None:
        """Instructions `first` to `last` (inclusive) of a function ran for the lanes."""

    def on_exit(self, lanes: Lanes) -> None:
        """Lanes ended."""

    def on_heap(self, active: Active, address: int, size: int, freed: bool) -> None:
        """The device heap gave or took back a block."""

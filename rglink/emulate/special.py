"""Special registers.

Source: PTX ISA, "Special Registers". A grid is one cluster per block; clocks count executed instructions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Active, Group, Vector
from rglink.emulate.wave import Wave

AXES = {"x": 0, "y": 1, "z": 2}
U32 = np.uint32


def _of_lanes(name: str, make: Callable[[Wave], Vector]) -> Callable[[Active], Vector]:
    """A value that depends on the lane alone: computed once for the wave."""

    def read(active: Active) -> Vector:
        wave = active.wave
        vector = wave.special.get(name)
        if vector is None:
            vector = wave.special[name] = make(wave)
        return vector if active.full or len(vector) == 1 else vector.take(active.lanes)

    return read


def _one(value: int) -> Vector:
    return np.array([value], U32)


def _block_index(axis: int) -> Callable[[Wave], Vector]:
    def make(wave: Wave) -> Vector:
        width, height, _ = wave.grid
        linear = wave.first_block + wave.block_of
        found = (linear % width, linear // width % height, linear // (width * height))[axis]
        return found.astype(U32)

    return make


def _thread_index(axis: int) -> Callable[[Wave], Vector]:
    def make(wave: Wave) -> Vector:
        width, height, _ = wave.block
        if wave.block[axis] == 1:
            return _one(0)
        linear = np.arange(wave.lanes) % wave.block_lanes
        return (linear % width, linear // width % height, linear // (width * height))[axis].astype(U32)

    return make


def _lane_of(wave: Wave) -> Vector:
    return (np.arange(wave.lanes) & 31).astype(U32)


LANE_MASKS: dict[str, Callable[[Vector], Vector]] = {
    "eq": lambda bit: bit,
    "lt": lambda bit: bit - U32(1),
    "le": lambda bit: bit | (bit - U32(1)),
    "ge": lambda bit: ~(bit - U32(1)),
    "gt": lambda bit: ~(bit | (bit - U32(1))),
}
PER_WAVE: dict[str, Callable[[Wave], Vector]] = {
    "%laneid": _lane_of,
    "%warpid": lambda wave: (np.arange(wave.lanes) % wave.block_lanes >> 5).astype(U32),
    "%nwarpid": lambda wave: _one(64),
    "%smid": lambda wave: ((wave.first_block + wave.block_of) % 132).astype(U32),
    "%nsmid": lambda wave: _one(132),
    "%gridid": lambda wave: np.array([1], np.uint64),
    "WARP_SZ": lambda wave: _one(32),
    "%dynamic_smem_size": lambda wave: _one(wave.dynamic_shared),
    "%total_smem_size": lambda wave: _one(wave.spaces.shared_bytes),
    "%aggr_smem_size": lambda wave: _one(wave.spaces.shared_bytes),
    "%reserved_smem_offset_begin": lambda wave: _one(0),
    "%reserved_smem_offset_end": lambda wave: _one(0),
    "%reserved_smem_offset_cap": lambda wave: _one(0),
    # No launch here is part of a graph, and no driver sets environment registers.
    "%current_graph_exec": lambda wave: np.zeros(1, np.uint64),
    "%cluster_ctarank": lambda wave: _one(0),
    "%cluster_nctarank": lambda wave: _one(1),
    "%is_explicit_cluster": lambda wave: np.zeros(1, np.bool_),
}
for _axis, _at in AXES.items():
    PER_WAVE[f"%tid.{_axis}"] = _thread_index(_at)
    PER_WAVE[f"%ctaid.{_axis}"] = PER_WAVE[f"%clusterid.{_axis}"] = _block_index(_at)
    PER_WAVE[f"%ntid.{_axis}"] = lambda wave, at=_at: _one(wave.block[at])  # type: ignore[misc]
    PER_WAVE[f"%nctaid.{_axis}"] = lambda wave, at=_at: _one(wave.grid[at])  # type: ignore[misc]
    PER_WAVE[f"%nclusterid.{_axis}"] = PER_WAVE[f"%nctaid.{_axis}"]
    PER_WAVE[f"%cluster_ctaid.{_axis}"] = lambda wave: _one(0)
    PER_WAVE[f"%cluster_nctaid.{_axis}"] = lambda wave: _one(1)
for _at in range(2):
    PER_WAVE[f"%reserved_smem_offset_{_at}"] = lambda wave: _one(0)
for _at in range(32):
    PER_WAVE[f"%envreg{_at}"] = lambda wave: _one(0)
for _name, _mask in LANE_MASKS.items():
    PER_WAVE[f"%lanemask_{_name}"] = lambda wave, mask=_mask: mask(U32(1) << _lane_of(wave))  # type: ignore[misc]


def _clock(active: Active) -> int:
    steps = active.steps if isinstance(active, Group) else 0
    return active.wave.tick(steps)


CLOCKS: dict[str, Callable[[int], Vector]] = {
    "%clock": lambda now: _one(now & 0xFFFF_FFFF),
    "%clock64": lambda now: np.array([now], np.uint64),
    "%clock_hi": lambda now: _one(now >> 32),
    "%globaltimer": lambda now: np.array([now], np.uint64),
    "%globaltimer_lo": lambda now: _one(now & 0xFFFF_FFFF),
    "%globaltimer_hi": lambda now: _one(now >> 32),
}


def special_register(name: str) -> Callable[[Active], Vector]:
    """A function that reads a special register.

    Raises:
        Unsupported: one that the machine does not have.
    """
    make = PER_WAVE.get(name)
    if make is not None:
        return _of_lanes(name, make)
    clock = CLOCKS.get(name)
    if clock is not None:
        return lambda active: clock(_clock(active))
    raise Unsupported(f"register {name}")

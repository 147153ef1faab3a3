"""The kernels of `kernels.rs` whose threads work together: launches, arguments, and what must hold afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
Arguments: TypeAlias = "tuple[NDArray[Any] | int, ...]"
Shape: TypeAlias = "int | tuple[int, int]"
SOURCE = Path(__file__).with_name("kernels.rs")


@dataclass(frozen=True)
class Case:
    """`arguments()` are fresh ones; `holds(*arguments)` tells after the launch whether the results are right.

    `is_deterministic`: the same at every run, whatever the order of threads.
    """

    kernel: str
    grid: Shape
    block: Shape
    arguments: Callable[[], Arguments]
    holds: Callable[..., bool]
    is_deterministic: bool = True


def words(count: int, seed: int = 3) -> Words:
    """Random words, the same for a seed."""
    return np.random.default_rng(seed).integers(0, 2**32, count, np.uint32)


def zeros(count: int) -> Words:
    """`count` zeros."""
    return np.zeros(count, np.uint32)


def _equal(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return bool(np.array_equal(a, b))


def _tree_holds(given: Words, sums: Words) -> bool:
    return _equal(sums, given.reshape(8, 128).sum(axis=1, dtype=np.uint32))


def _transpose(size: int) -> Case:
    given = np.arange(size * size, dtype=np.float32).reshape(size, size)
    tiles = -(-size // 16)
    return Case(
        "transpose",
        (tiles, tiles),
        (16, 16),
        lambda: (given.copy(), np.zeros_like(given), size),
        lambda given, out, _: _equal(out, given.T),
    )


def _scan_holds(given: Words, sums: Words) -> bool:
    return _equal(sums.reshape(5, 96), np.cumsum(given.reshape(5, 96), axis=1, dtype=np.uint32))


def _stencil_holds(given: Words, sums: Words, _: int) -> bool:
    padded = np.concatenate([zeros(2), given, zeros(2)])
    return _equal(sums, np.lib.stride_tricks.sliding_window_view(padded, 5).sum(axis=1, dtype=np.uint32))


def _bytes() -> NDArray[np.uint8]:
    return np.random.default_rng(4).integers(0, 256, 3_000, np.uint8)


def _stack_holds(head: Words, below: Words, popped: Words) -> bool:
    left: list[int] = []
    top = int(head[0])
    while top and top < len(below) and len(left) < len(below):
        left.append(top)
        top = int(below[top])
    taken = popped[popped > 0].tolist()
    return sorted(left + taken) == list(range(1, len(below))) and len(taken) == len(popped) // 3


def _lock_holds(tickets: Words, serving: Words, total: Words, order: Words) -> bool:
    count = len(order)
    counted = (int(tickets[0]), int(serving[0]), int(total[0])) == (count, count, count * (count - 1) // 2)
    return counted and sorted(order.tolist()) == list(range(count))


def _warps_hold(given: Words, sums: Words, largest: Words, below: Words) -> bool:
    warps = given.reshape(-1, 32)
    odd = warps % 2
    return (
        _equal(sums[::32], warps.sum(axis=1, dtype=np.uint32))
        and bool((largest.reshape(-1, 32) == warps.max(axis=1)[:, None]).all())
        and _equal(below.reshape(-1, 32), np.cumsum(odd, axis=1) - odd)
    )


def _last_block_holds(given: Words, parts: Words, done: Words, total: Words) -> bool:
    sums = given.reshape(7, 64).sum(axis=1, dtype=np.uint32)
    return _equal(parts, sums) and done[0] == 7 and total[0] == given.sum(dtype=np.uint32)


CASES = (
    Case("tree_reduction", 8, 128, lambda: (words(8 * 128), zeros(8)), _tree_holds),
    _transpose(16),
    _transpose(40),
    Case("scan", 5, 96, lambda: (words(5 * 96), zeros(5 * 96)), _scan_holds),
    Case("stencil", 5, 64, lambda: (words(300), zeros(300), 300), _stencil_holds),
    Case(
        "byte_counts",
        4,
        96,
        lambda: (_bytes(), 3_000, zeros(256)),
        lambda given, _, counts: _equal(counts, np.bincount(given, minlength=256)),
    ),
    Case("stack", 5, 32, lambda: (zeros(1), zeros(161), zeros(160)), _stack_holds, is_deterministic=False),
    Case("ticket_lock", 3, 32, lambda: (zeros(1), zeros(1), zeros(1), zeros(96)), _lock_holds, is_deterministic=False),
    Case("warp_shuffles", 2, 96, lambda: (words(192), zeros(192), zeros(192), zeros(192)), _warps_hold),
    Case("last_block", 7, 64, lambda: (words(7 * 64), zeros(7), zeros(1), zeros(1)), _last_block_holds),
)

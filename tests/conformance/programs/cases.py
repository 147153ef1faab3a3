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


def _tree(blocks: int, size: int) -> Case:
    return Case(
        "tree_reduction",
        blocks,
        size,
        lambda: (words(blocks * size), zeros(blocks)),
        lambda given, sums: _equal(sums, given.reshape(blocks, size).sum(axis=1, dtype=np.uint32)),
    )


def _sort(blocks: int, size: int) -> Case:
    given = words(blocks * size)
    return Case(
        "bitonic_sort",
        blocks,
        size,
        lambda: (given.copy(),),
        lambda out: _equal(out.reshape(blocks, size), np.sort(given.reshape(blocks, size), axis=1)),
    )


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


def _scan(blocks: int, size: int) -> Case:
    return Case(
        "scan",
        blocks,
        size,
        lambda: (words(blocks * size), zeros(blocks * size)),
        lambda given, sums: _equal(sums, np.cumsum(given.reshape(blocks, size), axis=1, dtype=np.uint32).ravel()),
    )


def _stencil_holds(given: Words, sums: Words, _: int) -> bool:
    padded = np.concatenate([zeros(2), given, zeros(2)])
    return _equal(sums, np.lib.stride_tricks.sliding_window_view(padded, 5).sum(axis=1, dtype=np.uint32))


def _stencil(blocks: int, size: int, count: int) -> Case:
    return Case("stencil", blocks, size, lambda: (words(count), zeros(count), count), _stencil_holds)


def _counts(blocks: int, size: int, count: int) -> Case:
    return Case(
        "byte_counts",
        blocks,
        size,
        lambda: (np.random.default_rng(4).integers(0, 256, count, np.uint8), count, zeros(256)),
        lambda given, _, counts: _equal(counts, np.bincount(given, minlength=256)),
    )


def _stack(blocks: int, size: int) -> Case:
    threads = blocks * size
    return Case(
        "stack",
        blocks,
        size,
        lambda: (zeros(1), zeros(threads + 1), zeros(threads)),
        _stack_holds,
        is_deterministic=False,
    )


def _lock(blocks: int, size: int) -> Case:
    return Case(
        "ticket_lock",
        blocks,
        size,
        lambda: (zeros(1), zeros(1), zeros(1), zeros(blocks * size)),
        _lock_holds,
        is_deterministic=False,
    )


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


def _last_block(blocks: int, size: int) -> Case:
    def holds(given: Words, parts: Words, done: Words, total: Words) -> bool:
        sums = given.reshape(blocks, size).sum(axis=1, dtype=np.uint32)
        return _equal(parts, sums) and done[0] == blocks and total[0] == given.sum(dtype=np.uint32)

    return Case("last_block", blocks, size, lambda: (words(blocks * size), zeros(blocks), zeros(1), zeros(1)), holds)


CASES = (
    *(_tree(8, 128), _tree(3, 1), _tree(2, 64)),
    *(_sort(3, 128), _sort(2, 32), _sort(2, 1)),
    *(_transpose(16), _transpose(40), _transpose(63)),
    *(_scan(5, 96), _scan(2, 33), _scan(3, 1)),
    *(_stencil(5, 64, 300), _stencil(2, 32, 64), _stencil(3, 20, 41)),
    *(_counts(4, 96, 3_000), _counts(2, 256, 700), _counts(1, 33, 5)),
    *(_stack(5, 32), _stack(3, 7)),
    *(_lock(3, 32), _lock(4, 5)),
    Case("warp_shuffles", 2, 96, lambda: (words(192), zeros(192), zeros(192), zeros(192)), _warps_hold),
    *(_last_block(7, 64), _last_block(19, 33)),
)

"""Release and acquire: what threads of the grid learn of each other through strong operations on memory.

Each location that was released to has a log of releases of wide scope, and one for each block of those of block
scope. A thread's knowledge is a prefix of some logs; a release passes on the releasing thread's accesses until then,
those its barriers ordered before them, and what it knew itself. A store that does not release hides the releases
before it; a read-modify-write continues them.

Reading a release is taken for synchronising even where a failed compare-and-swap wrote nothing.

Following all this costs microseconds for each thread of each strong operation, and most kernels have no access that it
decides about. So what happens is put down in a journal, and followed in the same order once somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.wave import Wave

Knowledge: TypeAlias = "dict[Log, int]"
Places: TypeAlias = "int | list[int]"
Key = TypeVar("Key")
NOTHING: Knowledge = {}
# Operations of threads that the journal may hold, for the sake of memory: some 50 bytes each.
MOST_DEFERRED = 1 << 21


class Log:
    """The releases to one location, in order. `until` is how many of them a reader of the location now sees."""

    def __init__(self) -> None:
        self.until = 0
        self.times: list[int] = []
        self.block_floors: list[int] = []
        self.warp_floors: list[int] = []
        self.passed: list[Knowledge] = []
        self.last_block = -1
        # Where in the log the releases of a thread, block or warp are; one number stands for a list of one.
        self.by_thread: dict[int, Places] = {}
        self.by_block: dict[int, Places] = {}
        self.by_warp: dict[tuple[int, int], Places] = {}

    def append(self, thread: int, where: tuple[int, int], time: int, seen: tuple[int, int, Knowledge]) -> None:
        """A release by `thread`, which is in (block, warp) `where`, of all that it did up to `time`."""
        at = len(self.times)
        self.times.append(time)
        self.block_floors.append(seen[0])
        self.warp_floors.append(seen[1])
        before = self.passed[-1] if self.passed else NOTHING
        if seen[2]:
            before = joined_knowledge(before, {log: n for log, n in seen[2].items() if log is not self})
        self.passed.append(before)
        _put(self.by_thread, thread, at)
        _put(self.by_block, where[0], at)
        _put(self.by_warp, where, at)
        self.until, self.last_block = at + 1, where[0]

    def tells(self, thread: int, where: tuple[int, int], time: int, prefix: int) -> bool:
        """Whether the first `prefix` releases pass on what `thread` did at `time`."""
        at = _last(self.by_thread.get(thread), prefix)
        if at >= 0 and time <= self.times[at]:
            return True
        at = _last(self.by_block.get(where[0]), prefix)
        if at >= 0 and time <= self.block_floors[at]:
            return True
        at = _last(self.by_warp.get(where), prefix)
        return at >= 0 and time <= self.warp_floors[at]


def _put(places: dict[Key, Places], key: Key, at: int) -> None:
    found = places.get(key)
    if found is None:
        places[key] = at
    elif isinstance(found, int):
        places[key] = [found, at]
    else:
        found.append(at)


def _last(places: Places | None, prefix: int) -> int:
    if places is None:
        return -1
    if isinstance(places, int):
        return places if places < prefix else -1
    at = bisect_left(places, prefix) - 1
    return places[at] if at >= 0 else -1


def joined_knowledge(a: Knowledge, b: Knowledge) -> Knowledge:
    """The union; one of the two themselves if it holds the other."""
    news = {log: n for log, n in b.items() if a.get(log, 0) < n}
    return {**a, **news} if news else a


class Releases:
    """All logs of a launch and what its threads know. Threads go by their numbers in the grid, from 1.

    `used` says that there may be releases: until then nobody knows anything, and nothing is put off.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.used = False
        self.logs: dict[tuple[int, int, int], Log] = {}
        self.by_block: dict[int, Knowledge] = {}
        self.by_thread: dict[int, dict[int, Knowledge]] = {}
        self._journal: list[Callable[[], None]] = []
        self._deferred = 0

    def defer(self, operations: int, event: Callable[[], None]) -> None:
        """Let `event` change what threads know in its turn, which comes before the next question.

        It stands for so many operations of threads, and may use of `Releases` what does not defer.
        """
        if not self.used:
            event()
            return
        self._journal.append(event)
        self._deferred += 1 + operations
        if self._deferred > MOST_DEFERRED:
            self.settle()

    def settle(self) -> None:
        """Follow all that was put off."""
        journal, self._journal, self._deferred = self._journal, [], 0
        for event in journal:
            event()

    def begin_wave(self, wave: Wave) -> None:
        """Locations in shared memory are new ones."""
        self.first_block = wave.first_block
        self.defer(0, self._forget_shared)

    def _forget_shared(self) -> None:
        self.logs = {key: log for key, log in self.logs.items() if key[0] < 0}

    def where(self, number: int) -> tuple[int, int]:
        """(block, warp) of a thread."""
        block, place = divmod(number - 1, self.threads)
        return block, place >> 5

    def knowledge(self, number: int) -> Knowledge:
        """What a thread has acquired, as far as the journal is settled."""
        block = (number - 1) // self.threads
        own = self.by_thread.get(block)
        found = own.get(number) if own else None
        return self.by_block.get(block, NOTHING) if found is None else found

    def learn(self, number: int, news: Knowledge) -> None:
        """A thread acquires `news`, with all that the releases in it pass on."""
        for log, prefix in list(news.items()):
            news = joined_knowledge(news, log.passed[prefix - 1])
        block = (number - 1) // self.threads
        known = joined_knowledge(self.knowledge(number), news)
        self.by_thread.setdefault(block, {})[number] = known

    def seen(self, space: int, address: int, block: int, wide: bool) -> Knowledge:
        """What a read of a location tells: releases of block scope by its own block, and those of wider scope.

        A read of block scope takes in the latter if the last of them is by its own block.
        """
        found: Knowledge = {}
        own = self.logs.get((space, address, block))
        if own is not None and own.until:
            found[own] = own.until
        log = self.logs.get((space, address, -1))
        if log is not None and log.until and (wide or log.last_block == block):
            found[log] = log.until
        return found

    def release(
        self, place: tuple[int, int], number: int, wide: bool, time: int, snapshot: tuple[int, int, Knowledge]
    ) -> None:
        """A release to `place` (space, address) by a thread."""
        self.used = True
        where = self.where(number)
        self._log((*place, -1 if wide else where[0])).append(number, where, time, snapshot)

    def _log(self, key: tuple[int, int, int]) -> Log:
        log = self.logs.get(key)
        if log is None:
            log = self.logs[key] = Log()
        return log

    def hide_from_all(self, place: tuple[int, int]) -> None:
        """A store that releases to its own block only."""
        log = self.logs.get((*place, -1))
        if log is not None:
            log.until = 0

    def overwrite(self, place: tuple[int, int], block: int) -> None:
        """A store that releases nothing: who reads it sees no release."""
        for owner in (block, -1):
            log = self.logs.get((*place, owner))
            if log is not None:
                log.until = 0

    def join_blocks(self, blocks: NDArray[np.int64]) -> None:
        """All threads of these blocks (counted in the wave) know what one of them knows."""
        if self.used:
            numbers = blocks + self.first_block
            self.defer(len(numbers), lambda: self._join_blocks(numbers.tolist()))

    def _join_blocks(self, blocks: list[int]) -> None:
        if not self.by_thread:
            return
        for block in blocks:
            own = self.by_thread.pop(block, None)
            if own:
                self.by_block[block] = _union([self.by_block.get(block, NOTHING), *own.values()])

    def join_lanes(self, come: NDArray[np.int64], gain: NDArray[np.int64]) -> None:
        """Threads `gain` learn all that threads `come` know; all are of one block. Does not defer."""
        if not self.by_thread or not len(come):
            return
        block = int(come[0] - 1) // self.threads
        own = self.by_thread.get(block)
        if not own:
            return
        together = _union([self.knowledge(n) for n in come.tolist()])
        for number in gain.tolist():
            own[number] = joined_knowledge(self.knowledge(number), together)

    def known_mask(
        self, others: NDArray[np.int64], times: NDArray[np.int64], lanes: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Which accesses of `others` (from 0) at `times` the threads at `lanes` have acquired knowledge of."""
        self.settle()
        found = np.zeros(len(others), np.bool_)
        answers: dict[tuple[int, int, int], bool] = {}
        rows = zip(others.tolist(), times.tolist(), numbers[lanes].tolist(), strict=True)
        for at, (other, time, number) in enumerate(rows):
            knowledge = self.knowledge(number)
            if not knowledge:
                continue
            key = (id(knowledge), other, time)
            answer = answers.get(key)
            if answer is None:
                where = self.where(other + 1)
                answer = any(log.tells(other + 1, where, time, n) for log, n in knowledge.items())
                answers[key] = answer
            found[at] = answer
        return found


def _union(parts: Iterable[Knowledge]) -> Knowledge:
    total = NOTHING
    for part in parts:
        total = joined_knowledge(total, part)
    return total

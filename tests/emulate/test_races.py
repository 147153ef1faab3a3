"""Data races: idiomatic kernels are silent under many schedules, kernels without their synchronisation are not."""

from __future__ import annotations

import numpy as np
import pytest

from rglink.emulate.checks import CheckFailed, Checks, Report, launch_checked, releases
from tests.emulate import race_kernels as k
from tests.emulate.support import loaded

SCHEDULES = 5

IDIOMS = {
    "tree reduction": k.reduction(),
    "last block, fences": k.last_block(),
    "last block, acq_rel atomic": k.last_block("", "").replace("atom.global.inc", "atom.acq_rel.gpu.global.inc"),
    "spin lock, acquire and release": k.lock(),
    "spin lock, fences": k.lock("atom.global.cas.b32", "membar.gl;", "membar.gl;", "st.volatile"),
    "spin lock, exchange": k.lock(give="atom.release.gpu.global.exch.b32 %r6, [%rd0], 0; //"),
    "spin lock, sequentially consistent": k.lock(
        "fence.sc.gpu; atom.acquire.gpu.global.cas.b32", "", "fence.sc.gpu;", "st.relaxed.gpu"
    ),
    "histogram": k.histogram(),
    "histogram, ordered atomics": k.histogram("atom.acq_rel.cta.shared.add.u32 %r9, [%rd9], 1;"),
    "warp exchange": k.warp_exchange(),
    "half-warp exchange": k.warp_exchange("and.b32 %r6, %r1, 16; shl.b32 %r7, 0xffff, %r6; bar.warp.sync %r7;", 9),
    "publish": k.publish(),
    "publish, fences": k.publish("st.volatile", "ld.volatile", "membar.gl;", "membar.gl;"),
    "publish within the block": k.block_flag(),
    "producer and consumer": k.named_barrier(),
    "one flag, one value": k.flag(),
    "asynchronous copy": k.async_copy(),
    "stencil": k.stencil(),
    "transpose": k.transpose(),
    "grid-stride loop": k.grid_stride(),
    "shuffles": k.shuffles(),
    "bytes": k.bytes_apart(),
    "counter": k.counter(),
    "counter, volatile read": k.counter(read="ld.volatile.global.u32 %r5, [%rd0];"),
    "double buffer": k.double_buffer(),
    "mbarrier": k.mbarrier(),
    "bulk copy": k.copy_to_mbarrier(),
    "copy signalled to an mbarrier": k.copy_handed_over(),
}
# (kernel, words that the report holds)
RACES = {
    "reduction without a barrier": (k.reduction(""), ("dep/src/lib.rs:20: read", "src/lib.rs:10: earlier write")),
    "last block without a release": (k.last_block(release=""), ("src/lib.rs:11: read", "src/lib.rs:5: earlier write")),
    "last block without an acquire": (k.last_block(acquire=""), ("src/lib.rs:11: read", "different blocks")),
    "last block without a barrier": (k.last_block(barrier=""), ("shared buf+0", "src/lib.rs:8", "src/lib.rs:9")),
    "last block, fences of block scope": (k.last_block("membar.cta;", "membar.cta;"), ("src/lib.rs:11: read",)),
    "lock given up without a release": (k.lock(give="st.relaxed.gpu"), ("src/lib.rs:7: read", "src/lib.rs:8")),
    "lock taken without an acquire": (k.lock("atom.relaxed.gpu.global.cas.b32"), ("src/lib.rs:7: read",)),
    "lock of block scope": (k.lock("atom.acquire.cta.global.cas.b32", give="st.release.cta"), ("different blocks",)),
    "histogram without atomics": (
        k.histogram("ld.shared.u32 %r9, [%rd9]; add.u32 %r9, %r9, 1; st.shared.u32 [%rd9], %r9;"),
        ("data race on shared buf", "src/lib.rs:6", "same block"),
    ),
    "warp exchange without a barrier": (k.warp_exchange(""), ("src/lib.rs:4: read", "src/lib.rs:3: earlier write")),
    "warp exchange after a vote": (k.warp_exchange("vote.sync.any.pred %p1, %p1, 0xffffffff;"), ("src/lib.rs:4",)),
    "exchange across halves": (
        k.warp_exchange("and.b32 %r6, %r1, 16; shl.b32 %r7, 0xffff, %r6; bar.warp.sync %r7;", 17),
        ("src/lib.rs:4: read",),
    ),
    "exchange across warps": (k.warp_exchange(partner=33), ("src/lib.rs:4: read",)),
    "flag without a release": (k.publish("st.relaxed.gpu"), ("src/lib.rs:9: read", "src/lib.rs:4: earlier write")),
    "flag without an acquire": (k.publish(take="ld.relaxed.gpu"), ("src/lib.rs:9: read",)),
    "volatile flag": (k.publish("st.volatile", "ld.volatile"), ("src/lib.rs:9: read",)),
    "plain flag": (k.publish("st.weak"), ("data race on the array of argument 1 of k+0",)),
    "consumer that does not wait": (
        k.named_barrier("bar.sync 2, 32;"),
        ("src/lib.rs:6: read", "src/lib.rs:3: earlier write"),
    ),
    "one flag, several values": (k.flag("%tid.x"), ("write and write by threads of the same block", "src/lib.rs:3")),
    "copy without a barrier": (k.async_copy(barrier=""), ("src/lib.rs:8: read", "src/lib.rs:3: earlier async copy")),
    "overlapping results": (k.stencil(1), ("src/lib.rs:6: write", "src/lib.rs:5: earlier write")),
    "transpose without a barrier": (k.transpose(""), ("src/lib.rs:6: read", "src/lib.rs:4: earlier write")),
    "tile with too small a pitch": (k.transpose(pitch=15), ("src/lib.rs:4: write",)),
    "stride of one block": (k.grid_stride("mov.u32 %r6, %r3;"), ("different blocks", "src/lib.rs:5: write")),
    "word of four threads' bytes": (
        k.bytes_apart("and.b64 %rd9, %rd8, -4;\n.loc 1 4 0\nld.global.u32 %r5, [%rd9];"),
        ("src/lib.rs:4: read of 4 bytes", "src/lib.rs:3: earlier write of 1 bytes"),
    ),
    "counter of block scope": (k.counter("atom.relaxed.cta.global.add.u32 %r4, [%rd0], 1;"), ("different blocks",)),
    "counter that is read plainly": (k.counter(read="ld.global.u32 %r5, [%rd0];"), ("src/lib.rs:4: read",)),
    "counter that is set plainly": (k.counter(read="st.global.u32 [%rd0], 0;"), ("src/lib.rs:4: write",)),
    "mbarrier without a wait": (k.mbarrier(""), ("src/lib.rs:9: read", "src/lib.rs:5: earlier write")),
    "bulk copy without a wait": (k.copy_to_mbarrier(""), ("src/lib.rs:9: read", "src/lib.rs:5: earlier async copy")),
    "buffer written too early": (k.double_buffer(""), ("src/lib.rs:8: write", "src/lib.rs:6: earlier read")),
}


def launch(text: str, checks: Checks) -> tuple[np.ndarray, np.ndarray]:
    """Four blocks of 64 threads, or one of 256 for the transposition; a holds its indices, b zeros."""
    program = loaded(text)
    a = np.zeros(1024, np.uint32) if "cas" in text or "%nctaid" in text else np.arange(1024, dtype=np.uint32)
    if "L1: ld." in text or "L2: ld." in text or "atom.global.add" in text:
        a[:] = 0
    b = np.zeros(1024, np.uint32)
    shape = (1, 256) if "buf[1024]" not in text else (4, 64)
    launch_checked(program["k"], *shape, (a, b), checks)
    return a, b


@pytest.mark.parametrize("name", IDIOMS)
def test_idiom_is_silent(name: str) -> None:
    launch(IDIOMS[name], Checks(schedules=SCHEDULES))


@pytest.mark.parametrize("name", RACES)
def test_race_is_found(name: str) -> None:
    text, words = RACES[name]
    with pytest.raises(CheckFailed) as caught:
        launch(text, Checks(schedules=SCHEDULES))
    races = [report for report in caught.value.reports if report.kind == "race"]
    assert races
    rendered = [report.diagnostic().render("rgrun") for report in races]
    assert any(all(word in one for word in words) for one in rendered), "\n".join(rendered)


def findings(text: str, seed: int | None) -> tuple[Report, ...]:
    try:
        launch(text, Checks(seed=seed))
    except CheckFailed as failed:
        return failed.reports
    return ()


def test_what_is_put_off_is_followed_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases that are followed at once and those that wait until somebody asks give the same reports."""
    texts = [*IDIOMS.values(), *(text for text, _ in RACES.values())]
    later = [findings(text, seed) for text in texts for seed in (None, 1)]
    monkeypatch.setattr(releases, "MOST_DEFERRED", -1)
    assert [findings(text, seed) for text in texts for seed in (None, 1)] == later
    assert sum(map(bool, later)) > 30, "a comparison of silence tells nothing"


def test_releases_that_nobody_asks_about_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acquiring and releasing atomics alone race with nothing; following them would cost more than all else."""
    followed: list[int] = []

    class Counting(releases.Log):
        def __init__(self) -> None:
            super().__init__()
            followed.append(1)

    monkeypatch.setattr(releases, "Log", Counting)
    launch(k.counter("atom.acq_rel.gpu.global.add.u32 %r4, [%rd0], 1;"), Checks())
    assert not followed
    with pytest.raises(CheckFailed):
        launch(k.counter("atom.acq_rel.gpu.global.add.u32 %r4, [%rd0], 1;", "st.global.u32 [%rd0], 0;"), Checks())
    assert followed

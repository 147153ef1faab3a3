"""Clusters of one block: their barrier, mapa, getctarank, and kernels that want more."""

from __future__ import annotations

import numpy as np
import pytest

from rglink.emulate import KernelFault, LaunchError
from rglink.emulate.checks import CheckFailed, Checks, launch_checked
from tests.emulate.support import PLACE, kernel, loaded


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("alone", ["", ".aligned"])
def test_the_barrier_orders_a_block(seed: int | None, alone: str) -> None:
    """Every thread writes its word and reads that of another warp, three times."""
    body = f"""
    .shared .align 4 .b8 tile[384]; mov.u32 %r3, %tid.x; shl.b32 %r4, %r3, 2; mov.u32 %r5, tile; add.u32 %r6, %r5, %r4;
    sub.u32 %r7, 95, %r3; shl.b32 %r7, %r7, 2; add.u32 %r7, %r5, %r7; mov.u32 %r8, 0; mov.u32 %r9, %r0;
    AGAIN: st.shared.u32 [%r6], %r9; barrier.cluster.arrive.release{alone}; barrier.cluster.wait.acquire{alone};
    ld.shared.u32 %r9, [%r7]; barrier.cluster.arrive{alone}; add.u32 %r8, %r8, 1; barrier.cluster.wait{alone};
    setp.lt.u32 %p0, %r8, 3; @%p0 bra AGAIN; st.global.u32 [%rd0], %r9;
    """
    out = np.zeros(192, np.uint32)
    loaded(kernel(PLACE + body))["k"].launch(2, 96, (out,), seed=seed)
    block = np.arange(192) // 96 * 96
    assert (out == block + 95 - np.arange(192) % 96).all()


ORDERED = """
.shared .align 4 .b8 tile[256]; mov.u32 %r3, %tid.x; shl.b32 %r4, %r3, 2; mov.u32 %r5, tile; add.u32 %r6, %r5, %r4;
sub.u32 %r7, 63, %r3; shl.b32 %r7, %r7, 2; add.u32 %r7, %r5, %r7; st.shared.u32 [%r6], %r0;
barrier.cluster.arrive; add.u32 %r8, %r8, 1; barrier.cluster.wait; ld.shared.u32 %r9, [%r7]; st.global.u32 [%rd0], %r9;
"""


def test_the_checks_take_it_for_a_barrier() -> None:
    program = loaded(kernel(PLACE + ORDERED))
    launch_checked(program["k"], 2, 64, (np.zeros(128, np.uint32),), Checks(schedules=3))
    racing = ORDERED.replace("barrier.cluster.arrive; ", "").replace("barrier.cluster.wait; ", "")
    with pytest.raises(CheckFailed) as caught:
        launch_checked(loaded(kernel(PLACE + racing))["k"], 2, 64, (np.zeros(128, np.uint32),), Checks(schedules=3))
    assert {report.kind for report in caught.value.reports} <= {"race", "uninitialised-read"}


def test_who_has_arrived_lets_others_pass() -> None:
    """A thread that arrives and then waits for a flag that another sets after its own wait does not block it."""
    body = """
    .shared .align 4 .u32 flag; mov.u32 %r3, %tid.x; setp.eq.u32 %p0, %r3, 0; @%p0 st.shared.u32 [flag], 0; bar.sync 0;
    barrier.cluster.arrive; setp.lt.u32 %p1, %r3, 32; @%p1 bra SPIN; barrier.cluster.wait;
    st.volatile.shared.u32 [flag], 7; bra END;
    SPIN: ld.volatile.shared.u32 %r4, [flag]; setp.ne.u32 %p2, %r4, 7; @%p2 bra SPIN; barrier.cluster.wait;
    END: st.global.u32 [%rd0], 5;
    """
    out = np.zeros(64, np.uint32)
    loaded(kernel(PLACE + body))["k"].launch(1, 64, (out,), steps=100_000)
    assert (out == 5).all()


def test_threads_that_end_are_not_waited_for() -> None:
    body = """
    mov.u32 %r3, %tid.x; setp.ge.u32 %p0, %r3, 40; barrier.cluster.arrive; barrier.cluster.wait; @%p0 exit;
    barrier.cluster.arrive; barrier.cluster.wait; st.global.u32 [%rd0], 5;
    """
    out = np.zeros(64, np.uint32)
    loaded(kernel(PLACE + body))["k"][1, 64](out)
    assert out.tolist() == [5] * 40 + [0] * 24


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("barrier.cluster.wait;", "barrier.cluster.wait without barrier.cluster.arrive"),
        ("barrier.cluster.arrive; barrier.cluster.arrive;", "without barrier.cluster.wait since the last one"),
        ("mov.u32 %r3, 2; mapa.u64 %rd1, %rd0, %r3;", "mapa wants block 2 of the cluster, which has 1 block"),
        (
            "mov.u32 %r3, %tid.x; barrier.cluster.arrive; setp.eq.u32 %p0, %r3, 3; @%p0 bra L; barrier.cluster.wait;"
            "barrier.cluster.arrive; barrier.cluster.wait; bra E; L: barrier.cluster.wait; bar.sync 1; E:",
            "deadlock in kernel k",
        ),
    ],
)
def test_wrong_use_is_a_fault(body: str, message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        loaded(kernel(PLACE + body))["k"][1, 32](np.zeros(32, np.uint32))


def test_addresses_in_the_only_block() -> None:
    body = """
    .shared .align 4 .b8 tile[16]; mov.u32 %r3, 41; st.shared.u32 [tile+8], %r3;
    mapa.shared::cluster.u32 %r4, tile+8, 0; ld.shared::cluster.u32 %r5, [%r4]; getctarank.shared::cluster.u32 %r6, %r4;
    add.u32 %r5, %r5, %r6; mov.u64 %rd1, tile; cvta.shared.u64 %rd1, %rd1; mov.u32 %r7, %cluster_ctarank;
    mapa.u64 %rd2, %rd1, %r7; ld.u32 %r8, [%rd2+8]; getctarank.u64 %r6, %rd2; add.u32 %r5, %r5, %r8;
    add.u32 %r5, %r5, %r6; mov.u32 %r9, 3; setp.eq.u32 %p0, %r9, 4; @%p0 mapa.u64 %rd2, %rd1, %r9;
    st.global.u32 [%rd0], %r5;
    """
    out = np.zeros(1, np.uint32)
    loaded(kernel(PLACE + body))["k"][1, 1](out)
    assert out[0] == 82


@pytest.mark.parametrize(("shape", "blocks"), [("2", 2), ("2, 2, 1", 4)])
def test_kernels_that_require_larger_clusters_are_refused(shape: str, blocks: int) -> None:
    text = kernel("").replace("out)\n{", f"out) .explicitcluster .reqnctapercluster {shape}\n{{")
    with pytest.raises(LaunchError, match=f"k: the kernel requires clusters of {blocks} blocks, the machine has"):
        loaded(text)["k"][4, 32](np.zeros(1, np.uint32))

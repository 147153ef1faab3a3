"""The profile counts what textbooks count: bank conflicts of reductions and transposes, sectors of accesses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rglink.emulate import LoadedProgram
from rglink.emulate.profile import Counts, Profile, ProfileObserver
from tests.emulate.support import kernel, loaded

THREADS = 256
SHARED_FLOATS = f".shared .align 4 .f32 data[{THREADS}];"

# data[t] = in[t]; then halves are added up by a loop over `%r2`; out[0] = data[0].
REDUCTION = """
ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, data;
mul.wide.u32 %rd2, %r0, 4; add.u64 %rd2, %rd0, %rd2; ld.global.f32 %f0, [%rd2];
shl.b32 %r3, %r0, 2; add.u32 %r4, %r1, %r3; st.shared.f32 [%r4], %f0; bar.sync 0;
mov.u32 %r2, {first};
loop:
{place}
@%p0 bra next;
shl.b32 %r6, %r5, 2; add.u32 %r6, %r1, %r6; shl.b32 %r7, %r2, 2; add.u32 %r7, %r6, %r7;
ld.shared.f32 %f1, [%r6];
ld.shared.f32 %f2, [%r7];
add.f32 %f1, %f1, %f2;
st.shared.f32 [%r6], %f1;
next:
bar.sync 0;
{step}
@%p1 bra loop;
setp.ne.u32 %p2, %r0, 0; @%p2 bra done;
ld.shared.f32 %f3, [data]; st.global.f32 [%rd1], %f3;
done:
"""
# Thread t adds data[2st] and data[2st + s], for s = 1, 2, 4, .. 128.
STRIDED = REDUCTION.format(
    first=1,
    place=f"mul.lo.u32 %r5, %r0, %r2; shl.b32 %r5, %r5, 1; setp.ge.u32 %p0, %r5, {THREADS};",
    step=f"shl.b32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, {THREADS};",
)
# Thread t adds data[t] and data[t + s], for s = 128, 64, .. 1.
SEQUENTIAL = REDUCTION.format(
    first=THREADS // 2,
    place="mov.u32 %r5, %r0; setp.ge.u32 %p0, %r0, %r2;",
    step="shr.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0;",
)
TWO_POINTERS = ".param .u64 in, .param .u64 out"


def profile(program: LoadedProgram, block: int | Sequence[int], args: Sequence[Any], grid: int = 1) -> Profile:
    observer = ProfileObserver()
    program["k"].launch(grid, block, args, observer=observer)
    return observer.profile()


def of_line(text: str, line_text: str, found: Profile) -> Counts:
    """The counts of the one line of PTX that holds a text; there is no line table in these kernels."""
    numbers = [number for number, line in enumerate(text.splitlines(), 1) if line_text in line]
    assert len(numbers) == 1
    return dict(found.lines)["", numbers[0]]


@pytest.mark.parametrize(
    ("body", "wavefronts"),
    [
        # Steps have 128, 64, .. 1 active threads with strides of 2, 4, .. 256 words: 4 warps of 2 wavefronts, 2 of 4,
        # then one warp of 8, 8, 8, 4, 2, 1.
        pytest.param(STRIDED, 4 * 2 + 2 * 4 + 8 + 8 + 8 + 4 + 2 + 1, id="strided"),
        # 128 threads are 4 warps, 64 are 2, then one warp for 32, 16, .. 1 threads; neighbours touch neighbours.
        pytest.param(SEQUENTIAL, 4 + 2 + 6, id="sequential"),
    ],
)
def test_a_reduction_has_the_conflicts_of_its_strides(body: str, wavefronts: int) -> None:
    text = kernel(body, TWO_POINTERS, SHARED_FLOATS)
    values, total = np.arange(THREADS, dtype=np.float32), np.zeros(1, np.float32)
    found = profile(loaded(text), THREADS, (values, total))
    assert total[0] == values.sum()
    for line in ("ld.shared.f32 %f1", "ld.shared.f32 %f2", "st.shared.f32 [%r6]"):
        counts = of_line(text, line, found)
        assert (counts.shared_requests, counts.shared_passes) == (12, 12)
        assert counts.shared_wavefronts == wavefronts
        assert counts.bank_conflicts == wavefronts - 12
        # 255 additions in all, by 12 warps.
        assert (counts.instructions, counts.issues) == (255, 12)
        assert counts.active_share == 255 / (12 * 32)
    # Besides: 8 warps store their samples, one thread reads the sum.
    assert found.total.shared_requests == 3 * 12 + 8 + 1
    assert found.total.shared_wavefronts == 3 * wavefronts + 8 + 1
    # 8 warps read 128 bytes each, one thread writes 4.
    assert (found.total.global_requests, found.total.global_sectors) == (9, 8 * 4 + 1)
    assert found.total.global_used == 1024 + 4
    assert found.threads == THREADS


def transpose(row: int) -> str:
    """A tile of 32 x 32 floats through shared memory, whose rows have `row` floats."""
    body = f"""
ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r8, tile;
mad.lo.u32 %r2, %r1, 32, %r0; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
mad.lo.u32 %r3, %r1, {row}, %r0; shl.b32 %r3, %r3, 2; add.u32 %r3, %r8, %r3;
mad.lo.u32 %r4, %r0, {row}, %r1; shl.b32 %r4, %r4, 2; add.u32 %r4, %r8, %r4;
ld.global.f32 %f0, [%rd3];
st.shared.f32 [%r3], %f0;
bar.sync 0;
ld.shared.f32 %f1, [%r4];
st.global.f32 [%rd4], %f1;
"""
    return kernel(body, TWO_POINTERS, f".shared .align 4 .f32 tile[{32 * row}];")


@pytest.mark.parametrize(("row", "conflicts"), [(32, 32 * 31), (33, 0)], ids=["plain", "padded"])
def test_padding_frees_a_transpose_of_conflicts(row: int, conflicts: int) -> None:
    text = transpose(row)
    tile = np.arange(1024, dtype=np.float32).reshape(32, 32)
    turned = np.zeros_like(tile)
    found = profile(loaded(text), (32, 32), (tile, turned))
    assert (turned == tile.T).all()
    column = of_line(text, "ld.shared.f32", found)
    assert (column.shared_requests, column.shared_wavefronts, column.bank_conflicts) == (32, 32 + conflicts, conflicts)
    assert of_line(text, "st.shared.f32", found).bank_conflicts == 0
    for line in ("ld.global.f32", "st.global.f32"):
        counts = of_line(text, line, found)
        assert (counts.global_requests, counts.global_sectors, counts.used_share) == (32, 128, 1.0)


def test_a_transpose_without_shared_memory_moves_a_sector_for_each_lane() -> None:
    text = kernel(
        """
ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y;
mad.lo.u32 %r2, %r1, 32, %r0; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd0, %rd2;
mad.lo.u32 %r3, %r0, 32, %r1; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd4, %rd1, %rd2;
ld.global.f32 %f0, [%rd3];
st.global.f32 [%rd4], %f0;
""",
        TWO_POINTERS,
    )
    tile = np.arange(1024, dtype=np.float32).reshape(32, 32)
    turned = np.zeros_like(tile)
    found = profile(loaded(text), (32, 32), (tile, turned))
    assert (turned == tile.T).all()
    store = of_line(text, "st.global.f32", found)
    assert (store.global_requests, store.global_sectors) == (32, 32 * 32)
    assert (store.sectors_per_request, store.used_share) == (32.0, 4 / 32)


# Each access of one warp: its address for lane `%r0` in %rd1 (bytes), its instruction, then (sectors, bytes used).
GLOBAL_ACCESSES = {
    "floats": ("mul.wide.u32 %rd1, %r0, 4;", "ld.global.f32 %f0, [%rd0];", 4, 128),
    "one-off": ("mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd1, 4;", "ld.global.f32 %f0, [%rd0];", 5, 128),
    "every-second": ("mul.wide.u32 %rd1, %r0, 8;", "ld.global.f32 %f0, [%rd0];", 8, 128),
    "bytes": ("mul.wide.u32 %rd1, %r0, 1;", "ld.global.u8 %r9, [%rd0];", 1, 32),
    "all-the-same": ("mov.u64 %rd1, 64;", "ld.global.f32 %f0, [%rd0];", 1, 4),
    "vectors": ("mul.wide.u32 %rd1, %r0, 16;", "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd0];", 16, 512),
    "generic": ("mul.wide.u32 %rd1, %r0, 64;", "st.f64 [%rd0], %fd0;", 32, 256),
    "atomic": ("mul.wide.u32 %rd1, %r0, 0;", "red.global.add.u32 [%rd0], 1;", 1, 4),
}


@pytest.mark.parametrize(("address", "access", "sectors", "used"), GLOBAL_ACCESSES.values(), ids=GLOBAL_ACCESSES)
def test_sectors_are_the_different_ones_of_a_warp(address: str, access: str, sectors: int, used: int) -> None:
    text = kernel(f"mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [out]; {address} add.u64 %rd0, %rd0, %rd1;\n{access}")
    found = profile(loaded(text), 32, (np.zeros(512, np.uint64),), grid=2)
    counts = of_line(text, access, found)
    assert (counts.global_requests, counts.global_sectors, counts.global_used) == (2, 2 * sectors, 2 * used)


# (offset in bytes for lane %r0 in %r1, instruction, passes, wavefronts)
SHARED_ACCESSES = {
    "floats": ("shl.b32 %r1, %r0, 2;", "ld.shared.f32 %f0, [%r2];", 1, 1),
    "broadcast": ("mov.u32 %r1, 128;", "ld.shared.f32 %f0, [%r2];", 1, 1),
    "bytes-of-one-word": ("and.b32 %r1, %r0, 3;", "ld.shared.u8 %r9, [%r2];", 1, 1),
    "stride-32-words": ("shl.b32 %r1, %r0, 7;", "ld.shared.f32 %f0, [%r2];", 1, 32),
    "two-words-of-a-bank": ("and.b32 %r1, %r0, 1; shl.b32 %r1, %r1, 7;", "ld.shared.f32 %f0, [%r2];", 1, 2),
    "doubles": ("shl.b32 %r1, %r0, 3;", "ld.shared.f64 %fd0, [%r2];", 2, 2),
    "doubles-stride-2": ("shl.b32 %r1, %r0, 4;", "ld.shared.f64 %fd0, [%r2];", 2, 4),
    "vectors": ("shl.b32 %r1, %r0, 4;", "ld.shared.v4.f32 {%f0, %f1, %f2, %f3}, [%r2];", 4, 4),
    "generic": (
        "shl.b32 %r1, %r0, 7;",
        "cvt.u64.u32 %rd1, %r2; cvta.shared.u64 %rd1, %rd1; ld.f32 %f0, [%rd1];",
        1,
        32,
    ),
    "atomic": ("shl.b32 %r1, %r0, 3;", "red.shared.add.u32 [%r2], 1;", 1, 2),
}


@pytest.mark.parametrize(("offset", "access", "passes", "wavefronts"), SHARED_ACCESSES.values(), ids=SHARED_ACCESSES)
def test_wavefronts_are_the_words_of_the_fullest_bank(offset: str, access: str, passes: int, wavefronts: int) -> None:
    body = f"mov.u32 %r0, %tid.x; {offset} mov.u32 %r2, data; add.u32 %r2, %r2, %r1;\n{access}"
    text = kernel(body, before=".shared .align 16 .b8 data[8192];")
    found = profile(loaded(text), 64, (np.zeros(1, np.uint32),))
    counts = of_line(text, access, found)
    assert (counts.shared_requests, counts.shared_passes, counts.shared_wavefronts) == (2, 2 * passes, 2 * wavefronts)


def test_half_of_the_lanes_are_half_of_the_share() -> None:
    text = kernel(
        """
mov.u32 %r0, %laneid; setp.ge.u32 %p0, %r0, 8; @%p0 bra done;
add.u32 %r1, %r0, %r0;
done:
"""
    )
    counts = of_line(text, "add.u32", profile(loaded(text), 48, (np.zeros(1, np.uint32),), grid=3))
    # Each block of 48 threads is one warp of 32 and one of 16 lanes, of each 8 go on.
    assert (counts.instructions, counts.issues, counts.active_share) == (3 * 16, 3 * 2, 0.25)


def test_waves_add_up() -> None:
    text = transpose(33)
    tile = np.arange(1024, dtype=np.float32)
    once = profile(loaded(text), (32, 32), (tile, np.zeros_like(tile)))
    observer = ProfileObserver()
    loaded(text)["k"].launch(3, (32, 32), (tile, np.zeros_like(tile)), observer=observer, wave_lanes=1024)
    thrice = observer.profile()
    assert thrice.threads == 3 * once.threads
    assert vars(thrice.total) == {name: 3 * value for name, value in vars(once.total).items()}


def test_line_tables_name_the_places() -> None:
    body = """.loc 1 7 3
mov.u32 %r0, %tid.x;
.loc 1 9 3
add.u32 %r0, %r0, 1; add.u32 %r0, %r0, 2;"""
    text = kernel(body) + '\n.file 1 "src/lib.rs"\n'
    found = profile(loaded(text), 32, (np.zeros(1, np.uint32),))
    # `ret` belongs to the line before it.
    counted = [(place, counts.instructions) for place, counts in found.lines]
    assert counted == [(("src/lib.rs", 7), 32), (("src/lib.rs", 9), 3 * 32)]

"""Source lines of instructions: what `.loc` says, through Rust's library and inlined calls to the user's own line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rglink.emulate import CheckFailed, Checks, KernelFault, load
from rglink.emulate.explain import explained
from rglink.emulate.lines import is_library
from rglink.emulate.parser import parse_ptx
from rglink.emulate.profile import ProfileObserver
from tests.emulate.support import assembled, kernel

FILES = """
.file 1 "src/app.rs"
.file 2 "/rustc/ac68faa20c58cbccd01ee7208bf3b6e93a7d7f96/library/core/src/sync/atomic.rs"
.file 3 "src/board.rs"
"""
DEBUG = """
.section .debug_str {
L_info:
 .b8 98, 0
}
"""
# Line 9 of app.rs calls line 7 of board.rs, which calls the library.
CHAIN = """
.loc 1 9 23
.loc 3 7 13, function_name L_info, inlined_at 1 9 23
.loc 2 3162 26, function_name L_info, inlined_at 3 7 13
.loc 2 3937 24, function_name L_info, inlined_at 2 3162 26
"""


def places(body: str) -> list[tuple[str, tuple[tuple[str, int], ...]]]:
    """The place of each instruction but the last, and what it was inlined into."""
    text = kernel(body, before=FILES) + DEBUG
    assembled(text)
    instructions = parse_ptx("k.ptx", text).functions["k"].instructions
    return [(instruction.place, instruction.inlined_at) for instruction in instructions[:-1]]


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/rustc/ac68faa20c58cbccd01ee7208bf3b6e93a7d7f96/library/core/src/num/mod.rs", True),
        ("/usr/lib/rustlib/src/rust/library/core/src/num/mod.rs", True),
        ("library/src/lib.rs", False),
        ("/home/a/rustc/src/library/core.rs", False),
    ],
)
def test_what_is_of_rusts_library(file: str, library: bool) -> None:
    assert is_library(file) is library


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param("mov.u32 %r0, 1;", [("", ())], id="no line table"),
        pytest.param(".loc 1 5 3\nmov.u32 %r0, 1;", [("src/app.rs:5", ())], id="own line"),
        pytest.param(
            f"{CHAIN}mov.u32 %r0, 1;", [("src/board.rs:7", (("src/app.rs", 9),))], id="innermost own line of a chain"
        ),
        pytest.param(
            f"{CHAIN}mov.u32 %r0, 1;\n.loc 1 12 1\nmov.u32 %r0, 2;\n"
            ".loc 2 3940 9, function_name L_info, inlined_at 2 3162 26\nmov.u32 %r0, 3;",
            [
                ("src/board.rs:7", (("src/app.rs", 9),)),
                ("src/app.rs:12", ()),
                ("src/board.rs:7", (("src/app.rs", 9),)),
            ],
            id="a chain begun earlier",
        ),
        pytest.param(
            ".loc 1 5 3\nmov.u32 %r0, 1;\n.loc 2 3937 24\nmov.u32 %r0, 2;\n.loc 2 0 0\nmov.u32 %r0, 3;",
            [("src/app.rs:5", ()), ("near src/app.rs:5", ()), ("near src/app.rs:5", ())],
            id="library without a chain: the last own line",
        ),
        pytest.param(
            ".loc 2 3937 24\nmov.u32 %r0, 2;",
            [("/rustc/ac68faa20c58cbccd01ee7208bf3b6e93a7d7f96/library/core/src/sync/atomic.rs:3937", ())],
            id="nothing but the library",
        ),
    ],
)
def test_place_of_an_instruction(body: str, found: list[tuple[str, tuple[tuple[str, int], ...]]]) -> None:
    assert places(body) == found


def test_the_end_of_a_chain_may_have_no_directive() -> None:
    """ptxas insists on one before; PTX of others is read all the same."""
    text = kernel(".loc 3 7 13, function_name L_info, inlined_at 1 4 2\nmov.u32 %r0, 1;", before=FILES) + DEBUG
    instruction = parse_ptx("k.ptx", text).functions["k"].instructions[0]
    assert (instruction.place, instruction.inlined_at) == ("src/board.rs:7", (("src/app.rs", 4),))


RACE = f"""
ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x;
{CHAIN}st.global.u32 [%rd0], %r0;
.loc 2 3937 24
ld.global.u32 %r1, [%rd0];
"""


def test_a_race_is_told_by_the_users_lines(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.rs").write_text("\n" * 8 + "    post(me);\n")
    (tmp_path / "src" / "board.rs").write_text("\n" * 6 + "    cell.store(me);\n")
    text = kernel(RACE, before=FILES) + DEBUG
    assembled(text)
    with pytest.raises(CheckFailed) as caught:
        load(text.encode(), checks=Checks(seed=1))["k"][1, 64](np.zeros(1, np.uint32))
    report = next(report for report in caught.value.reports if len({p.within for p in report.places}) == 2)
    read, write = sorted(report.places, key=lambda place: place.within is None)
    assert (read.file, read.line, read.inlined_at) == ("src/board.rs", 7, ())
    assert read.within is not None
    assert (read.within[0].rsplit("/", 1)[-1], read.within[1]) == ("atomic.rs", 3937)
    assert (write.file, write.line, write.inlined_at) == ("src/board.rs", 7, (("src/app.rs", 9),))
    lines = explained(caught.value, (tmp_path,), "rgrun").splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(">>> src/board.rs:7: write of 4 bytes"))
    assert lines[at + 1 : at + 4] == [
        ">>>     7 | cell.store(me);",
        ">>> src/app.rs:9: inlined here",
        ">>>     9 | post(me);",
    ]
    (near,) = (line for line in lines if line.startswith(">>> near"))
    assert near.startswith(">>> near src/board.rs:7: ")
    assert near.endswith(": ld.global.u32, in core/src/sync/atomic.rs:3937)")


def test_a_fault_is_told_by_the_users_lines() -> None:
    program = load((kernel(f"{CHAIN}trap;", before=FILES) + DEBUG).encode())
    with pytest.raises(KernelFault) as caught:
        program["k"][1, 1](np.zeros(1, np.uint32))
    assert caught.value.source == ("src/board.rs", 7)
    assert caught.value.diagnostic.places[:2] == ("src/board.rs:7", "src/app.rs:9: inlined here")


def test_a_profile_counts_library_code_for_the_users_line() -> None:
    program = load((kernel(f"{CHAIN}mov.u32 %r0, 1; mov.u32 %r1, 1;", before=FILES) + DEBUG).encode())
    observer = ProfileObserver()
    program["k"].launch(1, 32, (np.zeros(1, np.uint32),), observer=observer)
    assert [(place, counts.instructions) for place, counts in observer.profile().lines] == [(("src/board.rs", 7), 96)]

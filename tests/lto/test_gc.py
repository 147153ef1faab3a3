"""--print-gc, --why-live and the word on recursion."""

from __future__ import annotations

from pathlib import Path

from rglink.diagnostics import Diagnostics
from rglink.irtext import ModuleText
from rglink.lto.gc import check_recursion, gc_report, why_live
from rglink.lto.roots import RootRequest
from tests.lto.linking import Outcome, archive, lines, ll, merged, rendered

LIBRARY = """
    @TABLE = constant [2 x i8] zeroinitializer
    @quiet = internal global i8 0
    define i32 @_RNvCs2_3dep6shared() { ret i32 1 }
    define i32 @_RNvCs2_3dep4dead() { %v = load i8, ptr @quiet ret i32 2 }
    define weak void @twice() { ret void }
    define ptx_kernel void @_RNvCs2_3dep4step() { call i32 @_RNvCs2_3dep6shared() ret void }
    define internal ptx_kernel void @unasked() { ret void }
"""
KERNEL = """
    declare i32 @_RNvCs2_3dep6shared()
    define void @twice() { ret void }
    define internal void @inner() { call i32 @_RNvCs2_3dep6shared() call void @twice() ret void }
    define ptx_kernel void @main() { call void @inner() ret void }
"""


def linked(tmp_path: Path, request: RootRequest | None = None) -> Outcome:
    rlib = archive(tmp_path, "libdep.rlib", {"d.o": LIBRARY}, metadata=True)
    return merged(ll("app.ll", KERNEL), rlib, request=request)


def test_report_of_what_went_and_stayed_with_reasons(tmp_path: Path) -> None:
    report = gc_report(linked(tmp_path, RootRequest(drop=("unasked",))).resolution)
    assert report.render() == lines(
        "dropped: 4",
        "  kernel unasked in libdep.rlib(d.o) (crate dep): --drop unasked",
        "  function dep::dead in libdep.rlib(d.o) (crate dep): no root reaches it",
        "  function twice in libdep.rlib(d.o) (crate dep): app.ll (crate app) prevails",
        "  variable quiet in libdep.rlib(d.o) (crate dep): no root reaches it",
        "kept: 6",
        "  kernel dep::step in libdep.rlib(d.o) (crate dep): kernel",
        "  kernel main in app.ll (crate app): kernel",
        "  function dep::shared in libdep.rlib(d.o) (crate dep): from dep::step",
        "  function inner in app.ll (crate app): from main",
        "  function twice in app.ll (crate app): from inner",
        "  variable TABLE in libdep.rlib(d.o) (crate dep): exported static",
        "",
    )


def test_kernels_of_a_library_show_the_decision(tmp_path: Path) -> None:
    report = gc_report(linked(tmp_path, RootRequest(keep=("main",))).resolution)
    assert [(gone.name, gone.reason) for gone in report.gone if gone.kind == "kernel"] == [
        ("dep::step", "no --keep pattern matches it"),
        ("unasked", "no --keep pattern matches it"),
    ]


def test_the_report_tells_the_truth_about_the_merged_module(tmp_path: Path) -> None:
    outcome = linked(tmp_path)
    kept = {entry.name for entry in gc_report(outcome.resolution).kept}
    assert kept == {"dep::step", "unasked", "main", "dep::shared", "inner", "twice", "TABLE"}
    assert len(kept) == len(outcome.defined())


def test_why_live_gives_the_shortest_chain(tmp_path: Path) -> None:
    outcome = linked(tmp_path, RootRequest(keep=("main",)))
    for name in ("_RNvCs2_3dep6shared", "dep::shared"):
        assert why_live(outcome.resolution, name, outcome.diags) == (
            "dep::shared is live:",
            "  main in app.ll (crate app) (kernel)",
            "    inner in app.ll (crate app)",
            "      dep::shared in libdep.rlib(d.o) (crate dep)",
        )
    assert why_live(outcome.resolution, "TABLE", outcome.diags)[1] == (
        "  TABLE in libdep.rlib(d.o) (crate dep) (exported static)"
    )
    assert why_live(outcome.resolution, "dep::dead", outcome.diags) == (
        "dep::dead is not in the program: no root reaches it",
    )
    assert rendered(outcome.diags) == []


def test_why_live_of_an_unknown_name(tmp_path: Path) -> None:
    diags = Diagnostics()
    assert why_live(linked(tmp_path).resolution, "dep::shred", diags) == ()
    assert rendered(diags) == [
        lines(
            "rglink: error: --why-live dep::shred: no input defines this name [no-such-symbol]",
            ">>> help: did you mean dep::shared?",
        )
    ]


def test_one_warning_for_each_ring(tmp_path: Path) -> None:
    text = """
        define i32 @_RNvCs2_1a4fact(i32 %n) { %v = call i32 @_RNvCs2_1a4fact(i32 %n) ret i32 %v }
        define i32 @even(i32 %n) { %v = call i32 @odd(i32 %n) ret i32 %v }
        define i32 @odd(i32 %n) { %v = call i32 @even(i32 %n) ret i32 %v }
        define i32 @dead(i32 %n) { %v = call i32 @dead(i32 %n) ret i32 %v }
        define void @address() { store ptr @address, ptr null ret void }
        define ptx_kernel void @k() {
          call i32 @_RNvCs2_1a4fact(i32 1)
          call i32 @even(i32 1)
          call void @address()
          ret void
        }
    """
    outcome = merged(ll("a.ll", text))
    rings = check_recursion(ModuleText.parse(outcome.module.text()), outcome.resolution, outcome.diags)
    assert rings == (("_RNvCs2_1a4fact",), ("even", "odd"))
    assert rendered(outcome.diags) == [
        lines(
            "rglink: warning: recursive function: a::fact; its stack size is unknown [recursive-function]",
            ">>> a::fact in a.ll (crate a)",
        ),
        lines(
            "rglink: warning: recursive functions: even, odd; their stack size is unknown [recursive-function]",
            ">>> even in a.ll (crate a)",
            ">>> odd in a.ll (crate a)",
        ),
    ]

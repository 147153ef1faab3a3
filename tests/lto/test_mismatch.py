"""Declarations against definitions, and kernels that are called: each message whole, and no false alarms."""

from __future__ import annotations

import itertools

import pytest

from rglink.lto.mismatch import check_mismatches
from rglink.objfmt.input_file import InputFile
from tests.lto.linking import lines, ll, rendered, resolved


def messages(*files: InputFile) -> list[str]:
    _, resolution, diags = resolved(*files)
    check_mismatches(resolution, diags)
    return rendered(diags)


def reader(declaration: str, pointer: str = "ptr @x") -> str:
    return (
        f"{declaration}\ndefine ptx_kernel void @k(ptr %p) {{ %v = load i8, {pointer} store i8 %v, ptr %p ret void }}"
    )


def caller(declaration: str, call: str) -> str:
    return f"{declaration}\ndefine ptx_kernel void @k(ptr %p) {{ {call} ret void }}"


CASES = [
    (
        caller("declare i32 @_RNvCs2_3dep1f(i32)", "call i32 @_RNvCs2_3dep1f(i32 1)"),
        "define i64 @_RNvCs2_3dep1f(i64 %a, i64 %b) { ret i64 %a }",
        lines(
            "rglink: error: dep::f: declared with another type than it is defined with [mismatched-type]",
            ">>> declared as function i32 (i32) in a.ll (crate a)",
            ">>> defined as function i64 (i64, i64) in b.ll (crate dep)",
        ),
    ),
    (
        reader("@x = external global i32"),
        "@x = global [4 x i64] zeroinitializer",
        lines(
            "rglink: error: x: declared with another size than it is defined with [mismatched-size]",
            ">>> declared as variable i32 in a.ll (crate a)",
            ">>> defined as variable [4 x i64] in b.ll (crate b)",
        ),
    ),
    (
        caller("declare void @x()", "call void @x()"),
        "@x = global i32 0",
        lines(
            "rglink: error: x: declared as a function, defined as a variable [mismatched-kind]",
            ">>> declared as function void () in a.ll (crate a)",
            ">>> defined as variable i32 in b.ll (crate b)",
        ),
    ),
    (
        reader("@x = external global i32"),
        "define void @x() { ret void }",
        lines(
            "rglink: error: x: declared as a variable, defined as a function [mismatched-kind]",
            ">>> declared as variable i32 in a.ll (crate a)",
            ">>> defined as function void () in b.ll (crate b)",
        ),
    ),
    (
        caller("declare ptx_kernel void @x()", "store ptr @x, ptr %p"),
        "define void @x() { ret void }",
        lines(
            "rglink: error: x: declared as a kernel, defined as a function [mismatched-kind]",
            ">>> declared as kernel void () in a.ll (crate a)",
            ">>> defined as function void () in b.ll (crate b)",
        ),
    ),
    (
        reader("@x = external constant i32"),
        "@x = global i32 0",
        lines(
            "rglink: error: x: declared constant, defined mutable [mismatched-constant]",
            ">>> declared as constant variable i32 in a.ll (crate a)",
            ">>> defined as variable i32 in b.ll (crate b)",
            ">>> help: declare it mutable: reads of a constant are folded and never see what is written",
        ),
    ),
    (
        reader("@x = external global i32"),
        "@x = addrspace(3) global i32 undef",
        lines(
            "rglink: error: x: declared in another address space than it is defined in [mismatched-addrspace]",
            ">>> declared as variable i32 in a.ll (crate a)",
            ">>> defined as variable i32 in address space 3 in b.ll (crate b)",
            ">>> help: shared memory (address space 3) must be declared as such wherever it is used",
        ),
    ),
]


@pytest.mark.parametrize(("first", "second", "message"), CASES)
def test_both_sides_are_printed_in_every_order(first: str, second: str, message: str) -> None:
    for files in itertools.permutations((ll("a.ll", first), ll("b.ll", second))):
        assert messages(*files) == [message]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # attributes and parameter names
        (caller("declare noundef i32 @x(ptr nonnull, i32 signext)", "call i32 @x(ptr %p, i32 1)"),
         "define zeroext i32 @x(ptr noalias %a, i32 %b) { ret i32 %b }"),
        # Rust declares foreign statics mutable, and by another type of equal size
        (reader("@x = external global [16 x i8]"), "@x = constant [4 x i32] zeroinitializer"),
        (reader("@x = external global { i8, i64 }"), "@x = global [2 x i64] zeroinitializer"),
        # an array of unknown length
        (reader("@x = external global [0 x i32]"), "@x = global [4 x i32] zeroinitializer"),
        # an opaque type has no size to compare
        (reader("%t = type opaque\n@x = external global %t"), "@x = global [4 x i32] zeroinitializer"),
        # C without prototypes
        (caller("declare i32 @x(...)", "call i32 (...) @x(i32 1)"), "define i32 @x(i32 %a) { ret i32 %a }"),
        # an alias counts as what it stands for
        (caller("declare i32 @x(i32)", "call i32 @x(i32 1)"),
         "define i32 @y(i32 %a) { ret i32 %a }\n@x = alias i32 (i32), ptr @y"),
        # nobody live uses the declaration
        ("declare void @x(i8)\ndefine void @dead() { call void @x(i8 1) ret void }\n"
         "define ptx_kernel void @k() { ret void }",
         "define ptx_kernel void @l() { call void @x() ret void }\ndefine void @x() { ret void }"),
    ],
)  # fmt: skip
def test_harmless_differences(first: str, second: str) -> None:
    assert messages(ll("a.ll", first), ll("b.ll", second)) == []


def test_two_declarations_may_differ() -> None:
    one = caller("declare ptr @malloc(i64)", "call ptr @malloc(i64 1)")
    two = one.replace("ptr @malloc", "noalias ptr @malloc").replace("@k", "@l")
    assert messages(ll("a.ll", one), ll("b.ll", two)) == []


def test_a_declaration_that_the_driver_would_not_serve() -> None:
    assert messages(ll("a.ll", caller("declare ptr @malloc(i32)", "call ptr @malloc(i32 1)"))) == [
        lines(
            "rglink: error: malloc: declared with another type than the CUDA driver's function has [mismatched-type]",
            ">>> declared as function ptr (i32) in a.ll (crate a)",
            ">>> the driver's is function ptr (i64)",
        )
    ]


KERNEL = "define ptx_kernel void @_RNvCs2_3dep4step() { ret void }\n"
CALL = "define void @helper() { call void @_RNvCs2_3dep4step() ret void }\n"
ROOT = "define ptx_kernel void @k() { call void @helper() ret void }\n"
CALLED = lines(
    "rglink: error: device code calls kernel dep::step [kernel-called]",
    ">>> called by helper in a.ll (crate a)",
    ">>> kernel defined in b.ll (crate dep)",
    ">>> help: only the host can start a kernel: move its body to a plain function and call that from both",
)


def test_a_kernel_called_from_another_module() -> None:
    declared = "declare void @_RNvCs2_3dep4step()\n"
    assert messages(ll("a.ll", declared + CALL + ROOT), ll("b.ll", KERNEL)) == [CALLED]


def test_a_kernel_called_in_its_own_module_and_by_annotation() -> None:
    own = KERNEL + CALL.replace("call void", "call ptx_kernel void") + ROOT
    assert messages(ll("b.ll", own)) == [CALLED.replace("a.ll (crate a)", "b.ll (crate b)")]
    annotated = KERNEL.replace("ptx_kernel ", "") + CALL + ROOT
    annotated += '!nvvm.annotations = !{!0}\n!0 = !{ptr @_RNvCs2_3dep4step, !"kernel", i32 1}'
    assert messages(ll("b.ll", annotated)) == [CALLED.replace("a.ll (crate a)", "b.ll (crate b)")]


def test_a_dead_caller_and_a_kernels_address_are_no_calls() -> None:
    address = "@table = constant [1 x ptr] [ptr @_RNvCs2_3dep4step]\n"
    taken = "define void @helper() { store ptr @_RNvCs2_3dep4step, ptr null ret void }\n"
    assert messages(ll("b.ll", KERNEL + CALL + address)) == []
    assert messages(ll("b.ll", KERNEL + taken + ROOT + address)) == []

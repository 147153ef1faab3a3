"""Summaries of modules: kinds, bindings, types, references."""

from __future__ import annotations

import re

import pytest

from rglink.ir import Module
from rglink.lto.summary import _full_head, _quick_head, normalized_type, summarize
from rglink.objfmt.summary import ModuleSummary, Symbol
from tests.lto.linking import HEAD


def summary(text: str) -> ModuleSummary:
    return summarize(Module.parse_text(HEAD + text, "test"))


def symbols(text: str) -> dict[str, Symbol]:
    return {symbol.name: symbol for symbol in summary(text).symbols}


def test_kinds_and_bindings() -> None:
    found = symbols(
        """
        $g = comdat any
        define ptx_kernel void @k() { ret void }
        define void @annotated(ptr %p) { ret void }
        define internal fastcc i32 @i(i32 %x) { ret i32 %x }
        define private void @p() { ret void }
        define weak_odr hidden void @w() { ret void }
        define linkonce_odr void @g() comdat { ret void }
        define available_externally void @e() { ret void }
        define void @user() { call void @d(ptr @x)  ret void }
        declare void @d(ptr)
        declare extern_weak void @maybe()
        declare ptx_kernel void @other()
        @x = external addrspace(3) global [4 x i32]
        @c = common global i64 0, align 8
        @s = internal constant [2 x i8] zeroinitializer, section ".rglink.constant", align 16
        @a = weak alias i32 (i32), ptr @i
        @b = alias i64, ptr @c
        !nvvm.annotations = !{!0, !1}
        !0 = !{ptr @annotated, !"maxntidx", i32 32, !"kernel", i32 1}
        !1 = !{ptr @user, !"maxntidx", i32 32}
    """.replace("call void @d(ptr @x)", "call void @d(ptr addrspacecast (ptr addrspace(3) @x to ptr))")
    )
    assert {name: (s.kind, s.binding) for name, s in found.items()} == {
        "k": ("kernel", "strong"),
        "annotated": ("kernel", "strong"),
        "i": ("function", "internal"),
        "p": ("function", "internal"),
        "w": ("function", "weak"),
        "g": ("function", "linkonce"),
        "e": ("function", "available_externally"),
        "user": ("function", "strong"),
        "d": ("function", "undefined"),
        "maybe": ("function", "extern_weak"),
        "other": ("kernel", "undefined"),
        "x": ("variable", "undefined"),
        "c": ("variable", "common"),
        "s": ("variable", "internal"),
        "a": ("alias", "weak"),
        "b": ("alias", "strong"),
    }
    assert found["x"] == Symbol("x", "variable", "undefined", "[4 x i32]", addrspace=3)
    assert found["s"] == Symbol("s", "variable", "internal", "[2 x i8]", 0, True, ".rglink.constant", 16)
    assert found["i"].type == "i32 (i32)"
    assert (found["a"].type, found["a"].refs) == ("i32 (i32)", ("i",))
    assert (found["b"].type, found["b"].refs) == ("i64", ("c",))
    assert found["user"].refs == ("d", "x")


def test_references_are_sorted_single_and_without_intrinsics_comments_and_strings() -> None:
    found = symbols("""
        @t = constant [2 x ptr] [ptr @z, ptr @y]
        @text = constant [9 x i8] c"see @nope"
        @y = external global i8
        @z = external global i8
        declare void @llvm.trap()
        declare void @"odd name"()
        define void @f() personality ptr @y {
          ; calls @nobody
          call void @f()
          call void @"odd name"()
          call void @"odd name"()
          call void @llvm.trap()
          store i8 0, ptr getelementptr (i8, ptr @t, i64 1)
          ret void
        }
    """)
    assert found["t"].refs == ("y", "z")
    assert found["text"].refs == ()
    assert found["f"].refs == ("odd name", "t", "y")
    assert "llvm.trap" not in found


def test_triple_ident_and_used() -> None:
    found = summary("""
        @a = internal global i8 0
        @b = internal global i8 0
        @llvm.used = appending global [1 x ptr] [ptr @b], section "llvm.metadata"
        @llvm.compiler.used = appending global [2 x ptr] [ptr @a, ptr @b], section "llvm.metadata"
        !llvm.ident = !{!0, !1, !0}
        !0 = !{!"rustc version 1.96.0"}
        !1 = !{!"clang 22"}
    """)
    assert found.triple == "nvptx64-nvidia-cuda"
    assert found.ident == "rustc version 1.96.0; clang 22"
    assert found.used == ("a", "b")
    assert [symbol.name for symbol in found.symbols] == ["a", "b"]


def test_protected_is_told_by_the_mark_of_rustc_modules() -> None:
    rustc = '!llvm.ident = !{!0}\n!0 = !{!"rustc version 1.96.0"}\n'
    assert summary("define void @f() { ret void }").protected is True
    assert summary(rustc + "define void @f() nosync { ret void }").protected is False
    assert summary(rustc + "define void @f() convergent noredzone nosync { ret void }").protected is True
    assert summary(rustc + "declare void @f()").protected is None


def test_a_struct_read_twice_keeps_its_name() -> None:
    text = "%struct.vec = type { float, float }\n@v = global [2 x %struct.vec] zeroinitializer"
    first, second = Module.parse_text(HEAD + text, "one"), Module.parse_text(HEAD + text, "two")
    assert re.search(r"%struct\.vec\.\d+ = type", second.text())  # LLVM renames what it reads twice in one process
    assert summarize(first) == summarize(second)
    assert normalized_type('{ %"a b.12", %c.d.3, %c.1x }') == '{ %"a b", %c.d, %c.1x }'


HEADS = [
    "define noundef float @_RNvCs2_1k3foo(float noundef %x) unnamed_addr #0 {",
    "define ptx_kernel void @early([2 x i64] %0, ptr noundef %out) unnamed_addr #1 {",
    "define internal { ptr, i64 } @pair(i64 noundef range(i64 1, -9) %a, { i8, i8 } %b) {",
    "define weak_odr hidden fastcc i32 @w(ptr sret([24 x i8]) align 8 captures(address, read_provenance) %a) #2 {",
    'define internal noundef range(i32 0, 9) i32 @"odd name"(ptr addrspace(3) %p) section "s" align 8 {',
    "declare extern_weak void @maybe()",
    "declare noalias noundef ptr @alloc(i64 noundef, i64 allocalign noundef range(i64 1, -9)) unnamed_addr #13",
    "declare i32 @printf(ptr, ...)",
    "define <4 x float> @vector(<4 x float> %v, [2 x [3 x i8]] %a) {",
    'declare void @image(target("spirv.Image", void, 1))',
    "define half @half(bfloat %b, %struct.s %s) personality ptr @p {",
]


@pytest.mark.parametrize("head", HEADS)
def test_the_quick_reader_of_heads_agrees_with_the_full_one_or_passes(head: str) -> None:
    quick, full = _quick_head(head), _full_head(head)
    assert quick is None or quick._replace(suffix="") == full._replace(suffix="")


def test_the_quick_reader_takes_what_rustc_prints() -> None:
    assert [_quick_head(head) is not None for head in HEADS] == [
        True, True, False, True, False, True, True, True, False, False, False,
    ]  # fmt: skip

"""Aliases are replaced by what they stand for, on the way to both code generators."""

from __future__ import annotations

import pytest

from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.aliases import replace_aliases
from tests.lto.ptx import assemble

HEAD = 'target triple = "nvptx64-nvidia-cuda"\n'
PROGRAM = HEAD + """
@data = internal global [4 x i32] [i32 1, i32 2, i32 3, i32 4]
@third = internal alias i32, getelementptr (i8, ptr @data, i64 8)
@again = internal alias i32, ptr @third
@other = alias i32 (i32), ptr @f
@weird.name = weak hidden alias i32 (i32), ptr @other
@table = internal constant [2 x ptr] [ptr @other, ptr @again]
define internal i32 @f(i32 %x) noinline {
  %r = load i32, ptr @again
  %s = add i32 %r, %x
  ret i32 %s
}
define ptx_kernel void @k(ptr %p, i32 %n) {
  %a = call i32 @f(i32 1)
  %b = call i32 @other(i32 %a)
  %c = call i32 @weird.name(i32 %b)
  %q = getelementptr ptr, ptr @table, i32 %n
  %t = load ptr, ptr %q
  %d = load i32, ptr %t
  %e = add i32 %c, %d
  store i32 %e, ptr %p
  ret void
}
"""  # fmt: skip


def replaced(ir: str, *exported: str) -> tuple[ModuleText, int, list[str]]:
    module = Module.parse_text(ir, "test")
    text, diags = ModuleText.parse(module.text()), Diagnostics()
    count = replace_aliases(text, exported, diags)
    if not diags.items:
        module.replace(text.render())
        module.verify()
    return ModuleText.parse(module.text()), count, [item.render() for item in diags.items]


def test_functions_variables_expressions_and_chains() -> None:
    text, count, said = replaced(PROGRAM, "k")
    assert (count, said) == (4, [])
    assert text.of_kind("alias") == []
    rendered = text.render()
    assert rendered.count("call i32 @f(") == 3
    assert "load i32, ptr getelementptr (i8, ptr @data, i64 8)" in rendered
    assert "[ptr @f, ptr getelementptr (i8, ptr @data, i64 8)]" in rendered
    assert "other" not in assemble(rendered, "sm_75")


def test_an_exported_alias_of_a_kernel_is_a_kernel() -> None:
    text, _, said = replaced(f"{PROGRAM}@second = alias void (ptr, i32), ptr @k\n", "k", "second")
    assert said == []
    ptx = assemble(text.render(), "sm_75")
    assert ".visible .entry k(" in ptx
    assert ".visible .entry second(" in ptx


def test_an_exported_alias_gives_a_local_definition_its_name() -> None:
    text, _, said = replaced(f"{PROGRAM}@TABLE = alias [4 x i32], ptr @data\n", "k", "TABLE")
    assert said == []
    named = text.named()
    assert "data" not in named
    assert named["TABLE"].head.startswith("@TABLE = global [4 x i32]")
    assert "getelementptr (i8, ptr @TABLE, i64 8)" in text.render()


def test_an_exported_alias_of_an_exported_variable_is_an_error() -> None:
    _, _, said = replaced(f"{PROGRAM}@X = global i32 1\n@Y = alias i32, ptr @X\n", "k", "X", "Y")
    assert said == [
        "rglink: error: Y: an alias of X, which is exported too; one thing has one name in PTX [exported-alias]\n"
        ">>> help: export one of them"
    ]


def test_an_exported_alias_of_an_expression_is_an_error() -> None:
    _, _, said = replaced(PROGRAM.replace("@third = internal", "@third ="), "k", "third")
    assert said == ["rglink: error: third: an exported alias of an expression has no form in PTX [exported-alias]"]


def test_an_ifunc_is_an_error() -> None:
    code = "@f = ifunc i32 (i32), ptr @choose\ndefine internal ptr @choose() {\n  ret ptr null\n}\n"
    _, _, said = replaced(HEAD + code)
    assert said == ["rglink: error: f: a function that is chosen at load time (ifunc) cannot run on a GPU [ifunc]"]


@pytest.mark.parametrize("text", ["", "@x = global i32 1\n"])
def test_nothing_to_replace(text: str) -> None:
    assert replaced(HEAD + text)[1] == 0

"""Members of lazy archives: what is asked of them comes with all it needs, private constants included."""

from __future__ import annotations

from rglink.diagnostics import Diagnostics
from rglink.ir import TRIPLE, Module
from rglink.lto.extract import Extraction
from rglink.lto.load import load_sources
from rglink.objfmt.input_file import InputFile, recognise
from tests.objfmt.support import gnu_archive

HEAD = f'target triple = "{TRIPLE}"\n'
WITH_VTABLE = """
@vtable.0 = private constant { [8 x i8], ptr } { [8 x i8] zeroinitializer, ptr @method }
declare void @method()
define ptr @wanted() {
  ret ptr @vtable.0
}
define void @unwanted() {
  call void @nowhere()
  ret void
}
declare void @nowhere()
"""
METHOD = "define hidden void @method() {\n  ret void\n}\n"


def extraction(*members: str) -> Extraction:
    contents = [
        (f"{index}.o", Module.parse_text(HEAD + text, "member").bitcode()) for index, text in enumerate(members)
    ]
    names = [("wanted", 0), ("unwanted", 0), ("method", 1)]
    data = gnu_archive(contents, [name for name in names if name[1] < len(members)])
    inputs = load_sources([InputFile("libc.a", recognise(data), memoryview(data))], Diagnostics())
    return Extraction(inputs.archives, inputs.pool)


def test_a_name_comes_with_what_its_private_constants_need() -> None:
    found = extraction(WITH_VTABLE, METHOD)
    assert found.ask(["wanted"])
    (source,) = found.sources()
    assert [(s.name, s.binding) for s in source.summary.symbols] == [
        ("method", "undefined"),
        ("vtable.0", "internal"),
        ("wanted", "strong"),
    ]
    assert found.undefined() == {"method"}
    assert found.ask(["method"])
    assert found.undefined() == set()
    assert not found.ask(["method", "wanted"])


def test_modules_hold_what_is_needed_and_no_more() -> None:
    found = extraction(WITH_VTABLE, METHOD)
    found.ask(["wanted", "method"])
    first, second = found.modules()
    assert {g.name for g in first.globals()} == {"wanted", "vtable.0", "method"}
    assert {g.name: g.linkage for g in second.globals()} == {"method": "external"}

"""Which definition prevails, what each module brings, what comes out of lazy archives."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from rglink.lto.roots import RootRequest
from rglink.objfmt.input_file import InputFile
from tests.lto.linking import archive, lines, ll, merged, rendered, resolved

USE_F = """
    declare i32 @f()
    @out = global i32 0
    define ptx_kernel void @k() { %v = call i32 @f() store i32 %v, ptr @out ret void }
"""


def returns(value: int, linkage: str = "") -> str:
    return f"define {linkage} i32 @f() {{ ret i32 {value} }}"


def result(*files: InputFile) -> tuple[set[str], list[str]]:
    """What `f` returns in the merged module, and the messages, over every order of the inputs."""
    values, messages = set(), []
    for order in itertools.permutations(files):
        outcome = merged(*order)
        outcome.module.verify()
        text = outcome.module.text()
        values.add(text[text.index("ret i32") :].split("\n")[0])
        messages = rendered(outcome.diags)
    return values, messages


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ("weak", "", 2),
        ("linkonce_odr", "", 2),
        ("linkonce", "weak", 2),
        ("available_externally", "", 2),
        ("available_externally", "linkonce_odr", 2),
        ("weak", "weak", 1),
        ("linkonce_odr", "linkonce_odr", 1),
    ],
)
def test_the_stronger_definition_prevails_in_every_order(first: str, second: str, wanted: int) -> None:
    files = ll("k.ll", USE_F), ll("a.ll", returns(1, first)), ll("b.ll", returns(2, second))
    assert result(*files) == ({f"ret i32 {wanted}"}, [])


def test_a_weak_definition_in_the_users_own_module_loses_too() -> None:
    own = USE_F.replace("declare i32 @f()", returns(1, "weak"))
    assert result(ll("k.ll", own), ll("b.ll", returns(2))) == ({"ret i32 2"}, [])


def test_the_largest_common_symbol_prevails() -> None:
    kernel = "define ptx_kernel void @k() { store i8 1, ptr @c ret void }\n"
    files = (
        ll("a.ll", kernel + "@c = common global [4 x i8] zeroinitializer"),
        ll("b.ll", "@c = common global [64 x i8] zeroinitializer"),
    )
    for order in (files, files[::-1]):
        outcome = merged(*order)
        assert "@c = global [64 x i8] zeroinitializer" in outcome.module.text()


def test_two_strong_definitions_are_an_error_that_names_both(tmp_path: Path) -> None:
    mangled = "_RNvCs2_3dep3foo"
    text = f"define void @f() {{ ret void }}\ndefine void @{mangled}() {{ ret void }}\n"
    rlib = archive(tmp_path, "libdep.rlib", {"d.o": text}, metadata=True)
    kernel = "define ptx_kernel void @k() { ret void }\n"
    for order in itertools.permutations((ll("k.ll", kernel), ll("z/two.ll", text), rlib)):
        _, _, diags = resolved(*order)
        assert rendered(diags) == [
            lines(
                "rglink: error: duplicate symbol: dep::foo [duplicate-symbol]",
                ">>> defined in libdep.rlib(d.o) (crate dep)",
                ">>> defined in z/two.ll (crate dep)",
                ">>> help: two crates were compiled with one name and one -Cmetadata: give each its own --metadata",
            ),
            lines(
                "rglink: error: duplicate symbol: f [duplicate-symbol]",
                ">>> defined in libdep.rlib(d.o) (crate dep)",
                ">>> defined in z/two.ll (crate two)",
            ),
        ]


def test_two_versions_of_one_crate_are_linked_side_by_side() -> None:
    old, new = "_RNvCs1_3dep3foo", "_RNvCs2_3dep3foo"
    files = (
        ll("libdep-1.ll", f"define i32 @{old}() {{ ret i32 1 }}"),
        ll("libdep-2.ll", f"define i32 @{new}() {{ ret i32 2 }}"),
        ll("k.ll", f"declare i32 @{old}()\ndeclare i32 @{new}()\ndefine ptx_kernel void @k(ptr %p) {{ "
           f"%a = call i32 @{old}() %b = call i32 @{new}() %c = add i32 %a, %b store i32 %c, ptr %p ret void }}"),
    )  # fmt: skip
    outcome = merged(*files)
    assert rendered(outcome.diags) == []
    assert outcome.defined() == {"k": "external", old: "internal", new: "internal"}


LIBRARY = {
    "one.o": "declare i32 @g()\ndefine i32 @f() { %v = call i32 @g() ret i32 %v }\ndefine void @unused() { ret void }",
    "two.o": "define i32 @g() { ret i32 7 }\ndeclare void @gone()\ndefine void @dead() { call void @gone() ret void }",
    "three.o": "define i32 @g() { ret i32 8 }",
}


def test_members_of_lazy_archives_come_when_asked_to_a_fixpoint(tmp_path: Path) -> None:
    lazy = archive(tmp_path, "libc.a", LIBRARY)
    outcome = merged(ll("k.ll", USE_F), lazy)
    assert rendered(outcome.diags) == []
    assert [source.member for source in outcome.resolution.sources if source.lazy] == ["one.o", "two.o"]
    assert outcome.defined() == {"k": "external", "out": "external", "f": "internal", "g": "internal"}
    assert outcome.module.undefined_names() == set()
    assert dict(outcome.resolution.undefined) == {}


def test_a_definition_in_an_input_keeps_a_member_out(tmp_path: Path) -> None:
    lazy = archive(tmp_path, "libc.a", LIBRARY)
    own = ll("g.ll", "define weak i32 @g() { ret i32 1 }")
    _, resolution, diags = resolved(lazy, ll("k.ll", USE_F), own)
    assert rendered(diags) == []
    assert [source.member for source in resolution.sources if source.lazy] == ["one.o"]
    assert resolution.source_of((-1, "g")) == resolution.sources[0]


def test_a_members_own_definition_loses_to_a_stronger_one(tmp_path: Path) -> None:
    library = {"m.o": "define i32 @f() { %v = call i32 @w() ret i32 %v }\ndefine weak i32 @w() { ret i32 1 }"}
    lazy = archive(tmp_path, "libc.a", library)
    outcome = merged(ll("k.ll", USE_F), ll("w.ll", "define i32 @w() { ret i32 2 }"), lazy)
    text = outcome.module.text()
    assert "ret i32 2" in text
    assert "ret i32 1" not in text


def test_a_member_is_asked_again_when_more_is_wanted(tmp_path: Path) -> None:
    library = {
        "a.o": "declare i32 @b()\ndefine i32 @f() { %v = call i32 @b() ret i32 %v }\ndefine i32 @late() { ret i32 3 }",
        "b.o": "declare i32 @late()\ndefine i32 @b() { %v = call i32 @late() ret i32 %v }",
    }
    outcome = merged(ll("k.ll", USE_F), archive(tmp_path, "libc.a", library))
    assert outcome.module.undefined_names() == set()
    assert set(outcome.defined()) == {"k", "out", "f", "b", "late"}


def test_live_undefined_names_are_listed_with_their_users() -> None:
    text = """
        declare i32 @f()
        declare extern_weak void @maybe()
        declare void @dead_only()
        define void @dead() { call void @dead_only() ret void }
        define internal void @inner() { call i32 @f() call void @maybe() ret void }
        define ptx_kernel void @k() { call void @inner() ret void }
    """
    _, resolution, _ = resolved(ll("k.ll", text))
    assert dict(resolution.undefined) == {"f": ((0, "inner"),)}


def test_used_statics_live_but_metadata_and_kernels_in_the_list_do_not_root() -> None:
    text = """
        @keep = internal global i8 1
        @meta = internal global i8 2, section ".rglink.kernels"
        define void @plain() { ret void }
        define ptx_kernel void @k() { ret void }
        define ptx_kernel void @dropped() { ret void }
        @llvm.used = appending global [4 x ptr] [ptr @keep, ptr @meta, ptr @plain, ptr @dropped],
            section "llvm.metadata"
    """
    outcome = merged(ll("k.ll", text), request=RootRequest(keep=("k",)))
    assert outcome.defined() == {"k": "external", "keep": "internal", "llvm.used": "appending"}
    assert "@llvm.used = appending global [1 x ptr] [ptr @keep]" in outcome.module.text()

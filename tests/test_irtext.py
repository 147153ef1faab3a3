"""The reader of printed IR, on what LLVM itself prints."""

from __future__ import annotations

import pytest

from rglink.ir import Module
from rglink.irtext import (
    EditMismatch,
    ModuleText,
    code_of,
    expect_equal,
    global_names,
    quote,
    read_function,
    read_variable,
    rename_globals,
    skip_balanced,
    skip_type,
    split_commas,
    unquote,
)

# Every kind of top-level line, and names and strings made to confuse a reader.
MODULE = r"""
target triple = "nvptx64-nvidia-cuda"
module asm "; @not_a_global"
%pair = type { i32, [2 x ptr] }
%"odd; name" = type opaque
$shared_name = comdat any
@plain = global i32 7, align 4
@text = private unnamed_addr constant [12 x i8] c"\22; @x, {(\\ \00", align 1
@"name with ; and \22" = internal global %pair { i32 1, [2 x ptr] [ptr @plain, ptr null] }, section "s, @t", align 8
@declared = external dso_local addrspace(3) global [0 x i8], align 16
@weak_decl = extern_weak global i8
@shared_name = linkonce_odr hidden local_unnamed_addr global [4 x i8] undef, comdat
@in_constant = addrspace(4) externally_initialized constant <{ ptr, [3 x i8] }> <{ ptr @plain, [3 x i8] c"{,\00" }>
@llvm.used = appending global [1 x ptr] [ptr @plain], section "llvm.metadata"
@other = weak alias i32, ptr @plain
@"an alias" = alias i32, getelementptr (i8, ptr @text, i64 4)

define internal fastcc noundef range(i32 0, 9) i32 @"f ("(ptr noalias byval([4 x i8]) align 4 %"odd ; )", i32 %0) #0 section "a (b" !dbg !5 {
  %2 = load i32, ptr @"name with ; and \22", align 4 ; a comment with @plain
  call void (ptr, ...) @printf(ptr @text, ptr %"odd ; )")
  ret i32 %2
}

define ptx_kernel void @k(<4 x i32> %v, { ptr, i64 } %s, ptr addrspace(1) %g) {
"quoted ; block":
  br label %"quoted ; block1"

"quoted ; block1":
  ret void
}

declare void @printf(ptr, ...)
declare { i32, ptr } @two(ptr byval(%pair) align 8, [2 x i64], i128 zeroext) #1

attributes #0 = { nounwind "target-cpu"="sm_75" "key ; {"="va}lue" }
attributes #1 = { memory(argmem: read) }

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!6}
!0 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "a;b.rs", directory: "@d")
!2 = !{}
!4 = !DISubroutineType(types: !2)
!5 = distinct !DISubprogram(name: "f (", file: !1, line: 3, type: !4, unit: !0)
!6 = !{i32 2, !"Debug Info Version", i32 3}
"""  # noqa: E501


def printed(text: str = MODULE) -> str:
    """The text as LLVM prints it."""
    return Module.parse_text(text, "test").text()


def test_every_line_is_read_and_rendered_as_it_was() -> None:
    text = printed()
    assert ModuleText.parse(text).render() == text.rstrip("\n") + "\n"


def test_items_have_their_kind_and_name() -> None:
    named = ModuleText.parse(printed()).named()
    kinds = {name: item.kind for name, item in named.items()}
    assert kinds == {
        "plain": "variable",
        "text": "variable",
        'name with ; and "': "variable",
        "declared": "variable",
        "weak_decl": "variable",
        "shared_name": "variable",
        "in_constant": "variable",
        "llvm.used": "variable",
        "other": "alias",
        "an alias": "alias",
        "f (": "define",
        "k": "define",
        "printf": "declare",
        "two": "declare",
    }
    assert not [item for item in ModuleText.parse(printed()).of_kind("variable") if not item.name]


def test_variables_are_taken_apart_and_put_together_again() -> None:
    text = ModuleText.parse(printed())
    for item in text.of_kind("variable"):
        assert read_variable(item.head).render() == item.head
    named = text.named()
    odd = read_variable(named['name with ; and "'].head)
    assert odd.type.startswith("%pair")  # LLVM numbers types of one name in one process
    assert (odd.linkage, odd.section, odd.align, odd.constant) == ("internal", "s, @t", 8, False)
    assert odd.initializer == "{ i32 1, [2 x ptr] [ptr @plain, ptr null] }"
    declared = read_variable(named["declared"].head)
    assert (declared.initializer, declared.addrspace, declared.linkage) == (None, 3, "external")
    assert read_variable(named["weak_decl"].head).initializer is None
    constant = read_variable(named["in_constant"].head)
    assert (constant.addrspace, constant.constant) == (4, True)
    assert "externally_initialized" in constant.prefix
    assert constant.initializer == r'<{ ptr @plain, [3 x i8] c"{,\00" }>'


def test_functions_are_taken_apart_and_put_together_again() -> None:
    text = ModuleText.parse(printed())
    for item in text.of_kind("define", "declare"):
        assert read_function(item.head).render() == code_of(item.head).rstrip()
    named = text.named()
    function = read_function(named["f ("].head)
    assert (function.linkage, function.calling_convention, function.return_type) == ("internal", "fastcc", "i32")
    assert [p.type for p in function.parameters] == ["ptr", "i32"]
    assert function.parameters[0].name == '%"odd ; )"'
    assert "byval([4 x i8])" in function.parameters[0].attributes
    assert function.section == "a (b"
    assert function.attribute_group is not None
    kernel = read_function(named["k"].head)
    assert kernel.calling_convention == "ptx_kernel"
    assert kernel.type == "void (<4 x i32>, { ptr, i64 }, ptr addrspace(1))"
    assert read_function(named["printf"].head).type == "void (ptr, ...)"
    two = read_function(named["two"].head)
    assert two.type == "{ i32, ptr } (ptr, [2 x i64], i128)"
    assert two.parameters[0].name == ""


def test_names_in_strings_and_comments_are_no_globals() -> None:
    assert list(global_names(r'  call void @f(ptr @"a ; b", ptr @c) ; @d')) == ["f", "a ; b", "c"]
    assert list(global_names('@text = constant [3 x i8] c"@a;"')) == ["text"]
    assert list(global_names('!1 = !DIFile(filename: "@a", directory: "")')) == []
    assert code_of('  %x = load i8, ptr @"a;b" ; rest') == '  %x = load i8, ptr @"a;b"'


def test_rename_reaches_every_place_and_llvm_accepts_it() -> None:
    text = ModuleText.parse(printed())
    text.rename({"plain": "now here", 'name with ; and "': "short", "f (": "ä.b"}.get)
    module = Module.parse_text(text.render(), "renamed")
    again = ModuleText.parse(module.text())
    assert {"now here", "short", "ä.b"} <= again.named().keys()
    mentioned = [name for item in again.items for line in item.lines() for name in global_names(line)]
    assert "plain" not in mentioned
    assert mentioned.count("now here") == 5
    assert 'c"\\22; @x, {(' in again.render()


@pytest.mark.parametrize(
    "name", ["a", "a.b-1", "a$b", "1a", "a b", 'a"b', "a\\b", "a\\5C", "\\", "ä", "\udcff", "", "7"]
)
def test_quoting_comes_back_from_llvm(name: str) -> None:
    if name:
        module = Module.parse_text(f"{quote(name)} = global i32 0", "names")
        line = next(line for line in module.text().splitlines() if line.startswith("@"))
        assert line.startswith(quote(name) + " ")
    assert unquote(quote(name)) == name


def test_rename_globals_leaves_other_text_alone() -> None:
    line = '  store ptr @a, ptr %a, !"@a" ; @a'
    assert rename_globals(line, {"a": "b c"}.get) == '  store ptr @"b c", ptr %a, !"@a" ; @a'


@pytest.mark.parametrize(
    "type_",
    ["i32", "ptr", "ptr addrspace(3)", "[2 x { i8, ptr }]", "<{ i8, <4 x float> }>", '%"a; b"', "%s.1", "half",
     'target("spirv.Image", i32, 1)', "{}", "i128"],
)  # fmt: skip
def test_skip_type_ends_after_the_type(type_: str) -> None:
    assert skip_type(f"{type_} %x, {type_}", 0) == len(type_)


def test_skip_type_refuses_what_is_no_type() -> None:
    with pytest.raises(ValueError, match="no type"):
        skip_type("%", 0)
    with pytest.raises(ValueError, match="no type"):
        skip_type("noundef i32", 0)


def test_brackets_and_commas_respect_strings() -> None:
    assert split_commas('i32 1, c"a,b(", { i8, i8 } { i8 1, i8 2 }') == [
        "i32 1",
        'c"a,b("',
        "{ i8, i8 } { i8 1, i8 2 }",
    ]
    assert split_commas("") == []
    assert skip_balanced('(a ")" [b])c', 0) == 11
    with pytest.raises(ValueError, match="unclosed"):
        skip_balanced("(a", 0)


def test_attribute_groups_are_found_and_added_once() -> None:
    text = ModuleText.parse(printed())
    groups = text.attribute_groups()
    assert any('"key ; {"="va}lue"' in content for content in groups.values())
    number = text.add_attribute_group("convergent nounwind")
    assert number == max(groups) + 1
    assert text.add_attribute_group("convergent nounwind") == number


def test_unknown_lines_are_refused() -> None:
    with pytest.raises(ValueError, match="unexpected line"):
        ModuleText.parse("hello\n")


def test_a_difference_in_counts_is_our_bug() -> None:
    expect_equal("edits", 2, 2)
    with pytest.raises(EditMismatch, match="edits: saw 2, changed 1"):
        expect_equal("edits", 2, 1)

"""The merged module: roots outside, everything else local or gone, equal for every order of the inputs."""

from __future__ import annotations

import itertools
from pathlib import Path

from rglink.irtext import ModuleText
from rglink.lto.merge import pull_in
from tests.lto.linking import archive, lines, ll, merged, rendered

FOO = "_RNvCs2_3dep3foo"


def test_a_library_function_is_local_afterwards() -> None:
    outcome = merged(
        ll("dep.ll", f"define i32 @{FOO}() noinline {{ ret i32 1 }}\ndefine i32 @other() {{ ret i32 2 }}"),
        ll("k.ll", f"declare i32 @{FOO}()\ndefine ptx_kernel void @k() {{ call i32 @{FOO}() ret void }}"),
    )
    assert outcome.defined() == {"k": "external", FOO: "internal"}
    assert outcome.module.undefined_names() == set()


def test_hidden_and_local_kernels_come_out_external_and_visible() -> None:
    hidden = "define hidden ptx_kernel void @h() { ret void }\n"
    local = "define internal ptx_kernel void @k() { ret void }\n"
    outcome = merged(ll("a.ll", hidden + local + "@va = global i8 1"), ll("b.ll", local + "@vb = global i8 2"))
    assert rendered(outcome.diags) == []
    kernels = [g for g in outcome.module.globals() if g.is_function]
    assert sorted((g.name, g.linkage, g.visibility) for g in kernels) == [
        ("h", "external", "default"),
        ("k", "external", "default"),
        ("k_b", "external", "default"),
    ]
    assert outcome.module.text().count("ptx_kernel void @") == 3


def test_equal_bytes_for_every_order_with_colliding_local_names() -> None:
    text = """
        @table = private constant [1 x i32] [i32 {0}]
        define internal i32 @inner() {{ %v = load i32, ptr @table ret i32 %v }}
        define ptx_kernel void @k{0}(ptr %p) {{ %v = call i32 @inner() store i32 %v, ptr %p ret void }}
    """
    files = [ll(f"m{number}.ll", text.format(number)) for number in range(4)]
    made = {merged(*order).module.bitcode() for order in itertools.permutations(files)}
    assert len(made) == 1
    names = set(merged(*files).defined())
    assert {"k0", "k1", "k2", "k3"} < names
    assert len([name for name in names if name.startswith("inner")]) == 4


def test_identical_inline_instances_are_folded() -> None:
    inline = "define linkonce_odr i32 @max(i32 %a) { ret i32 %a }\n"
    kernel = "define ptx_kernel void @k{0}() {{ call i32 @max(i32 {0}) ret void }}"
    outcome = merged(*(ll(f"{n}.ll", inline + kernel.format(n)) for n in range(3)))
    assert outcome.defined() == {"k0": "external", "k1": "external", "k2": "external", "max": "internal"}


def test_comdats_do_not_survive_and_do_not_disturb() -> None:
    text = "$f = comdat any\ndefine linkonce_odr void @f() comdat { ret void }\n"
    kernel = "define ptx_kernel void @k{0}() {{ call void @f() ret void }}"
    outcome = merged(ll("a.ll", text + kernel.format(1)), ll("b.ll", text + kernel.format(2)))
    outcome.module.verify()
    assert "comdat" not in outcome.module.text()
    assert set(outcome.defined()) == {"f", "k1", "k2"}


def test_aliases_are_what_they_stand_for() -> None:
    library = """
        define i32 @impl(i32 %x) { ret i32 %x }
        @short = alias i32 (i32), ptr @impl
        @unused = alias i32 (i32), ptr @impl
        @data = global [2 x i32] [i32 1, i32 2]
        @second = alias i32, getelementptr inbounds (i8, ptr @data, i64 4)
    """
    kernel = """
        declare i32 @short(i32)
        declare i32 @impl(i32)
        @second = external global i32
        define ptx_kernel void @k(ptr %p) {
          %x = load i32, ptr @second
          %a = call i32 @short(i32 %x)
          %b = call i32 @impl(i32 %a)
          store i32 %b, ptr %p
          ret void
        }
    """
    for files in itertools.permutations((ll("a.ll", library), ll("k.ll", kernel))):
        outcome = merged(*files)
        assert rendered(outcome.diags) == []
        text = ModuleText.parse(outcome.module.text())
        assert text.of_kind("alias") == []
        assert set(outcome.defined()) == {"k", "impl", "data"}
        assert outcome.module.undefined_names() == set()


def test_an_alias_that_loses_keeps_nothing_alive() -> None:
    weak = "define internal i32 @mine() { ret i32 1 }\n@f = weak alias i32 (), ptr @mine\n"
    user = "define ptx_kernel void @k(ptr %p) { %v = call i32 @f() store i32 %v, ptr %p ret void }"
    for files in itertools.permutations((ll("a.ll", weak + user), ll("b.ll", "define i32 @f() { ret i32 2 }"))):
        outcome = merged(*files)
        assert rendered(outcome.diags) == []
        assert set(outcome.defined()) == {"k", "f"}
        assert "ret i32 2" in outcome.module.text()


def test_two_private_statics_of_one_name_stay_two() -> None:
    text = """
        @TILE = internal global [64 x i8] undef, section ".rglink.shared"
        define ptx_kernel void @k{0}() {{ store i8 {0}, ptr @TILE ret void }}
    """
    outcome = merged(ll("a.ll", text.format(1)), ll("b.ll", text.format(2)))
    assert sorted(name for name in outcome.defined() if name.startswith("TILE")) == ["TILE", "TILE1"]


def test_builtins_are_pulled_in_later(tmp_path: Path) -> None:
    builtins = {
        "a.o": "declare float @helper(float)\ndefine weak hidden float @fmodf(float %x, float %y) { "
        "%v = call float @helper(float %x) ret float %v }\ndefine float @unasked() { ret float 0.0 }",
        "b.o": "define hidden float @helper(float %x) { ret float %x }",
    }
    lazy = archive(tmp_path, "libcompiler_builtins.rlib", builtins, metadata=True)
    user = (
        "define ptx_kernel void @k(ptr %p) "
        "{ %v = call float @fmodf(float 1.0, float 2.0) store float %v, ptr %p ret void }"
    )
    outcome = merged(ll("k.ll", "declare float @fmodf(float, float)\ndeclare void @nobody()\n" + user))
    inputs = merged(ll("k.ll", "define ptx_kernel void @k() { ret void }"), lazy).inputs
    assert pull_in(outcome.module, inputs, ["fmodf", "absent"]) == []
    outcome.module.verify()
    assert outcome.defined() == {"k": "external", "fmodf": "internal", "helper": "internal"}


def test_newcomers_get_rustcs_runtime_and_what_they_lack_is_told(tmp_path: Path) -> None:
    panics = "_RNvCsfgHYwM92fyn_7___rustc17rust_begin_unwind"
    member = f"""
        declare void @{panics}(ptr)
        declare void @lacking()
        define void @builtin(ptr %p) {{ call void @{panics}(ptr %p) ret void }}
        define void @other(ptr %p) {{ call void @lacking() ret void }}
    """
    lazy = archive(tmp_path, "libcompiler_builtins.rlib", {"a.o": member}, metadata=True)
    user = "declare void @{0}(ptr)\ndefine ptx_kernel void @k(ptr %p) {{ call void @{0}(ptr %p) ret void }}"
    inputs = merged(ll("k.ll", "define ptx_kernel void @k() { ret void }"), lazy).inputs
    good = merged(ll("k.ll", user.format("builtin")))
    assert pull_in(good.module, inputs, ["builtin"]) == []
    assert good.defined()[panics] == "internal"
    assert pull_in(merged(ll("k.ll", user.format("other"))).module, inputs, ["other"]) == ["lacking"]


def test_what_no_archive_has_is_told(tmp_path: Path) -> None:
    outcome = merged(ll("k.ll", "declare void @nobody()\ndefine ptx_kernel void @k() { call void @nobody() ret void }"))
    assert pull_in(outcome.module, outcome.inputs, ["nobody"]) == ["nobody"]


def test_weak_references_that_nobody_defines_are_null() -> None:
    text = """
        declare extern_weak void @maybe()
        @there = extern_weak global i32
        @name = constant [12 x i8] c"@rglink.null"
        define ptx_kernel void @k(ptr %p) {
          %set = icmp ne ptr @maybe, null
          store i1 %set, ptr %p
          store ptr @there, ptr %p
          store ptr @name, ptr %p
          ret void
        }
    """
    outcome = merged(ll("a.ll", text))
    assert rendered(outcome.diags) == []
    assert "icmp ne ptr null, null" in outcome.module.text()
    assert 'c"@rglink.null"' in outcome.module.text()
    assert outcome.module.undefined_names() == set()
    there = merged(ll("a.ll", text), ll("b.ll", "@there = global i32 7"))
    assert "store ptr @there" in there.module.text()


def test_constructors_are_refused() -> None:
    text = """
        @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 1, ptr @c, ptr null }]
        define internal void @c() { ret void }
        define ptx_kernel void @k() { ret void }
    """
    assert rendered(merged(ll("a.ll", text)).diags) == [
        lines(
            "rglink: error: the program has functions that must run before its kernels, and nothing on a GPU runs them"
            " [global-constructor]",
            ">>> help: initialise device statics with constants, or from a kernel",
        )
    ]


def test_globals_without_names_are_local() -> None:
    text = """
        @0 = constant i32 {0}
        define void @1(ptr %p) {{ %v = load i32, ptr @0 store i32 %v, ptr %p ret void }}
        define ptx_kernel void @k{0}(ptr %p) {{ call void @1(ptr %p) ret void }}
        define ptx_kernel void @2() {{ ret void }}
    """
    outcome = merged(ll("a.ll", text.format(1)), ll("b.ll", text.format(2)))
    assert rendered(outcome.diags) == []
    outcome.module.verify()
    external = sorted(name for name, linkage in outcome.defined().items() if linkage == "external")
    assert external == ["k1", "k2", "kernel_2", "kernel_2_b"]

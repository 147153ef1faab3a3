"""Undefined symbols and hooks: the whole text of each message, and what is no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from rglink.lto.undefined import check_undefined
from rglink.objfmt.input_file import InputFile
from tests.lto.linking import archive, lines, ll, merged, rendered


def messages(*files: InputFile, elsewhere: tuple[str, ...] = ()) -> list[str]:
    outcome = merged(*files)
    check_undefined(outcome.module, outcome.resolution, outcome.inputs, outcome.diags, elsewhere)
    return rendered(outcome.diags)


def calls(name: str, kernel: str = "k") -> str:
    return f"declare void @{name}()\ndefine ptx_kernel void @{kernel}() {{ call void @{name}() ret void }}\n"


def test_who_asks_from_which_kernel_in_which_crate_file_and_line() -> None:
    library = """
        declare void @bar()
        define void @_RNvCs2_3dep5inner() !dbg !4 { call void @bar(), !dbg !5 ret void }
        define void @_RNvCs2_3dep5outer() { call void @_RNvCs2_3dep5inner() ret void }
        define void @baz() { ret void }
        define void @dead() { call void @bar() ret void }
        !llvm.dbg.cu = !{!0}
        !llvm.module.flags = !{!2}
        !0 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1, emissionKind: LineTablesOnly)
        !1 = !DIFile(filename: "src/lib.rs", directory: "/home/me")
        !2 = !{i32 2, !"Debug Info Version", i32 3}
        !3 = !DISubroutineType(types: null)
        !4 = distinct !DISubprogram(name: "inner", file: !1, line: 10, type: !3, unit: !0, spFlags: DISPFlagDefinition)
        !5 = !DILocation(line: 12, column: 5, scope: !4)
    """
    kernel = """
        declare void @_RNvCs2_3dep5outer()
        define ptx_kernel void @_RNvCs3_3app2go() { call void @_RNvCs2_3dep5outer() ret void }
    """
    assert messages(ll("dep.ll", library), ll("app.ll", kernel)) == [
        lines(
            "rglink: error: undefined symbol: bar [undefined-symbol]",
            ">>> referenced by dep::inner at src/lib.rs:12 in dep.ll (crate dep)",
            ">>> chain: app::go -> dep::outer -> dep::inner -> bar",
        )
    ]


def test_all_in_one_go_sorted_with_all_who_ask() -> None:
    many = "".join(f"define ptx_kernel void @k{n}() {{ call void @first() ret void }}\n" for n in range(5))
    text = f"declare void @first()\n@second = external global i32\n{many}"
    text += "define ptx_kernel void @reader(ptr %p) { %v = load i32, ptr @second store i32 %v, ptr %p ret void }"
    assert messages(ll("a.ll", text)) == [
        lines(
            "rglink: error: undefined symbol: first [undefined-symbol]",
            ">>> referenced by k0 in a.ll (crate a)",
            ">>> referenced by k1 in a.ll (crate a)",
            ">>> referenced by k2 in a.ll (crate a)",
            ">>> and from 2 more",
        ),
        lines(
            "rglink: error: undefined symbol: second [undefined-symbol]",
            ">>> referenced by reader in a.ll (crate a)",
        ),
    ]


def test_what_only_dead_code_asks_for_is_no_error() -> None:
    text = "declare void @bar()\ndefine void @dead() { call void @bar() ret void }\n"
    assert messages(ll("a.ll", text + "define ptx_kernel void @k() { ret void }")) == []


def test_what_the_driver_and_other_inputs_define_is_no_error() -> None:
    text = """
        declare i32 @vprintf(ptr, ptr)
        declare ptr @malloc(i64)
        declare void @free(ptr)
        declare void @__assertfail(ptr, ptr, i32, ptr, i64)
        declare void @from_cuda()
        define ptx_kernel void @k(ptr %p) {
          %n = call i32 @vprintf(ptr %p, ptr %p)
          %m = call ptr @malloc(i64 8)
          call void @free(ptr %m)
          call void @__assertfail(ptr %p, ptr %p, i32 1, ptr %p, i64 1)
          call void @from_cuda()
          ret void
        }
    """
    assert messages(ll("a.ll", text), elsewhere=("from_cuda",)) == []


def test_near_misses_come_from_inputs_and_lazy_archives(tmp_path: Path) -> None:
    lazy = archive(tmp_path, "libc.a", {"m.o": "define void @scale_rows() { ret void }"})
    assert messages(ll("a.ll", calls("scale_row")), lazy) == [
        lines(
            "rglink: error: undefined symbol: scale_row [undefined-symbol]",
            ">>> referenced by k in a.ll (crate a)",
            ">>> help: did you mean scale_rows?",
        )
    ]


def test_the_same_path_of_another_build_is_named() -> None:
    built = ll("libdep.ll", "define void @_RNvCs9_3dep3foo() { ret void }")
    assert messages(ll("a.ll", calls("_RNvCs2_3dep3foo")), built) == [
        lines(
            "rglink: error: undefined symbol: dep::foo [undefined-symbol]",
            ">>> referenced by k in a.ll (crate a)",
            ">>> help: libdep.ll defines another build's dep::foo: compile both crates against one build",
        )
    ]


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("__nv_sinf",
         "it is a function of NVIDIA's libdevice, which this version does not link: use core's float methods"),
        ("cudaDeviceSynchronize",
         "it is a function of NVIDIA's device runtime (cudadevrt), which this version does not link"),
        ("memcpy", "compiler_builtins defines it: link the device's libcompiler_builtins.rlib"),
    ],
)  # fmt: skip
def test_names_of_known_libraries_get_advice(name: str, cure: str) -> None:
    assert messages(ll("a.ll", calls(name))) == [
        lines(
            f"rglink: error: undefined symbol: {name} [undefined-symbol]",
            ">>> referenced by k in a.ll (crate a)",
            f">>> help: {cure}",
        )
    ]


def test_hooks_are_not_built() -> None:
    assert messages(ll("a.ll", calls("__rglink_shared"))) == [
        lines(
            "rglink: error: unknown hook: __rglink_shared [unknown-hook]",
            ">>> referenced by k in a.ll (crate a)",
            ">>> help: this version of rglink builds no __rglink_* hooks: use the sections .rglink.shared and"
            " .rglink.constant",
        )
    ]


def test_a_local_function_that_llvm_renumbered_still_has_its_file() -> None:
    text = "declare void @bar()\n@v{0} = global i8 0\ndefine internal void @help() {{ call void @bar() ret void }}\n"
    kernel = "define ptx_kernel void @k{0}() {{ store i8 0, ptr @v{0} call void @help() ret void }}"
    found = messages(ll("a.ll", "define ptx_kernel void @a() { ret void }"), ll("b.ll", (text + kernel).format(1)),
                     ll("c.ll", (text + kernel).format(2)))  # fmt: skip
    assert found == [
        lines(
            "rglink: error: undefined symbol: bar [undefined-symbol]",
            ">>> referenced by help in b.ll (crate b)",
            ">>> referenced by help1 in b.ll (crate b)",
            ">>> chain: k1 -> help -> bar",
        )
    ]

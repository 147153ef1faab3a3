"""Which kernels and statics a link is for, by hand, by rustc and by patterns."""

from __future__ import annotations

import pytest

from rglink.diagnostics import Diagnostics
from rglink.lto.load import load_sources
from rglink.lto.roots import RootRequest, Roots, choose_roots
from rglink.objfmt.input_file import InputFile
from tests.lto.linking import lines, ll, rendered

F32_A = "_RINvCs1_3dep5scalefECs2_1a"
F64_B = "_RINvCs1_3dep5scaledECs3_1b"
KERNELS = f"""
define ptx_kernel void @saxpy() {{ ret void }}
define ptx_kernel void @{F32_A}() {{ ret void }}
define ptx_kernel void @_RNvCs2_1a6reduce() {{ ret void }}
"""
MORE = f"define weak ptx_kernel void @{F64_B}() {{ ret void }}"


def chosen(*files: InputFile, request: RootRequest | None = None) -> tuple[Roots, list[str]]:
    diags = Diagnostics()
    roots = choose_roots(load_sources(files, diags), request or RootRequest(), diags)
    return roots, rendered(diags)


def exports(roots: Roots) -> list[str]:
    return [kernel.export for kernel in roots.kernels]


def test_kernels_of_any_visibility_linkage_and_convention_are_roots() -> None:
    roots, messages = chosen(
        ll(
            "a.ll",
            """
            define hidden ptx_kernel void @hidden() { ret void }
            define internal ptx_kernel void @local() { ret void }
            define linkonce_odr ptx_kernel void @shared() { ret void }
            define void @annotated() { ret void }
            define void @plain() { ret void }
            !nvvm.annotations = !{!0}
            !0 = !{ptr @annotated, !"kernel", i32 1}
            """,
        )
    )
    assert messages == []
    assert exports(roots) == ["annotated", "hidden", "local", "shared"]


def test_local_kernels_of_one_name_get_unique_names_whatever_the_order() -> None:
    local = "@{0} = global i8 0\ndefine internal ptx_kernel void @k() {{ store i8 1, ptr @{0}  ret void }}"
    files = [ll("a.ll", local.format("va")), ll("b.ll", local.format("vb")), ll("c.ll", "@k_b = global i8 0")]
    roots, _ = chosen(*files)
    again, _ = chosen(*files[::-1])
    assert [(k.symbol, k.export, k.crate) for k in roots.kernels] == [("k", "k", "a"), ("k", "k_b_2", "b")]
    assert roots == again


def test_a_kernel_name_that_ptx_does_not_take_is_changed() -> None:
    legacy = "_ZN3dep12scale$LT$T$GT$3run17h0123456789abcdefE"
    roots, _ = chosen(ll("a.ll", f'define ptx_kernel void @"{legacy}.7"() {{ ret void }}'))
    assert exports(roots) == [f"{legacy}_7"]


STATICS = """
@TABLE = constant [4 x i32] zeroinitializer
@WRITTEN = hidden global i32 0
@LOCAL = internal global i32 0
@OUTSIDE = external global i32
@_RNvCs2_1a5INNER = global i32 0
@alloc_0123456789abcdef0123456789abcdef = hidden constant [1 x i8] zeroinitializer
@anon.0123.0.llvm.99 = hidden constant [1 x i8] zeroinitializer
@TILE = global [4 x i8] undef, section ".rglink.shared"
@COEF = global [4 x i8] zeroinitializer, section ".rglink.constant"
@POOL = external addrspace(3) global [0 x i8]
define ptx_kernel void @k() { ret void }
define void @device_function() { ret void }
"""


def test_statics_by_hand_and_by_rustc() -> None:
    assert chosen(ll("a.ll", STATICS))[0].variables == ("COEF", "TABLE", "WRITTEN")
    assert chosen(ll("a.ll", STATICS), request=RootRequest(exports=()))[0].variables == ("COEF", "TABLE", "WRITTEN")
    asked = RootRequest(exports=("k", "device_function", "TABLE", "_RNvCs2_1a5INNER", "gone", "TILE"))
    assert chosen(ll("a.ll", STATICS), request=asked)[0].variables == ("TABLE", "_RNvCs2_1a5INNER")


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("saxpy", ["saxpy"]),
        ("dep::scale", [F64_B, F32_A]),
        ("dep::scale*", [F64_B, F32_A]),
        ("dep::scale::<f32>", [F32_A]),
        ("a::reduce", ["_RNvCs2_1a6reduce"]),
        ("_RINv*", [F64_B, F32_A]),
        ("*", [F64_B, F32_A, "_RNvCs2_1a6reduce", "saxpy"]),
    ],
)
def test_keep_and_drop_by_name_glob_and_path(pattern: str, kept: list[str]) -> None:
    files = ll("a.ll", KERNELS), ll("b.ll", MORE)
    everything = [F64_B, F32_A, "_RNvCs2_1a6reduce", "saxpy"]
    roots, messages = chosen(*files, request=RootRequest(keep=(pattern,)))
    assert (exports(roots), messages) == (kept, [])
    assert {d.reason for d in roots.dropped} <= {"no --keep pattern matches it"}
    if kept != everything:
        roots, messages = chosen(*files, request=RootRequest(drop=(pattern,)))
        assert (exports(roots), messages) == ([name for name in everything if name not in kept], [])
        assert {d.reason for d in roots.dropped} == {f"--drop {pattern}"}


def test_one_instance_made_by_two_crates_is_one_kernel() -> None:
    twin = F32_A.replace("Cs2_1a", "Cs3_1b")
    files = ll("a.ll", KERNELS), ll("b.ll", f"define ptx_kernel void @{twin}() {{ ret void }}\n{MORE}")
    for order in (files, files[::-1]):
        roots, messages = chosen(*order)
        assert (exports(roots), messages) == ([F64_B, F32_A, "_RNvCs2_1a6reduce", "saxpy"], [])
        assert [(d.kernel.symbol, d.reason) for d in roots.dropped] == [(twin, f"the same instance as {F32_A}")]
    asked, _ = chosen(*files, request=RootRequest(keep=("dep::scale", twin)))
    assert exports(asked) == [F64_B, F32_A, twin]


def test_the_instance_of_a_protected_crate_is_preferred() -> None:
    twin = F32_A.replace("Cs2_1a", "Cs3_1b")
    rustc = '!llvm.ident = !{!0}\n!0 = !{!"rustc version 1.96.0"}\n'
    harmed = ll("a.ll", f"define ptx_kernel void @{F32_A}() nosync {{ ret void }}\n{rustc}")
    intact = ll("b.ll", f"define ptx_kernel void @{twin}() convergent noredzone {{ ret void }}\n{rustc}")
    assert exports(chosen(harmed, intact)[0]) == [twin]


def test_kernels_from_keeps_what_is_named_and_says_what_is_missing() -> None:
    request = RootRequest(kernels_from=frozenset({"saxpy", "_RNvCs2_1a6reduce"}))
    roots, messages = chosen(ll("a.ll", KERNELS), request=request)
    assert (exports(roots), messages) == (["_RNvCs2_1a6reduce", "saxpy"], [])
    assert [(d.kernel.path, d.reason) for d in roots.dropped] == [("dep::scale", "--kernels-from does not name it")]
    _, messages = chosen(ll("a.ll", KERNELS), request=RootRequest(kernels_from=frozenset({"saxpy", "saxpi"})))
    assert messages == [
        lines(
            "rglink: error: --kernels-from saxpi: no kernel has this name [no-such-kernel]",
            ">>> help: did you mean saxpy?",
        )
    ]


def test_a_misspelled_pattern_is_an_error_with_near_misses() -> None:
    request = RootRequest(keep=("sapxy", "dep::sclae*"), drop=("zzzzzzzz",))
    _, messages = chosen(ll("a.ll", KERNELS), request=request)
    assert messages == [
        lines(
            "rglink: error: --keep sapxy: no kernel has this name [no-such-kernel]",
            ">>> help: did you mean saxpy?",
        ),
        lines(
            "rglink: error: --keep dep::sclae*: no kernel has this name [no-such-kernel]",
            ">>> help: did you mean dep::scale?",
        ),
        lines(
            "rglink: error: --drop zzzzzzzz: no kernel has this name [no-such-kernel]",
            ">>> kernel here: a::reduce",
            ">>> kernel here: dep::scale",
            ">>> kernel here: saxpy",
        ),
    ]


def test_no_kernels() -> None:
    _, messages = chosen(ll("a.ll", "define void @f() { ret void }"), ll("b.ll", "@x = global i8 0"))
    assert messages == [
        lines(
            "rglink: error: no kernels found [no-kernels]",
            ">>> a.ll: kernels 0, device functions 1",
            ">>> b.ll: kernels 0, device functions 0",
            '>>> help: declare kernels as `#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn`',
        )
    ]


def test_every_kernel_dropped() -> None:
    _, messages = chosen(ll("a.ll", KERNELS), request=RootRequest(keep=("saxpy",), drop=("s*",)))
    assert messages == [
        lines(
            "rglink: error: every kernel was dropped [no-kernels]",
            ">>> dep::scale: no --keep pattern matches it",
            ">>> a::reduce: no --keep pattern matches it",
            ">>> saxpy: --drop s*",
        )
    ]

"""Rust names made readable, checked by hand and against LLVM's own demangler."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rglink.demangle import crate_of, demangle, instance_of, is_mangled, path_of

# (mangled, readable, path without generic arguments, crate)
NAMES = [
    ("_RNvCs2zO1CNtWFRx_1k3foo", "k::foo", "k::foo", "k"),
    ("_RINvNtC3std3mem8align_ofjE", "std::mem::align_of::<usize>", "std::mem::align_of", "std"),
    ("_RNvMCs4fqI2P2rA04_3depNtB2_3Acc3add", "<dep::Acc>::add", "<dep::Acc>::add", "dep"),
    (
        "_RINvCs1_3dep5scalefECs2_3app",
        "dep::scale::<f32>",
        "dep::scale",
        "dep",
    ),
    ("_RNCNvCslO68pzujhwO_3app2va0B3_", "app::va::{closure#0}", "app::va::{closure#0}", "app"),
    ("_RNvYjNtNtC4core3cmp3Ord3cmp", "<usize as core::cmp::Ord>::cmp", "<usize as core::cmp::Ord>::cmp", "core"),
    ("_RNvCsfgHYwM92fyn_7___rustc12___rust_alloc", "__rustc::__rust_alloc", "__rustc::__rust_alloc", "__rustc"),
    ("_RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y", "utf8_idents::საჭმელად_გემრიელი_სადილი",
     "utf8_idents::საჭმელად_გემრიელი_სადილი", "utf8_idents"),
    ("_RINvC1a1fKj1f_E", "a::f::<31>", "a::f", "a"),
    ("_RINvC1a1fKan1_E", "a::f::<-1>", "a::f", "a"),
    ("_RINvC1a1fKb1_E", "a::f::<true>", "a::f", "a"),
    ("_RINvC1a1fKc41_E", "a::f::<'A'>", "a::f", "a"),
    ("_RINvC1a1fAhj4_E", "a::f::<[u8; 4]>", "a::f", "a"),
    ("_RINvC1a1fTRhQSmEE", "a::f::<(&u8, &mut [u32])>", "a::f", "a"),
    ("_RINvC1a1fFKCPvEuE", 'a::f::<extern "C" fn(*const ...)>', "a::f", "a"),
    ("_RINvC1a1fDG_INtC1b2TrRL0_hEp1OmEL_E", "a::f::<dyn for<'a> b::Tr<&'a u8, O = u32>>", "a::f", "a"),
    ("_ZN4core3ptr8non_null16NonNull$LT$T$GT$6as_ref17h0123456789abcdefE", "core::ptr::non_null::NonNull<T>::as_ref",
     "core::ptr::non_null::NonNull::as_ref", "core"),
    ("_ZN61_$LT$dep..Acc$u20$as$u20$core..ops..arith..Add$LT$f32$GT$$GT$3add17h0123456789abcdefE",
     "<dep::Acc as core::ops::arith::Add<f32>>::add", "<dep::Acc as core::ops::arith::Add>::add", "dep"),
    ("_RNvCs2zO1CNtWFRx_1k3foo.llvm.1234567890", "k::foo", "k::foo", "k"),
    ("_RNvCs2zO1CNtWFRx_1k3foo.cold", "k::foo (.cold)", "k::foo (.cold)", "k"),
]  # fmt: skip


@pytest.mark.parametrize(("mangled", "readable", "path", "crate"), NAMES)
def test_names(mangled: str, readable: str, path: str, crate: str) -> None:
    assert (demangle(mangled), path_of(mangled), crate_of(mangled)) == (readable, path, crate)
    assert is_mangled(mangled)


def test_instances_of_two_crates_are_one() -> None:
    assert instance_of("_RINvCs1_3dep5scalefECs2_1a") == instance_of("_RINvCs1_3dep5scalefECs3_1b")
    assert instance_of("_RINvCs1_3dep5scalefECs2_1a") != instance_of("_RINvCs1_3dep5scaledECs2_1a")
    assert instance_of("_RINvCs1_3dep5scalefECs2_1a") != instance_of("_RINvCs4_3dep5scalefECs2_1a")
    assert instance_of("saxpy") == "saxpy"
    assert instance_of("_RNvC9k3foo") == "_RNvC9k3foo"


@pytest.mark.parametrize(
    "name",
    ["", "saxpy", "_R", "_RN", "_RNvC1k", "_RNvC9k3foo", "_RNvB_3foo", "_R1NvC1k3foo", "_RNvC1k3foo!", "_ZN3fooE",
     "_ZN3foo17h0123456789abcdeE", "_Z3addii", "_RINvC1a1fB5_E", "_RINvC1a1fKzE"],
)  # fmt: skip
def test_what_is_not_mangled_comes_back(name: str) -> None:
    assert demangle(name) == path_of(name) == name
    assert crate_of(name) == ""
    assert not is_mangled(name)


def test_deep_and_exploding_names_come_back_quickly() -> None:
    deep = "_RINvC1a1f" + "S" * 100_000 + "hE"
    # Each tuple mentions the one before twice: 2**60 types if they were written out.
    exploding, at = "_RINvC1a1f", [8]
    position = len("INvC1a1f")
    for _ in range(60):
        back = f"B{_base62(at[-1])}"
        part = f"T{back}{back}E"
        at.append(position)
        exploding, position = exploding + part, position + len(part)
    start = time.perf_counter()
    assert demangle(deep) == deep
    assert demangle(exploding + "E") == exploding + "E"
    assert time.perf_counter() - start < 2


def _base62(value: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    if value == 0:
        return "_"
    value -= 1
    text = digits[value % 62]
    while value := value // 62:
        text = digits[value % 62] + text
    return text + "_"


@given(st.text("_RINvCsBMXYKTEShjmnp0123456789aE", max_size=40))
def test_any_text_is_answered(tail: str) -> None:
    for name in (f"_R{tail}", f"_ZN{tail}17h0123456789abcdefE"):
        assert isinstance(demangle(name), str)
        assert isinstance(path_of(name), str)
        assert isinstance(crate_of(name), str)


@pytest.mark.skipif(shutil.which("llvm-cxxfilt-22") is None, reason="llvm-cxxfilt-22 (package llvm-22) is missing")
def test_llvm_reads_the_same() -> None:
    mangled = [name for name, *_ in NAMES if name.startswith("_R") and "." not in name]
    answer = subprocess.run(
        ["llvm-cxxfilt-22"], input="\n".join(mangled), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert [demangle(name) for name in mangled] == answer

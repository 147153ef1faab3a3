"""The head of PTX modules and their kernels."""

from __future__ import annotations

import pytest

from rglink.diagnostics import InputError
from rglink.objfmt.ptx import read_ptx

from .support import PTX


def test_head_and_kernels() -> None:
    ptx = read_ptx("a.ptx", PTX.format(arch="90a").encode() + b"\0")
    assert (ptx.version, ptx.arch, ptx.kernels) == ((8, 8), "compute_90a", ("empty", "sum"))


def test_comments_and_strings_do_not_count() -> None:
    text = (
        b'// .version 1.0\n/* .entry no() */.version 7.1\n.target sm_80, debug\n.file 1 ".entry no"\n.entry\n yes() {}'
    )
    ptx = read_ptx("a.ptx", text)
    assert (ptx.version, ptx.arch, ptx.kernels) == ((7, 1), "compute_80", ("yes",))


def test_names_keep_dollar_signs_and_percents() -> None:
    text = b".version 7.1\n.target sm_80\n.weak .entry _ZN1k$3a() {}\n.entry %x() {}"
    assert read_ptx("a.ptx", text).kernels == ("%x", "_ZN1k$3a")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "a: is not PTX: not UTF-8 text"),
        (b"// nothing", "a: is not PTX: no .version directive"),
        (b".version 7.0", "a: is not PTX: no .target directive"),
    ],
)
def test_refusals(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_ptx("a", data)
    assert str(caught.value) == message

"""Bitcode: producer and triple without LLVM, refused by name before any parse."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from rglink.diagnostics import InputError
from rglink.objfmt import bitcode as bitcode_module
from rglink.objfmt.bitcode import WRAPPER, read_bitcode

from .support import bitcode, refuses_damage

TRIPLE = "nvptx64-nvidia-cuda"


class BitWriter:
    """Bits in LLVM's order, for an identification block that no LLVM at hand writes."""

    def __init__(self) -> None:
        self.value = self.size = 0

    def fixed(self, value: int, width: int) -> None:
        self.value |= value << self.size
        self.size += width

    def vbr(self, value: int, width: int) -> None:
        top = 1 << (width - 1)
        while value >= top:
            self.fixed(value & (top - 1) | top, width)
            value >>= width - 1
        self.fixed(value, width)

    def record(self, code: int, operands: bytes) -> None:
        self.fixed(3, 3)
        for value in (code, len(operands), *operands):
            self.vbr(value, 6)

    def words(self) -> bytes:
        return self.value.to_bytes((self.size + 31) // 32 * 4, "little")


def identified(data: bytes, producer: str, epoch: int = 0) -> bytes:
    """Bitcode with its identification block replaced; 13 is the block's number, 3 its abbreviation width."""
    body = BitWriter()
    body.record(1, producer.encode())
    body.record(2, bytes([epoch]))
    body.fixed(0, 3)
    contents = body.words()
    head = BitWriter()
    head.fixed(1, 2)
    head.vbr(13, 8)
    head.vbr(3, 4)
    rest = 12 + 4 * int.from_bytes(data[8:12], "little")
    return data[:4] + head.words() + (len(contents) // 4).to_bytes(4, "little") + contents + data[rest:]


def test_llvm_reads_the_rewritten_identification() -> None:
    """Guards the tests below: LLVM itself takes what `identified` makes."""
    module = llvm.parse_bitcode(identified(bitcode(), "LLVM21.1.0"))
    assert module.triple == TRIPLE


def test_producer_and_triple_are_llvms() -> None:
    info = read_bitcode("a.bc", bitcode())
    assert (info.triple, info.epoch, info.modules) == (TRIPLE, 0, 1)
    assert info.llvm[:2] == llvm.llvm_version_info[:2]
    assert info.producer.startswith("LLVM")


@pytest.mark.parametrize("triple", ["x86_64-unknown-linux-gnu", "amdgcn-amd-amdhsa", TRIPLE])
def test_triples(triple: str) -> None:
    assert read_bitcode("a.bc", bitcode(triple)).triple == triple


def test_a_module_without_triple_has_none() -> None:
    data = bitcode(text="@x = global i32 0\ndefine void @f() {{\n ret void\n}}\n")
    assert read_bitcode("a.bc", data).triple == ""


@pytest.mark.parametrize(
    ("producer", "version"),
    [
        ("LLVM22.1.8-rust-1.96.0-stable", (22, 1, 8)),
        ("LLVM7.0.1", (7, 0, 1)),
        ("LLVM23.0.0git", (23, 0, 0)),
        ("APPLE_1_1600.0.26.4_0", ()),
        ("", ()),
    ],
)
def test_versions(producer: str, version: tuple[int, ...]) -> None:
    info = read_bitcode("a.bc", identified(bitcode(), producer))
    assert (info.producer, info.llvm, info.triple) == (producer, version, TRIPLE)


def wrapped(data: bytes) -> bytes:
    return WRAPPER.pack(0x0B17C0DE, 0, WRAPPER.size, len(data), 7) + data


def test_wrapped_bitcode_is_read() -> None:
    assert read_bitcode("a.bc", wrapped(bitcode())) == read_bitcode("a.bc", bitcode())


def test_epoch_and_modules_are_counted() -> None:
    assert read_bitcode("a.bc", identified(bitcode(), "LLVM22.1.8", 1)).epoch == 1
    assert read_bitcode("a.bc", bitcode() + bitcode()[4:]).modules == 2
    assert read_bitcode("a.bc", bitcode()[:4]).modules == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bitcode()[:-4], "a.bc: bitcode is truncated or damaged"),
        (bitcode()[:7], "a.bc: bitcode is truncated: 7 bytes are not a whole number of words"),
        (wrapped(bitcode())[:9], "a.bc: bitcode wrapper is truncated: 9 bytes, wanted 20"),
        (b"; text", "a.bc: is not LLVM bitcode"),
    ],
)
def test_refusals(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_bitcode("a.bc", data)
    assert str(caught.value) == message


def test_a_cut_wrapper_says_both_sizes() -> None:
    data = wrapped(bitcode())
    with pytest.raises(InputError) as caught:
        read_bitcode("a.bc", data[:-4])
    assert str(caught.value) == (f"a.bc: wrapped bitcode is truncated: {len(data) - 4} bytes, wrapper says {len(data)}")


def test_no_damage_makes_a_traceback() -> None:
    assert refuses_damage(lambda changed: read_bitcode("a.bc", changed), bitcode(), 5) > 100


def test_function_bodies_are_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of 400 functions costs as many reads of the stream as one of a single function."""
    reads: list[int] = []
    fixed = bitcode_module._Bits.fixed

    def counted(bits: bitcode_module._Bits, width: int) -> int:
        reads.append(width)
        return fixed(bits, width)

    monkeypatch.setattr(bitcode_module._Bits, "fixed", counted)
    counts = []
    for functions in (1, 400):
        bodies = [f"define void @f{i}() {{{{\n ret void\n}}}}\n" for i in range(functions)]
        data = bitcode(text='target triple = "{triple}"\n' + "".join(bodies))
        reads.clear()
        assert read_bitcode("a.bc", data).triple == TRIPLE
        counts.append(len(reads))
    assert counts[0] == counts[1]

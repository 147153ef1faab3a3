"""The `.rgo` container: what is written is read; nothing damaged, newer or oversized is."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rglink.diagnostics import InputError
from rglink.objfmt import rgo, rgo_payload
from rglink.objfmt.rgo import (
    CrateMetadata,
    Producer,
    Rgo,
    Variant,
    read_rgo,
    write_rgo,
)
from rglink.objfmt.summary import ModuleSummary, Symbol

from .support import flip, sample_rgo

Row = tuple[int, int, int, int, bytes]  # type, flags, architecture, length, stored bytes


def rows_of(data: bytes) -> list[Row]:
    return [
        (s.type, s.critical * rgo.CRITICAL | s.compressed * rgo.ZSTD, s.arch, s.length, bytes(s.stored))
        for s in read_rgo("a.rgo", data).sections
    ]


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:16]


def assemble(rows: list[Row], *, version: int = 1, shift: int = 0, tail: bytes = b"") -> bytes:
    """A file with right digests whatever it says; `shift` moves the second section's offset."""
    offset = rgo.HEADER.size + len(rows) * rgo.SECTION.size
    table, body = b"", b""
    for index, (type_, flags, arch, length, stored) in enumerate(rows):
        at = offset + len(body) + (shift if index == 1 else 0)
        table += rgo.SECTION.pack(type_, flags, arch, at, len(stored), length, digest(stored))
        body += stored
    body += tail
    size = offset + len(body)
    blank = rgo.HEADER.pack(rgo.MAGIC, version, 0, len(rows), size, bytes(16))
    return rgo.HEADER.pack(rgo.MAGIC, version, 0, len(rows), size, digest(blank + table)) + table + body


def refusal(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        read_rgo("a.rgo", data).load()
    return str(caught.value)


texts = st.text(max_size=20) | st.just("\udc80\udcff")
symbols = st.builds(
    Symbol,
    name=texts,
    kind=st.sampled_from(["function", "kernel", "variable", "alias"]),
    binding=st.sampled_from(["strong", "weak", "linkonce", "internal", "undefined"]),
    type=texts,
    addrspace=st.integers(0, 5),
    constant=st.booleans(),
    section=texts,
    align=st.integers(0, 1 << 40),
    refs=st.lists(texts, max_size=3).map(tuple),
)
summaries = st.builds(
    ModuleSummary,
    triple=texts,
    ident=texts,
    protected=st.none() | st.booleans(),
    symbols=st.lists(symbols, max_size=4).map(tuple),
    used=st.lists(texts, max_size=3).map(tuple),
)
names = st.text("abcXYZ019_", min_size=1, max_size=8)
contents = st.binary(max_size=40) | st.binary(max_size=6).map(lambda data: data * 300)
metadata = st.lists(
    st.builds(
        CrateMetadata,
        crate=names,
        hash=names,
        file_name=names.map(lambda name: f"lib{name}.rmeta"),
        data=contents,
    ),
    max_size=3,
    unique_by=lambda entry: entry.hash,
).map(tuple)
variants = st.lists(
    st.builds(Variant, arch=st.integers(1, 200), optimized=contents),
    max_size=3,
    unique_by=lambda variant: variant.arch,
).map(lambda found: tuple(sorted(found, key=lambda variant: variant.arch)))
producers = st.builds(
    Producer,
    rustc=texts,
    llvm=texts,
    rglink=texts,
    flags=st.lists(texts, max_size=3).map(tuple),
    protected=st.booleans(),
    crate_name=texts,
)


@given(
    st.builds(
        Rgo,
        producer=producers,
        optimized=contents,
        unoptimized=contents,
        summary=summaries,
        metadata=metadata,
        variants=variants,
    )
)
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read(original: Rgo) -> None:
    data = write_rgo(original)
    assert read_rgo("a.rgo", memoryview(data)).load() == original
    assert write_rgo(original) == data


@given(st.binary(max_size=400))
@settings(max_examples=100, deadline=None)
def test_any_bytes_after_the_magic_are_refused(tail: bytes) -> None:
    refusal(rgo.MAGIC + tail)


def test_every_flipped_bit_is_noticed() -> None:
    data = write_rgo(sample_rgo())
    for bit in range(len(data) * 8):
        with pytest.raises(InputError, match=r"^a\.rgo: "):
            read_rgo("a.rgo", flip(data, bit))


def test_every_truncation_is_noticed() -> None:
    data = write_rgo(sample_rgo())
    for length in range(len(data)):
        with pytest.raises(InputError, match=r"^a\.rgo: "):
            read_rgo("a.rgo", data[:length])


def test_a_link_decompresses_only_what_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    large = replace(sample_rgo(), optimized=b"opt" * 1000, unoptimized=b"raw" * 1000)
    reader = read_rgo("a.rgo", write_rgo(large))
    opened: list[str] = []
    decompress = rgo._decompress

    def watched(name: str, section: rgo.RgoSection) -> bytes:
        opened.append(section.type_name)
        return decompress(name, section)

    monkeypatch.setattr(rgo, "_decompress", watched)
    assert reader.summary() == large.summary
    assert reader.optimized() == large.optimized
    assert opened == ["optimized"]
    reader.unoptimized()
    assert opened == ["optimized", "unoptimized"]


def test_the_highest_usable_variant_is_taken() -> None:
    sample = replace(sample_rgo(), variants=(Variant(100, b"hundred"), Variant(80, b"eighty")))
    reader = read_rgo("a.rgo", write_rgo(sample))
    assert reader.variant_arches() == (80, 100)
    assert [reader.optimized(sm) for sm in (0, 75)] == [sample.optimized] * 2
    assert [reader.optimized(sm) for sm in (80, 90, 100, 120)] == [b"eighty"] * 2 + [b"hundred"] * 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a.rgo: is not an .rgo"),
        (b"fn main() {}", "a.rgo: is not an .rgo"),
        (rgo.MAGIC, "a.rgo: header is truncated: 8 bytes, wanted 40"),
        (write_rgo(sample_rgo())[:-1], r"a.rgo: is truncated: \d+ bytes, header says \d+"),
        (write_rgo(sample_rgo()) + b"xy", r"a.rgo: has 2 bytes after its end: header says \d+ bytes"),
        (assemble([], version=2), "a.rgo: is an .rgo of version 2, this rglink reads version 1"),
        (assemble([]), "a.rgo: has no producer section"),
        (flip(write_rgo(sample_rgo()), 41 * 8), "a.rgo: header or section table is damaged: wrong digest"),
        (
            flip(write_rgo(sample_rgo()), 8 * (len(write_rgo(sample_rgo())) - 1)),
            r"a.rgo: section 6 \(metadata\) is damaged: wrong digest",
        ),
    ],
)
def test_damage_has_its_own_message(data: bytes, message: str) -> None:
    assert re.fullmatch(message, refusal(data))


def test_a_newer_version_says_what_to_do() -> None:
    with pytest.raises(InputError) as caught:
        read_rgo("a.rgo", assemble([], version=9))
    assert caught.value.diagnostic.cure is not None


def test_unknown_sections_are_refused_only_when_critical() -> None:
    rows = rows_of(write_rgo(sample_rgo()))
    assert read_rgo("a.rgo", assemble([*rows, (77, 0, 0, 3, b"new")])).load() == sample_rgo()
    wanted = "a.rgo: section 7 is of unknown type 77 and critical: made by a newer rgcc"
    assert refusal(assemble([*rows, (77, rgo.CRITICAL, 0, 3, b"new")])) == wanted


@pytest.mark.parametrize(
    ("shift", "tail", "message"),
    [
        (-1, b"", "a.rgo: section 1 overlaps what comes before it"),
        (1, b"", "a.rgo: 1 bytes before section 1 belong to nothing"),
        (0, b"z", "a.rgo: 1 bytes after the last section belong to nothing"),
        (1 << 40, b"", r"a.rgo: section 1 is truncated: 0 bytes, header says \d+"),
    ],
)
def test_sections_lie_end_to_end(shift: int, tail: bytes, message: str) -> None:
    rows = rows_of(write_rgo(sample_rgo()))
    assert re.fullmatch(message, refusal(assemble(rows, shift=shift, tail=tail)))


def test_sections_are_there_once() -> None:
    rows = rows_of(write_rgo(sample_rgo()))
    for index, type_name in ((0, "producer"), (1, "summary"), (4, "unoptimized")):
        without = rows[:index] + rows[index + 1 :]
        assert refusal(assemble(without)) == f"a.rgo: has no {type_name} section"
        message = f"a.rgo: has two {type_name} sections for architecture 0"
        assert refusal(assemble([*rows, rows[index]])) == message
    assert refusal(assemble([*rows, rows[3]])) == "a.rgo: has two optimized sections for architecture 90"
    assert refusal(assemble([*rows, rows[5]])) == "a.rgo: metadata of one crate hash is there twice"


def test_unknown_flags_are_refused() -> None:
    rows = rows_of(write_rgo(sample_rgo()))
    rows[2] = (rgo.OPTIMIZED, 4, 0, len(rows[2][4]), rows[2][4])
    assert refusal(assemble(rows)) == "a.rgo: section 2 has unknown flags 0x4"


def bomb(stated: int, frame: bytes) -> bytes:
    rows = rows_of(write_rgo(sample_rgo()))
    rows[4] = (rgo.UNOPTIMIZED, rgo.ZSTD, 0, stated, frame)
    return assemble(rows)


def test_decompressed_sizes_are_capped_before_anything_is_allocated() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(1 << 22))
    assert refusal(bomb((1 << 30) + 1, frame)) == (
        "a.rgo: section 4 (unoptimized) says that it holds 1073741825 bytes, the limit is 1073741824"
    )
    assert refusal(bomb(10, frame)) == (
        "a.rgo: section 4 (unoptimized) decompresses to 4194304 bytes, its header says 10"
    )


def test_bad_frames_are_refused() -> None:
    frame = zstandard.ZstdCompressor().compress(b"bitcode")
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(b"bitcode")
    for stated, stored in ((7, b"no frame"), (7, frame + frame), (7, frame[:-1]), (7, unsized)):
        assert refusal(bomb(stated, stored)).startswith("a.rgo: section 4 (unoptimized) ")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b"\xff\xff",
        b'["t","i",1,[],[]]',
        b'["t","i",true,[],[["s","function","strong","t",true,false,"",0,[]]]]',
        b'["t","i",true,[],[["s","functor","strong","t",0,false,"",0,[]]]]',
        b'["t","i",true,[],[["s",{},"strong","t",0,false,"",0,[]]]]',
        b'["t","i",true,[],[["s","function","strong","t",0,false,"",0,[7]]]]',
        b'["t","i",true,[],[["s","function","strong","t",0,false,"",0,[-1]]]]',
        b'["t","i",true,[],[["s"]]]',
        b'["t","i",true,[],' + b"9" * 5000 + b"]",
    ],
)
def test_a_malformed_summary_is_refused(payload: bytes) -> None:
    rows = rows_of(write_rgo(sample_rgo()))
    rows[1] = (rgo.SUMMARY, rgo.CRITICAL, 0, len(payload), payload)
    assert refusal(assemble(rows)).startswith("a.rgo: summary section is malformed: ")


@pytest.mark.parametrize(
    "file_name", ["../libx.rmeta", "libx.rlib", "lib.rmeta", "/libx.rmeta", "libx\n.rmeta", "lib-x.rmeta", ""]
)
def test_metadata_leaves_only_under_a_plain_name(file_name: str) -> None:
    parts = [b"x", b"h", file_name.encode()]
    payload = struct.pack("<HHH", *map(len, parts)) + b"".join(parts)
    rows = [*rows_of(write_rgo(sample_rgo()))[:5], (rgo.METADATA, 0, 0, len(payload), payload)]
    message = f"a.rgo: metadata section names the file {file_name!r}, wanted lib<name>.rmeta"
    assert refusal(assemble(rows)) == message
    with pytest.raises(ValueError, match="not a metadata file name"):
        write_rgo(replace(sample_rgo(), metadata=(CrateMetadata("x", "h", file_name, b""),)))


@pytest.mark.parametrize("payload", [b"", b"\1\0", b"\4\0\4\0\4\0abc", b"\1\0\0\0\0\0\xff"])
def test_malformed_metadata_is_refused(payload: bytes) -> None:
    with pytest.raises(InputError, match=r"^a\.rgo: metadata section "):
        rgo_payload.decode_metadata("a.rgo", payload)


def test_the_writer_refuses_what_a_reader_would() -> None:
    sample = sample_rgo()
    with pytest.raises(ValueError, match="twice"):
        write_rgo(replace(sample, metadata=sample.metadata * 2))
    for arches in ((0,), (90, 90)):
        with pytest.raises(ValueError, match="variants must have distinct architectures"):
            write_rgo(replace(sample, variants=tuple(Variant(arch, b"") for arch in arches)))


def test_the_document_has_the_layout_of_the_module() -> None:
    layout = (rgo.__doc__ or "").split("\n\n")[1]
    document = (Path(__file__).parents[2] / "docs/rgo.md").read_text()
    for line in layout.splitlines():
        assert line.strip() in document

"""GNU and BSD archives, rlibs: members, long names and symbol maps, and nothing outside the file."""

from __future__ import annotations

import mmap
import shutil
import subprocess
from pathlib import Path

import pytest

from rglink.diagnostics import InputError
from rglink.objfmt.archive import read_archive

from .support import bsd_archive, gnu_archive, header, member, refuses_damage

LONG = "app.app.1e05a79da20ad57d-cgu.0.rcgu.o"
MEMBERS = [(LONG, b"first"), ("b.o", b"second member"), ("lib.rmeta", b"rust metadata!")]
SYMBOLS = [("kernel", 0), ("scale", 1), ("twice", 0), ("twice", 1)]


@pytest.mark.parametrize("wide", [False, True])
def test_gnu_members_and_map(wide: bool) -> None:
    archive = read_archive("libapp.rlib", gnu_archive(MEMBERS, SYMBOLS, wide=wide))
    assert [(m.name, bytes(m.data)) for m in archive.members] == MEMBERS[:2]
    assert archive.symbols is not None
    found = {name: m.name for name, m in archive.symbols.items()}
    assert found == {"kernel": LONG, "scale": "b.o", "twice": LONG}
    assert archive.metadata is not None
    assert archive.metadata.size == 14


def test_bsd_members_and_map() -> None:
    archive = read_archive("libapp.a", bsd_archive(MEMBERS, SYMBOLS))
    assert [(m.name, bytes(m.data)) for m in archive.members] == MEMBERS[:2]
    assert archive.symbols is not None
    assert {name: m.name for name, m in archive.symbols.items()} == {"kernel": LONG, "scale": "b.o", "twice": LONG}


def test_offsets_are_those_of_the_bytes() -> None:
    for data in (gnu_archive(MEMBERS), bsd_archive(MEMBERS, [])):
        for found in read_archive("a", data).members:
            assert data[found.offset : found.offset + found.size] == bytes(found.data)


def test_two_members_of_one_name_stay_two() -> None:
    archive = read_archive("a", gnu_archive([("a.o", b"1"), ("a.o", b"22")], [("x", 1)]))
    assert [m.size for m in archive.members] == [1, 2]
    assert archive.symbols is not None
    assert archive.symbols["x"].size == 2


def test_an_archive_may_be_empty_or_without_map() -> None:
    assert read_archive("a", b"!<arch>\n").members == ()
    assert read_archive("a", b"!<arch>\n").symbols is None
    assert read_archive("a", b"!<arch>\n" + member(b"a.o/", b"x")).symbols is None


@pytest.mark.parametrize("program", ["ar", "llvm-ar", "llvm-ar-22"])
def test_what_ar_writes(program: str, tmp_path: Path) -> None:
    tool = shutil.which(program)
    if tool is None:
        pytest.skip(f"{program} is not installed")
    for name, data in MEMBERS:
        (tmp_path / name).write_bytes(data)
    subprocess.run([tool, "rcsD", "lib.a", *(name for name, _ in MEMBERS)], cwd=tmp_path, check=True)
    archive = read_archive("lib.a", (tmp_path / "lib.a").read_bytes())
    assert [(m.name, bytes(m.data)) for m in archive.members] == MEMBERS[:2]
    assert archive.metadata is not None


def test_rust_metadata_is_never_touched(tmp_path: Path) -> None:
    """A map of the file counts the pages that were read: of 64 MB of metadata hardly any."""
    path = tmp_path / "libbig.rlib"
    head = gnu_archive([("a.o", b"code")], [("k", 0)])
    with path.open("wb") as out:
        out.write(head + header(b"lib.rmeta/", 1 << 26))
        out.truncate(len(head) + 60 + (1 << 26))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        archive = read_archive(str(path), view)
        assert archive.metadata is not None
        assert archive.metadata.size == 1 << 26
        resident = _resident_kib(str(path))
        for part in (*archive.members, archive.metadata):
            part.data.release()
        del archive, part
        view.release()
    assert resident < 1024


def _resident_kib(path: str) -> int:
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.endswith(path))
    return next(int(line.split()[1]) for line in lines[start:] if line.startswith("Rss:"))


def test_thin_archives_are_refused_with_the_reason() -> None:
    with pytest.raises(InputError) as caught:
        read_archive("libthin.a", b"!<thin>\n" + header(b"a.o/", 5))
    assert str(caught.value) == (
        "libthin.a: is a thin archive, which holds names of files and no code:"
        " wanted an archive with its members inside"
    )
    assert caught.value.diagnostic.cure == "make it without `T`: ar rcs"


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (b"short", "a: header of member 0 is truncated: 5 bytes, wanted 60"),
        (header(b"a.o/", 9) + b"x", "a: member 0 is truncated: 1 bytes, header says 9"),
        (header(b"a.o/", 1)[:-2] + b"??x", "a: header of member 0 at 8 is damaged"),
        (header(b"a.o/", 1).replace(b"1  ", b"-1 ") + b"x", "a: header of member 0 at 8 is damaged"),
        (member(b"/7", b"x"), "a: name at 7 is outside the name table of 0 bytes"),
        (member(b"#1/9", b"x"), "a: name of 9 bytes is outside its member of 1 bytes"),
        (member(b"/", b"\0\0\0\x09abcd"), "a: symbol map of 8 bytes is too short for 9 symbols"),
        (member(b"/", b"\0\0\0\1\0\0\0\5k\0"), "a: symbol map places 'k' at 5, where no member begins"),
        (member(b"__.SYMDEF", b"\x10\0\0\0"), "a: symbol map of 4 bytes is too short for 16 bytes of pairs"),
        (
            member(b"__.SYMDEF", b"\x08\0\0\0\x07\0\0\0\0\0\0\0\1\0\0\0\0"),
            "a: symbol map names a symbol at 7 of 1 bytes of names",
        ),
    ],
)
def test_damage_is_named(tail: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_archive("a", b"!<arch>\n" + tail)
    assert str(caught.value) == message


def test_no_damage_makes_a_traceback() -> None:
    for data in (gnu_archive(MEMBERS, SYMBOLS), bsd_archive(MEMBERS, SYMBOLS)):
        assert refuses_damage(lambda changed: read_archive("a", changed), data, 3) > 100

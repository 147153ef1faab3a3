"""`@file`: rustc's quoting, GNU's quoting, nesting, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rglink.diagnostics import InputError
from rglink.objfmt.input_file import expand_response_files
from rglink.objfmt.response_file import split_response


def quoted_as_rustc(arguments: list[str]) -> str:
    """rustc's own rule: a backslash before each backslash and blank, one argument a line."""
    return "".join(a.replace("\\", "\\\\").replace(" ", "\\ ") + "\n" for a in arguments)


def quoted_as_gnu(arguments: list[str]) -> str:
    """libiberty's writeargv: a backslash before white space, quotes and backslashes; blank-separated here."""
    special = "\\'\" \t\v\f"
    return " ".join("".join(f"\\{c}" if c in special else c for c in a) for a in arguments)


def test_two_thousand_paths_nested_once(tmp_path: Path) -> None:
    paths = [f"/home/o'brien/my crate/deps\\x/lib{n}.rlib" for n in range(2000)]
    inner, outer = tmp_path / "inner args", tmp_path / "outer"
    inner.write_text(quoted_as_rustc(paths))
    outer.write_text(quoted_as_rustc(["--debug", f"@{inner}", "-o", "out.ptx"]))
    assert expand_response_files(["-O3", f"@{outer}", "-r"]) == ["-O3", "--debug", *paths, "-o", "out.ptx", "-r"]


# rustc's arguments: no line breaks; of a wholly quoted argument, GNU's meaning is taken.
rustc_arguments = st.text(
    st.characters(codec="utf-8", exclude_categories=["Zl", "Zp", "Cc", "Cs", "Zs"], include_characters=" \\'\""),
    min_size=1,
).filter(lambda text: text[0] not in "\"'@")


@given(st.lists(rustc_arguments, max_size=5))
def test_rustcs_quoting_comes_back(arguments: list[str]) -> None:
    assert list(split_response("f", quoted_as_rustc(arguments))) == arguments


@given(st.lists(st.text("ab-/. \\'\"=\t", min_size=1), min_size=2, max_size=5))
def test_gnus_quoting_comes_back(arguments: list[str]) -> None:
    assert list(split_response("f", quoted_as_gnu(arguments))) == arguments


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('-L "my dir" -lfoo', ["-L", "my dir", "-lfoo"]),
        ("'a b'\n\"c d\"", ["a b", "c d"]),
        ('"whole"', ["whole"]),
        ('-L"my dir"', ["-Lmy dir"]),
        ("a '' b", ["a", "", "b"]),
        ('"a\\"b" c', ['a"b', "c"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("\n\n  \n", []),
        ("/home/o'brien/a.o", ["/home/o'brien/a.o"]),
        ("/home/o'brien/it's.o", ["/home/o'brien/it's.o"]),
        ("ends\\ ", ["ends "]),
    ],
)
def test_quoting(text: str, arguments: list[str]) -> None:
    assert list(split_response("f", text)) == arguments


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_byte_order_marks(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "args"
    path.write_bytes("größe.o\n-r\n".encode(encoding))
    assert expand_response_files([f"@{path}"]) == ["größe.o", "-r"]


def test_bytes_that_are_not_utf8_reach_the_file_system(tmp_path: Path) -> None:
    (tmp_path / "args").write_bytes(b"\xff.o\n")
    (argument,) = expand_response_files([f"@{tmp_path}/args"])
    assert argument.encode("utf-8", "surrogateescape") == b"\xff.o"


def test_a_lone_at_sign_is_an_argument() -> None:
    assert expand_response_files(["@", "a@b"]) == ["@", "a@b"]


def test_one_file_twice_is_no_cycle(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("-x")
    assert expand_response_files([f"@{tmp_path}/x"] * 2) == ["-x", "-x"]


def refusal(*argv: str) -> str:
    with pytest.raises(InputError) as caught:
        expand_response_files(argv)
    return str(caught.value)


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").write_text("-x @b")
    Path("b").write_text("@./a")
    Path("open").write_text('fine\n-L "x')
    for depth in range(9):
        Path(f"d{depth}").write_text(f"@d{depth + 1}")
    assert refusal("@none") == "none: response file cannot be read: no such file or directory"
    assert refusal("@.") == ".: response file cannot be read: is a directory"
    assert refusal("@a") == "./a: response file names itself"
    assert refusal("@open") == 'open: line 2 of the response file does not close its "'
    assert refusal("@d0") == "d8: response files are nested more than 8 deep"


def test_doubling_files_end_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven files that each name the next 20 times would be 20**7 arguments."""
    monkeypatch.chdir(tmp_path)
    for depth in range(7):
        Path(f"d{depth}").write_text(f"@d{depth + 1} " * 20)
    Path("d7").write_text("-x")
    assert refusal("@d0").endswith("more than 1000 response files")

"""`rgdump`: text and JSON of every kind of input, and one line for what cannot be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rglink.diagnostics import EXIT_DONE, EXIT_FAILED, EXIT_USAGE
from rglink.frontend.dump import main
from rglink.objfmt.rgo import write_rgo

from .support import MODULE, PTX, assemble, bitcode, gnu_archive, run_tool, sample_rgo


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def dump(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == EXIT_DONE
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def blocks(text: str) -> dict[str, list[str]]:
    """The sections of a dump by title, cells separated by one blank."""
    found: dict[str, list[str]] = {}
    for block in text.rstrip("\n").split("\n\n"):
        title, *lines = block.splitlines()
        found[title.strip().rstrip(":")] = [" ".join(line.split()) for line in lines]
    return found


def test_an_rgo(capsys: pytest.CaptureFixture[str]) -> None:
    Path("app.rgo").write_bytes(write_rgo(sample_rgo()))
    text = dump(capsys, "app.rgo")
    assert text.startswith(
        "file: app.rgo\nkind: rgo\nversion: 1\ncrate: app\nrustc: 1.96.0\nllvm: 22.1.8\nrglink: 0.1.0\n"
        "flags: -Copt-level=3\nprotected: yes\ntriple: nvptx64-nvidia-cuda\nkernels: kernel\n"
    )
    shown = blocks(text)
    assert [line.split()[1] for line in shown["sections"][1:]] == [
        "producer",
        "summary",
        "optimized",
        "optimized",
        "unoptimized",
        "metadata",
        "metadata",
    ]
    assert shown["metadata"] == [
        "crate hash file size",
        "app 1f2e libapp-1f2e.rmeta 800",
        "dep 77aa libdep-77aa.rmeta 4",
    ]
    assert shown["symbols"][1:] == [
        "helper function strong i32 (i32) 0 -",
        "kernel kernel strong void (ptr) 0 -",
        "TILE variable internal [4 x i32] 3 .rglink.shared",
    ]


def test_an_rlib(capsys: pytest.CaptureFixture[str]) -> None:
    members = [("app.cgu.0.rcgu.o", bitcode()), ("notes.txt", b"text"), ("lib.rmeta", b"rust\0\0\0\x0a")]
    Path("libapp.rlib").write_bytes(gnu_archive(members, [("_RNvCs2zO1CNtWFRx_1k3foo", 0), ("k", 0)]))
    shown = blocks(dump(capsys, "libapp.rlib"))
    assert shown["file: libapp.rlib"] == ["kind: archive", "rust_metadata: 8"]
    assert [line.split()[:2] for line in shown["members"][1:]] == [
        ["app.cgu.0.rcgu.o", "bitcode"],
        ["notes.txt", "text"],
    ]
    assert shown["members"][1].endswith(" nvptx64-nvidia-cuda")
    assert shown["symbols"] == [
        "name path member",
        "_RNvCs2zO1CNtWFRx_1k3foo k::foo app.cgu.0.rcgu.o",
        "k - app.cgu.0.rcgu.o",
    ]


def test_a_cubin(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.cubin").write_bytes(assemble(Path(), PTX, "90a"))
    shown = blocks(dump(capsys, "a.cubin"))
    assert shown["file: a.cubin"] == ["kind: cubin", "arch: sm_90a", "relocatable: no"]
    names, empty, kernel = (line.split() for line in shown["kernels"])
    assert empty[0] == "empty"
    assert dict(zip(names, kernel, strict=False)) | {"shared": "512", "stack": "64", "barriers": "1"} == dict(
        zip(names, kernel, strict=False)
    )
    assert shown["variables"] == [
        "name binding space size",
        "FACTORS local constant 32",
        "TABLE global global 16",
    ]


def test_a_fat_binary(capsys: pytest.CaptureFixture[str]) -> None:
    for arch in ("80", "90a"):
        assemble(Path(), PTX, arch)
    images = [f"--image3=kind=elf,sm={arch},file=sm_{arch}.cubin" for arch in ("80", "90a")]
    run_tool(
        "fatbinary", "--create=a.fatbin", "-64", "--compress-all", *images, "--image3=kind=ptx,sm=80,file=sm_80.ptx"
    )
    shown = blocks(dump(capsys, "a.fatbin"))
    assert [line.split()[1:3] for line in shown["entries"][1:]] == [
        ["elf", "sm_80"],
        ["elf", "sm_90a"],
        ["ptx", "compute_80"],
    ]
    assert shown["entry 0 elf sm_80"] == ["arch: sm_80", "relocatable: no"]
    assert shown["entry 2 ptx compute_80"] == ["version: 8.8", "arch: compute_80", "kernels: empty sum"]
    described = json.loads(dump(capsys, "--json", "a.fatbin"))
    assert [entry["image"]["arch"] for entry in described["entries"]] == ["sm_80", "sm_90a", "compute_80"]
    assert [kernel["name"] for kernel in described["entries"][1]["image"]["kernels"]] == ["empty", "sum"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (bitcode("x"), {"kind": "bitcode", "triple": "x"}),
        (MODULE.format(triple="y").encode(), {"kind": "textual_ir", "triple": "y"}),
        (PTX.format(arch="80").encode(), {"kind": "ptx", "arch": "compute_80", "version": "8.8"}),
        (write_rgo(sample_rgo()), {"kind": "rgo", "kernels": ["kernel"], "protected": True}),
    ],
)
def test_json(data: bytes, expected: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    Path("input").write_bytes(data)
    described = json.loads(dump(capsys, "--json", "input"))
    assert described.items() >= {"file": "input", **expected}.items()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "rgdump: error: a.rgo: no such file [bad-input]\n"),
        (b"", "rgdump: error: a.rgo: is empty [bad-input]\n"),
        (
            write_rgo(sample_rgo()) + b"x",
            f"rgdump: error: a.rgo: has 1 bytes after its end: header says {len(write_rgo(sample_rgo()))} bytes"
            " [bad-input]\n",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line(data: bytes | None, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    if data is not None:
        Path("a.rgo").write_bytes(data)
    assert main(["a.rgo"]) == EXIT_FAILED
    assert capsys.readouterr() == ("", message)


def test_an_entry_that_holds_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    assemble(Path(), PTX, "80")
    run_tool("fatbinary", "--create=a.fatbin", "-64", "--image3=kind=elf,sm=80,file=sm_80.cubin")
    Path("a.fatbin").write_bytes(Path("a.fatbin").read_bytes().replace(b"\x7fELF", b"\x7fELE"))
    assert main(["a.fatbin"]) == EXIT_FAILED
    message = "rgdump: error: a.fatbin: entry 0 (elf sm_80) holds something else [bad-input]\n"
    assert capsys.readouterr() == ("", message)


def test_wrong_usage() -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == EXIT_USAGE


def test_a_reader_that_stops_early_is_no_error() -> None:
    Path("app.rgo").write_bytes(write_rgo(sample_rgo()))
    command = f"{sys.executable} -m rglink.frontend.dump app.rgo | true; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (EXIT_DONE, "")

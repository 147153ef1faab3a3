"""Loading: what is parsed, what stays lazy, what is folded, what is refused and how that reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.lto import load
from rglink.lto.load import load_sources
from rglink.lto.sources import Inputs, crate_of_file
from rglink.lto.summary import summarize
from rglink.objfmt.input_file import InputFile, InputKind, recognise
from rglink.objfmt.rgo import Producer, Rgo, write_rgo
from tests.lto.linking import archive, bc, bitcode, lines, ll, rendered

KERNEL = "define ptx_kernel void @k() { ret void }\n"
HELPER = "define void @helper() { ret void }\n"


def loaded(*files: InputFile) -> tuple[Inputs, list[str]]:
    diags = Diagnostics()
    inputs = load_sources(files, diags)
    return inputs, rendered(diags)


def raw(name: str, data: bytes) -> InputFile:
    return InputFile(name, recognise(data), memoryview(data))


def test_rlibs_are_read_whole_but_the_sysroot_and_c_archives_stay_lazy(tmp_path: Path) -> None:
    members = {"k.o": KERNEL, "h.o": HELPER}
    inputs, messages = loaded(
        archive(tmp_path, "libcore-0123456789abcdef.rlib", {"c.o": "define void @c() { ret void }"}, metadata=True),
        archive(tmp_path / "c", "libmath.a", {"m.o": "define void @m() { ret void }"}),
        archive(tmp_path / "r", "libkern-89abcdef01234567.rlib", members, metadata=True),
        ll("main.ll", "define ptx_kernel void @main() { ret void }"),
    )
    assert messages == []
    assert [(source.name, source.crate) for source in inputs.sources] == [
        ("libkern-89abcdef01234567.rlib(h.o)", "kern"),
        ("libkern-89abcdef01234567.rlib(k.o)", "kern"),
        ("main.ll", "main"),
    ]
    assert [(lazy.crate, dict(lazy.symbols)) for lazy in inputs.archives] == [("core", {"c": 0}), ("math", {"m": 0})]


def test_an_rgo_gives_its_stored_summary() -> None:
    module = Module.parse_bitcode(bitcode(KERNEL), "k")
    summary = summarize(module, protected=True)
    producer = Producer("1.96.0", "22.1.8", "0.1.0", (), True, "kern")
    data = write_rgo(Rgo(producer, module.bitcode(), module.bitcode(), summary))
    inputs, messages = loaded(raw("deep/k.rgo", data))
    assert messages == []
    (source,) = inputs.sources
    assert (source.crate, source.summary, bytes(source.data)) == ("kern", summary, module.bitcode())


def test_order_and_folders_do_not_matter() -> None:
    files = [ll("x/b.ll", KERNEL), bc("y/a.bc", HELPER), ll("z/c.ll", "define void @c() { ret void }")]
    moved = [InputFile(f"other/{file.path}", file.kind, file.data) for file in reversed(files)]
    first, second = loaded(*files)[0], loaded(*moved)[0]
    assert [source.key for source in first.sources] == [source.key for source in second.sources]
    assert [source.crate for source in first.sources] == ["a", "b", "c"]


def test_what_is_given_twice_counts_once_with_a_note(tmp_path: Path) -> None:
    rlib = archive(tmp_path, "libk.rlib", {"k.o": KERNEL}, metadata=True)
    core = archive(tmp_path / "core", "libcore.rlib", {"c.o": HELPER}, metadata=True)
    inputs, messages = loaded(rlib, core, rlib, ll("a.ll", KERNEL), ll("copy/b.ll", KERNEL), core)
    assert [source.name for source in inputs.sources] == ["a.ll", "libk.rlib(k.o)"]
    assert [lazy.name for lazy in inputs.archives] == ["libcore.rlib"]
    assert messages == [
        "rglink: note: copy/b.ll: the same as a.ll, counted once [duplicate-member]",
        "rglink: note: libk.rlib(k.o): given twice, counted once [duplicate-member]",
        "rglink: note: libcore.rlib: given twice, counted once [duplicate-member]",
    ]


X86 = Module.parse_text('target triple = "x86_64-unknown-linux-gnu"\ndefine void @f() { ret void }', "x")
AMD = Module.parse_text('target triple = "amdgcn-amd-amdhsa"\ndefine void @f() { ret void }', "x")
BARE = Module.parse_text("define void @f() { ret void }", "x")
CURE = ">>> help: compile it with --target nvptx64-nvidia-cuda"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (raw("gpu.bc", AMD.bitcode()), "gpu.bc: is for amdgcn-amd-amdhsa, wanted nvptx64-nvidia-cuda"),
        (raw("bare.bc", BARE.bitcode()), "bare.bc: names no target, wanted nvptx64-nvidia-cuda"),
        (raw("bare.ll", BARE.text().encode()), "bare.ll: names no target, wanted nvptx64-nvidia-cuda"),
        (raw("host.ll", X86.text().encode()), "host.ll: is for x86_64-unknown-linux-gnu, wanted nvptx64-nvidia-cuda"),
    ],
)
def test_another_target_is_refused_by_name(file: InputFile, message: str) -> None:
    inputs, messages = loaded(file, ll("k.ll", KERNEL))
    assert messages == [lines(f"rglink: error: {message} [wrong-target]", CURE)]
    assert [source.name for source in inputs.sources] == ["k.ll"]


@pytest.mark.parametrize("name", ["libhost.rlib", "libcore.rlib"])
def test_an_rlib_of_another_target_is_refused_by_member(tmp_path: Path, name: str) -> None:
    _, messages = loaded(archive(tmp_path, name, {"h.o": X86.bitcode()}, metadata=True))
    wanted = f"rglink: error: {name}(h.o): is for x86_64-unknown-linux-gnu, wanted nvptx64-nvidia-cuda"
    assert messages == [lines(f"{wanted} [wrong-target]", CURE)]


def test_bitcode_of_a_newer_llvm_names_both_and_the_last_rustc(monkeypatch: pytest.MonkeyPatch) -> None:
    # Real bitcode of our LLVM, read by an rglink that has the one before.
    monkeypatch.setattr(load, "LLVM_MAJOR", 21)
    _, messages = loaded(bc("k.bc", KERNEL))
    assert len(messages) == 1
    assert messages[0].startswith("rglink: error: k.bc: bitcode of LLVM 22.")
    assert messages[0].endswith(
        lines(
            ", wanted LLVM 21 or older [newer-llvm]",
            ">>> help: compile with rustc 1.98 or older, whose LLVM is 21",
        )
    )


def test_an_archive_without_a_map_and_one_of_host_code(tmp_path: Path) -> None:
    archive(tmp_path, "libm.a", {"m.o": HELPER})
    subprocess.run(["llvm-ar-22", "rcS", "bare.a", "m.o"], cwd=tmp_path, check=True)
    (tmp_path / "t.c").write_text("int f(void) { return 1; }")
    subprocess.run(["cc", "-c", "t.c", "-o", "t.o"], cwd=tmp_path, check=True)
    subprocess.run(["llvm-ar-22", "rcs", "host.a", "t.o"], cwd=tmp_path, check=True)
    _, messages = loaded(*(raw(name, (tmp_path / name).read_bytes()) for name in ("bare.a", "host.a")))
    assert messages[0] == lines(
        "rglink: error: bare.a: archive has no symbol map, wanted one [bad-input]", ">>> help: llvm-ranlib bare.a"
    )
    assert messages[1].startswith("rglink: error: host.a(t.o): is an ELF ")
    assert messages[1].endswith("wanted bitcode for nvptx64-nvidia-cuda [wrong-target]")


def test_damaged_ir_is_one_error_and_the_rest_is_read() -> None:
    data = bitcode(KERNEL)
    inputs, messages = loaded(
        raw("cut.bc", data[: len(data) // 8 * 4]), ll("bad.ll", "define void @f() { ret i32 }"), bc("k.bc", KERNEL)
    )
    assert [source.name for source in inputs.sources] == ["k.bc"]
    assert len(messages) == 2
    assert any(message.startswith("rglink: error: cut.bc: ") for message in messages)
    assert any(message.startswith("rglink: error: bad.ll: ") for message in messages)


@pytest.mark.parametrize(
    ("path", "crate"),
    [
        ("a/libk-0123456789abcdef.rlib", "k"), ("libmy_kernels.rlib", "my_kernels"), ("k.rgo", "k"), ("libm.a", "m"),
        ("k.k.1e05a79da20ad57d-cgu.0.rcgu.o", "k"), ("k-0123456789abcdef.rgo", "k"), ("my-kernels.ll", "my_kernels"),
    ],
)  # fmt: skip
def test_crates_of_files(path: str, crate: str) -> None:
    assert crate_of_file(path) == crate


def test_textual_ir_in_another_encoding() -> None:
    file = InputFile("k.ll", InputKind.TEXTUAL_IR, memoryview(KERNEL.encode() + b"; caf\xe9\n"))
    _, messages = loaded(file)
    assert messages == [f"rglink: error: k.ll: textual IR is not UTF-8 at byte {len(KERNEL) + 5} [bad-ir]"]

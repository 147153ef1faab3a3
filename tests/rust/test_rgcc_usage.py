"""rgcc's command line, and what it refuses before any rustc runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rglink.frontend.rgcc import main, parse_arguments

# Arguments, and the message with its slug; the rest after ` | ` is the help.
REFUSED = """\
: no source file [usage] | rgcc -c SRC.rs -o OUT.rgo
-c a.rs: -o OUT.rgo is missing [usage]
a.rs -o a.rgo: rgcc compiles only: -c is missing [usage] | rgcc -c SRC.rs -o OUT.rgo; rglink links
-c a.rs b.rs -o a.rgo: unrecognized arguments: b.rs [usage] | rgcc --help
-c a.rs -o a.rgo --extern dep.rgo: --extern dep.rgo: wanted NAME=PATH.rgo [usage]
-c a.rs -o a.rgo --extern 1=d.rgo: --extern 1: not a crate name, which is an identifier [usage]
-c a.rs -o a.rgo --extern d=x.rgo --extern d=y.rgo: --extern d is given twice: x.rgo and y.rgo [usage]
-c a.rs -o a.rgo --crate-name a-b: --crate-name a-b: not a crate name, which is an identifier [usage]
-c a.rs -o a.rgo --arch compute_90: --arch compute_90: wanted one architecture such as sm_90 [unknown-arch]
-c a.rs -o a.rgo --arch sm_90,sm_80: --arch sm_90,sm_80: wanted one architecture such as sm_90 [unknown-arch]
-c a.rs -o a.rgo -g --lineinfo: argument --lineinfo: not allowed with argument -g [usage] | rgcc --help
-c a.rs -o a.rgo -- --emit=asm: --emit cannot be passed to rustc: rgcc sets it [usage] | rgcc --help
-c a.rs -o a.rgo -- -ofoo: -o cannot be passed to rustc: rgcc sets it [usage] | rgcc --help
-c a.rs -o a.rgo -- -C codegen_units=2: -Ccodegen-units cannot be passed to rustc: rgcc sets it [usage] | rgcc --help
-c a.rs -o a.rgo -- --codegen=lto: -Clto cannot be passed to rustc: rgcc sets it [usage] | rgcc --help
-c a.rs -o a.rgo -- --codegen lto: -Clto cannot be passed to rustc: rgcc sets it [usage] | rgcc --help
-c a.rs -o a.rgo -- -Zmir-enable-passes=+X: -Zmir-enable-passes cannot be passed to rustc: rgcc sets it [usage] | \
rgcc --help
"""


@pytest.mark.parametrize("line", REFUSED.splitlines())
def test_usage_errors(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, rest = line.split(": ", 1)
    message, _, cure = rest.partition(" | ")
    assert main(words.split()) == 2
    help_line = f">>> help: {cure}\n" if cure else ""
    assert capsys.readouterr().err == f"rgcc: error: {message}\n{help_line}"


def test_all_options_are_read() -> None:
    words = (
        "-c src/a.rs -o out/a.rgo --crate-name n --edition 2024 --extern x=p=q.rgo --cfg a --cfg b -O 2 -g"
        " --arch sm_90a --metadata m -- -Zfoo --cap-lints allow"
    )
    found = parse_arguments(words.split())
    assert (found.source, found.output) == (Path("src/a.rs"), Path("out/a.rgo"))
    assert (found.crate_name, found.edition, found.metadata) == ("n", "2024", "m")
    assert found.externs == (("x", Path("p=q.rgo")),)
    assert (found.cfgs, found.opt_level, found.debug) == (("a", "b"), "2", "full")
    assert found.arch.sm == "sm_90a"
    assert found.rustc_args == ("-Zfoo", "--cap-lints", "allow")


def test_defaults() -> None:
    found = parse_arguments(["-c", "a.rs", "-oa.rgo"])
    assert (found.opt_level, found.debug, found.arch.sm, found.metadata) == ("3", "none", "sm_75", None)


def test_missing_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-c", str(tmp_path / "a.rs"), "-o", str(tmp_path / "a.rgo")]) == 1
    assert capsys.readouterr().err == f"rgcc: error: {tmp_path}/a.rs: no such file [no-such-file]\n"


def test_missing_output_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.rs").write_text("#![no_std]\n")
    assert main(["-c", str(tmp_path / "a.rs"), "-o", str(tmp_path / "out/a.rgo")]) == 1
    said = f"rgcc: error: {tmp_path}/out/a.rgo: output folder {tmp_path}/out does not exist [output]\n"
    assert capsys.readouterr().err == said


def test_output_that_is_a_folder_or_an_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "a.rs"
    source.write_text("#![no_std]\n")
    assert main(["-c", str(source), "-o", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"rgcc: error: {tmp_path}: is a folder, wanted a file [output]\n"
    assert main(["-c", str(source), "-o", str(source)]) == 2
    assert capsys.readouterr().err == f"rgcc: error: -o {source}: is an input [usage]\n"
    assert source.read_text() == "#![no_std]\n"


def test_no_rustc_is_a_tool_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.rs").write_text("#![no_std]\n")
    monkeypatch.setenv("RGLINK_RUSTC", "/nowhere/rustc")
    assert main(["-c", str(tmp_path / "a.rs"), "-o", str(tmp_path / "a.rgo")]) == 3
    assert capsys.readouterr().err == (
        "rgcc: error: RGLINK_RUSTC: /nowhere/rustc: no such program [no-rustc]\n>>> help: set RGLINK_RUSTC to a rustc\n"
    )

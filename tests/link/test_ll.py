"""Links of textual IR: input, commands and expectation in one `.ll` file.

`; RUN: COMMAND` lines run in order in a fresh folder, `; RUN(1): COMMAND` must exit with that code; `show FILE` prints
one. The file's parts (`;--- NAME`) are written there first. Output of all commands together is checked by the
`CHECK` lines (filecheck); a part called `stderr` is the whole of what the last command must print there.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import run

HERE = Path(__file__).parent
CASES = sorted([*HERE.glob("*.ll"), *(HERE.parent / "errors").glob("*.ll")])
PART = re.compile(r"^;--- (\S+)\n", re.MULTILINE)
RUN = re.compile(r"^; RUN(?:\((\d+)\))?: (.*)$", re.MULTILINE)


def parts_of(text: str) -> dict[str, str]:
    pieces = PART.split(text)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_link(case: Path, tmp_path: Path) -> None:
    text = case.read_text()
    parts = parts_of(text)
    for name, content in parts.items():
        if name != "stderr":
            (tmp_path / name).write_text(content)
    printed = ""
    stderr = ""
    commands = RUN.findall(text)
    assert commands, "no RUN line"
    for code, command in commands:
        words = shlex.split(command)
        if words[0] == "show":
            printed += (tmp_path / words[1]).read_text(errors="replace")
            continue
        done = run(words, tmp_path)
        printed += done.stdout + done.stderr
        stderr = done.stderr
        assert done.returncode == int(code or 0), f"{command}\n{done.stdout}{done.stderr}"
        if code:
            assert not re.search(r"Traceback", done.stderr)
    if "stderr" in parts:
        assert stderr == parts["stderr"]
    if "CHECK" in text:
        (tmp_path / "printed").write_text(printed)
        check(case, tmp_path / "printed")
    assert "stderr" in parts or "CHECK" in text, "nothing is expected"


def check(case: Path, printed: Path) -> None:
    command = [sys.executable, "-m", "filecheck", str(case), "--input-file", str(printed), "--comment-prefixes", "NOTE"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\n--- printed:\n{printed.read_text()}"

"""The pytest plugin, run by a pytest of its own as a user's project would."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rglink.arch import parse_arch_list
from rglink.nvjitlink.job import CodegenResult
from rglink.nvjitlink.pack import pack_fatbin

DOCUMENT = Path(__file__).parent.parent / "docs" / "rgrun.md"
# saxpy of the document: y[i] = a * x[i] + y[i] for i below n. `count` adds 1 to a variable; `meet` races.
PTX = """\
.version 8.6
.target sm_90
.address_size 64
.file 1 "src/lib.rs"
.visible .global .align 4 .u32 TOTAL;
.shared .align 4 .u32 cell;
.visible .entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u64 n)
{
.reg .pred %p<2>; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %rd<8>;
.loc 1 3 5
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r0, %r1, %r2, %r0;
cvt.u64.u32 %rd0, %r0; ld.param.u64 %rd1, [n]; setp.ge.u64 %p0, %rd0, %rd1; @%p0 bra done;
ld.param.u64 %rd2, [x]; ld.param.u64 %rd3, [y]; ld.param.f32 %f0, [a];
shl.b64 %rd0, %rd0, 2; add.u64 %rd2, %rd2, %rd0; add.u64 %rd3, %rd3, %rd0;
.loc 1 4 9
ld.global.f32 %f1, [%rd2]; ld.global.f32 %f2, [%rd3]; mul.rn.f32 %f1, %f1, %f0; add.rn.f32 %f2, %f2, %f1;
st.global.f32 [%rd3], %f2;
done:
ret;
}
.visible .entry count() { red.global.add.u32 [TOTAL], 1; ret; }
.visible .entry meet()
{
.reg .b32 %r<2>;
.loc 1 7 5
mov.u32 %r0, %tid.x; st.shared.u32 [cell], %r0;
ret;
}
"""
SOURCE = "\n\nlet i = in_grid();\ny[i] += a * x[i];\n\n\nCELL.set(me());\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with src/lib.rs, and tests/app.fatbin."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.rs").write_text(SOURCE)
    (tmp_path / "tests").mkdir()
    image = pack_fatbin([CodegenResult(parse_arch_list("compute_90")[0], PTX.encode(), None, "")])
    (tmp_path / "tests" / "app.fatbin").write_bytes(image)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run_tests(project: Path, text: str) -> subprocess.CompletedProcess[str]:
    (project / "tests" / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def test_the_example_of_the_document_passes(project: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    tests = [example for example in examples if "rgkernels" in example]
    assert len(tests) == 1
    done = run_tests(project, tests[0])
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_python_example_of_the_document_runs(project: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    plain = [example for example in examples if "rgkernels" not in example]
    assert len(plain) == 1
    done = subprocess.run(
        [sys.executable, "-c", plain[0]], cwd=project / "tests", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[1. 3. 5. 7.]\n"


def test_every_call_loads_afresh(project: Path) -> None:
    done = run_tests(
        project,
        """
import numpy as np

def total(program):
    return program.variables["TOTAL"].read(np.uint32)[0]

def test_one(rgkernels):
    first, second = rgkernels("app.fatbin"), rgkernels("app.fatbin")
    first["count"][2, 32]()
    assert (total(first), total(second)) == (64, 0)

def test_two(rgkernels):
    assert total(rgkernels("app.fatbin")) == 0
""",
    )
    assert done.returncode == 0, done.stdout


def test_a_race_fails_the_test_with_both_places_quoted(project: Path) -> None:
    done = run_tests(project, 'def test_meet(rgkernels):\n    rgkernels("app.fatbin")["meet"][1, 64]()\n')
    assert done.returncode == 1
    section = done.stdout.split("- rglink -")[1].split("\n", 1)[1]
    assert section.startswith(
        "rglink: error: kernel meet: data race on shared cell+0: write and write by threads of the same block"
        " are not ordered [race]\n>>> src/lib.rs:7: write of 4 bytes by thread (0, 0, 0) of block (0, 0, 0)"
    )
    assert section.count(">>>     7 | CELL.set(me());\n") == 2


def test_checks_can_be_chosen(project: Path) -> None:
    done = run_tests(
        project,
        """
from rglink.emulate.checks import Checks

def test_meet(rgkernels):
    rgkernels("app.fatbin", checks=Checks(frozenset({"out-of-bounds"})))["meet"][1, 64]()
""",
    )
    assert done.returncode == 0, done.stdout


def test_a_missing_file_is_one_line(project: Path) -> None:
    done = run_tests(project, 'def test_it(rgkernels):\n    rgkernels("none.fatbin")\n')
    assert done.returncode == 1
    assert f"rgkernels: no file none.fatbin in {project}/tests, {project}\n" in done.stdout
    assert "Traceback" not in done.stdout


def test_tests_without_kernels_import_nothing_heavy(project: Path) -> None:
    done = run_tests(
        project,
        'import sys\ndef test_it():\n    assert not {"numpy", "rglink.emulate", "llvmlite"} & set(sys.modules)\n',
    )
    assert done.returncode == 0, done.stdout

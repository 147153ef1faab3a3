"""pytest plugin: the fixture `rgkernels`, and reports of kernels in pytest's own.

def test_saxpy(rgkernels):
    saxpy = rgkernels("app.fatbin")["saxpy"]
    saxpy[4, 256](x, y, 3.0)

pytest finds the plugin by itself where rglink is installed. It imports the PTX machine only when a test asks for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from rglink.emulate.checked import CheckedProgram
    from rglink.emulate.checks import Checks
    from rglink.emulate.ptx import Program

Kernels: TypeAlias = "Callable[..., CheckedProgram]"


@pytest.fixture(scope="session")
def _rglink_programs() -> dict[tuple[str, int, int, str], Program]:
    """Programs that were read in this session, by path, time, size and architecture."""
    return {}


@pytest.fixture
def rgkernels(request: pytest.FixtureRequest, _rglink_programs: dict[tuple[str, int, int, str], Program]) -> Kernels:
    """`rgkernels(path, arch="", checks=Checks())`: the program of a fat binary or PTX file, loaded afresh.

    A relative path is looked for beside the test, then below pytest's root folder, then here. A file is read once in a
    session; every call gives a program whose variables have their first values. Its launches are checked.
    """

    def load_program(path: str | os.PathLike[str], arch: str = "", checks: Checks | None = None) -> CheckedProgram:
        from rglink.emulate.checked import CheckedProgram
        from rglink.emulate.checks import Checks
        from rglink.emulate.loader import read_ptx

        found = _find(Path(path), (request.path.parent, request.config.rootpath, Path()))
        status = found.stat()
        key = (str(found), status.st_mtime_ns, status.st_size, arch)
        if key not in _rglink_programs:
            _rglink_programs[key] = read_ptx(found.read_bytes(), found.name, arch)
        return CheckedProgram(_rglink_programs[key], checks or Checks())

    return load_program


def _find(path: Path, folders: tuple[Path, ...]) -> Path:
    for folder in folders:
        if (folder / path).is_file():
            return (folder / path).resolve()
    looked = ", ".join(dict.fromkeys(str(folder.resolve()) for folder in folders))
    pytest.fail(f"rgkernels: no file {path} in {looked}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the machine said to the report of a test that it failed: places, and their source lines."""
    report = yield
    # Nobody can have raised one of its errors before somebody imported it.
    if call.excinfo is not None and "rglink.emulate" in sys.modules:
        text = _explanation(call.excinfo.value, (item.path.parent, item.config.rootpath, Path()))
        if text:
            report.sections.append(("rglink", text))
    return report


def _explanation(error: BaseException, folders: tuple[Path, ...]) -> str:
    from rglink.diagnostics import RglinkError
    from rglink.emulate.explain import explained, output_of

    if not isinstance(error, RglinkError):
        return ""
    output = output_of(error)
    printed = f"\nthe kernel had printed:\n{output}" if output else ""
    return explained(error, folders, "rglink", "Checks(seed={seed})") + printed

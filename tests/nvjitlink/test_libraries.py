"""What is said of libraries that are missing or too old."""

from __future__ import annotations

import importlib
import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest

from rglink.diagnostics import ToolError
from rglink.nvjitlink import libraries

_PROGRAM = """
from rglink.diagnostics import ToolError
from rglink.nvjitlink.libraries import load
for name in ("nvjitlink", "nvvm", "nvfatbin"):
    try:
        load(name)
    except ToolError as error:
        print(error.exit_code, error.diagnostic.slug, str(error).split(":")[0], error.diagnostic.cure)
"""


def _environment(folder: Path, *packages: str) -> Path:
    """A virtual environment with these packages of ours and none of NVIDIA's; returns its Python."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in packages:
        origin = importlib.import_module(package)
        (site / package).symlink_to(Path(next(iter(origin.__path__))))
    return folder / "bin" / "python"


def test_a_missing_library_says_what_to_install(tmp_path: Path) -> None:
    python = _environment(tmp_path, "rglink", "cuda")
    done = subprocess.run(
        [python, "-c", _PROGRAM], capture_output=True, text=True, check=True, env={"PATH": ""}, timeout=60
    )
    if not done.stdout:
        pytest.skip("a CUDA toolkit is installed: no library is missing")
    for line in done.stdout.splitlines():
        name = line.split()[2]
        assert line == f"3 missing-library {name} pip install cuda-python '{name}>=13.5'"


def test_missing_bindings_say_what_to_install(tmp_path: Path) -> None:
    python = _environment(tmp_path, "rglink")
    done = subprocess.run([python, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[0].startswith("3 missing-library cuda.bindings.nvjitlink pip install cuda-python")


def test_an_older_library_names_its_version_and_the_other_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(libraries._loaded, "nvjitlink", SimpleNamespace(version=lambda: (13, 4)))
    with pytest.raises(ToolError) as caught:
        libraries.require_latest_ir("nvjitlink", option_refused=False)
    said = caught.value.diagnostic
    assert said.message == ("nvidia-nvjitlink: version 13.4 cannot read LLVM 22 IR for every architecture, wanted 13.5")
    assert said.cure == "pip install 'nvidia-nvjitlink>=13.5', or link with --codegen=llvm"


def test_the_installed_libraries_are_new_enough() -> None:
    libraries.require_latest_ir("nvjitlink", option_refused=False)
    assert sys.modules["cuda.bindings.nvjitlink"]

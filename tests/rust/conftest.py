"""A real rustc with its library sources, and rgcc run on small crates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rglink.diagnostics import ToolError
from rglink.frontend.rgcc import main
from rglink.frontend.rustc import Rustc, find_rustc
from rglink.frontend.sysroot import Sysroot, device_sysroot
from rglink.ir import LLVM_MAJOR

Rgcc = Callable[..., int]


@pytest.fixture(scope="session")
def rustc() -> Rustc:
    """The rustc that rgcc would use."""
    try:
        return find_rustc(LLVM_MAJOR)
    except ToolError as error:
        pytest.skip(error.diagnostic.render())


@pytest.fixture(scope="session")
def sysroot(rustc: Rustc) -> Sysroot:
    """core, compiler_builtins and alloc in the user's cache: one build for every run of the tests."""
    return device_sysroot(rustc, "tests")


@pytest.fixture
def rgcc(sysroot: Sysroot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rgcc:
    """`rgcc("-c", "k.rs", "-o", "k.rgo", sources={"k.rs": "..."}, folder="a")`: the exit code.

    Sources are written into the folder, which is a new one of this test, and rgcc runs there.
    """
    monkeypatch.delenv("CARGO_PKG_VERSION", raising=False)

    def run(*arguments: str, folder: str = ".", sources: dict[str, str] | None = None) -> int:
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        for name, text in (sources or {}).items():
            (place / name).write_text(text)
        with monkeypatch.context() as patch:
            patch.chdir(place)
            return main(list(arguments))

    return run

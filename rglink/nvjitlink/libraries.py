"""Loading NVIDIA's libraries: each once, late, with an error that says what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

from rglink.diagnostics import ToolError

LibraryName = Literal["nvjitlink", "nvvm", "nvfatbin"]
# First toolkit whose libNVVM and nvJitLink read LLVM 22's IR for every architecture (`-nvvm-latest`).
LATEST_IR_TOOLKIT = (13, 5)

_PACKAGES: dict[LibraryName, str] = {
    "nvjitlink": "nvidia-nvjitlink",
    "nvvm": "nvidia-nvvm",
    "nvfatbin": "nvidia-nvfatbin",
}
_loaded: dict[LibraryName, Any] = {}


def load(name: LibraryName) -> Any:
    """The `cuda.bindings` module of a library, the library itself opened.

    Raises:
        ToolError: the bindings or the library are missing or cannot be opened.
    """
    if name not in _loaded:
        cure = f"pip install cuda-python '{_PACKAGES[name]}>=13.5'"
        try:
            module = import_module(f"cuda.bindings.{name}")
            module.version()
        except ImportError as error:
            raise ToolError(f"cuda.bindings.{name}: {error}", slug="missing-library", cure=cure) from None
        except (RuntimeError, OSError) as error:  # DynamicLibNotFoundError is a RuntimeError
            first = str(error).strip().splitlines()[0]
            raise ToolError(
                f"{_PACKAGES[name]}: cannot be opened: {first}", slug="missing-library", cure=cure
            ) from None
        _loaded[name] = module
    return _loaded[name]


def require_latest_ir(name: LibraryName, option_refused: bool) -> None:
    """Refuse a library that is too old for `-nvvm-latest`.

    libNVVM tells only its interface's version, so a refused option counts there; nvJitLink tells the toolkit's.

    Raises:
        ToolError: naming the version found.
    """
    known = tuple(load(name).version()) if name == "nvjitlink" else None
    if not option_refused and (known is None or known >= LATEST_IR_TOOLKIT):
        return
    found = ".".join(str(part) for part in known) if known else package_version(name)
    raise ToolError(
        f"{_PACKAGES[name]}: version {found} cannot read LLVM 22 IR for every architecture, wanted 13.5",
        slug="old-library",
        cure=f"pip install '{_PACKAGES[name]}>=13.5', or link with --codegen=llvm",
    )


def package_version(name: LibraryName) -> str:
    """The version of the Python package that brings the library, "unknown" without one."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(_PACKAGES[name])
    except PackageNotFoundError:
        return "unknown"


def no_nul(data: bytes) -> bytes:
    """Text as a C library gives it, without the NUL that ends it."""
    return data.rstrip(b"\0")

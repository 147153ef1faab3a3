"""`rglink doctor`: what a link needs, what of it is there, and the command that brings the rest."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from rglink import __version__
from rglink.diagnostics import EXIT_DONE, EXIT_TOOL, RglinkError, UsageError

Verdict = Literal["ok", "missing", "note"]


@dataclass(frozen=True)
class Finding:
    """One line of the report; only what is missing keeps a link from working."""

    verdict: Verdict
    text: str
    cure: str = ""


def main(argv: list[str]) -> int:
    """Print the report; exit code 0 only if a link would work."""
    try:
        if argv:
            raise UsageError(f"doctor: {argv[0]}: no argument is wanted")
        findings = list(examine())
    except RglinkError as error:
        print(error.diagnostic.render(), file=sys.stderr)
        return error.exit_code
    for finding in findings:
        print(f"{finding.verdict:<8} {finding.text}")
        if finding.cure:
            print(f"{'':<8} {finding.cure}")
    return EXIT_TOOL if any(finding.verdict == "missing" for finding in findings) else EXIT_DONE


def examine() -> Iterator[Finding]:
    """Everything that a link or a compilation needs, in the order of use."""
    yield Finding(
        "ok", f"rglink {__version__}, Python {platform.python_version()}, {sys.platform} {platform.machine()}"
    )
    yield from _rustcs()
    yield _guarded("llvmlite", _llvm)
    for name in ("nvvm", "nvjitlink", "nvfatbin"):
        yield _guarded(name, lambda name=name: _library(name))  # type: ignore[misc]
    yield _cache()
    yield _gpus()


def _guarded(name: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except RglinkError as error:
        said = error.diagnostic
        return Finding("missing", said.message, said.cure or "")
    except ImportError as error:
        return Finding("missing", f"{name}: {error}", "pip install --force-reinstall rglink")


def _rustcs() -> Iterator[Finding]:
    """The rustc that would be taken, and those before it with what they lack."""
    from rglink.frontend.rustc import candidates, find_rustc
    from rglink.ir import LLVM_MAJOR

    for candidate in candidates(LLVM_MAJOR):
        if candidate.rustc is not None:
            found = candidate.rustc
            yield Finding("ok", f"rustc {found.version}, LLVM {found.llvm_version} ({found.path}, {candidate.origin})")
            yield Finding("ok", f"library sources ({found.library.resolve()})")
            return
        yield Finding("note", f"not used: {candidate.path} ({candidate.origin}): {candidate.problem}")
    yield _guarded("rustc", lambda: Finding("ok", str(find_rustc(LLVM_MAJOR).path)))


def _llvm() -> Finding:
    from rglink import ir

    version, llvm = ir.versions()
    return Finding("ok", f"llvmlite {version}, LLVM {llvm}")


def _library(name: Literal["nvvm", "nvjitlink", "nvfatbin"]) -> Finding:
    from rglink.nvjitlink.libraries import LATEST_IR_TOOLKIT, load, package_version

    load(name)
    version = package_version(name)
    wanted = ".".join(map(str, LATEST_IR_TOOLKIT))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < LATEST_IR_TOOLKIT:
        cure = f"pip install 'nvidia-{name}>={wanted}' (--codegen=llvm works without)"
        return Finding("note", f"nvidia-{name} {version}, wanted {wanted} for --codegen=nvvm", cure)
    return Finding("ok", f"nvidia-{name} {version}")


def _cache() -> Finding:
    from rglink.cache import cache_root

    return _guarded("cache", lambda: Finding("ok", f"cache folder {cache_root()}"))


def _gpus() -> Finding:
    from rglink.nvjitlink.native import native_arches

    names = ", ".join(arch.sm for arch in native_arches())
    return Finding(
        "note", f"GPUs: {names}" if names else "no GPU here: none is needed to link, --arch native needs one"
    )

"""Finding a rustc that can compile for the device.

It must come with the sources of its own library (core and alloc are compiled from them for nvptx64) and must
not write bitcode newer than the LLVM we read it with.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rglink.cache import cache_root
from rglink.diagnostics import ToolError

# The last rustc of each LLVM major; nightly 2026-08-06 was the first with LLVM 23.
_LAST_RUSTC = {22: ("1.98", "nightly-2026-08-05")}
# Looked into even where PATH lacks them, as under cron or a bare environment.
SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin")
_LIBRARY = Path("lib/rustlib/src/rust/library")


@dataclass(frozen=True)
class Rustc:
    """A compiler that was looked at.

    `path` is the program, `version` its release ("1.96.0", "1.97.0-nightly"), `llvm_version` "22.1.8", `verbose`
    the whole text of `rustc -vV`, `library` the folder of its library sources.
    """

    path: Path
    version: str
    llvm_version: str
    verbose: str
    host: str
    sysroot: Path
    library: Path

    @property
    def llvm_major(self) -> int:
        return int(self.llvm_version.split(".")[0])

    @property
    def commit(self) -> str:
        """The commit hash, or the release when rustc does not know it."""
        found = re.search(r"^commit-hash: ([0-9a-f]{40})$", self.verbose, re.MULTILINE)
        return found.group(1) if found else self.version

    @property
    def env(self) -> dict[str, str]:
        """The environment to run it in; unstable flags have to be asked for where it is no nightly."""
        env = dict(os.environ)
        env.pop("RUSTC_BOOTSTRAP", None)
        if not self.version.endswith(("-nightly", "-dev")):
            env["RUSTC_BOOTSTRAP"] = "1"
        return env


@dataclass(frozen=True)
class Candidate:
    """A place where a rustc was looked for: `rustc` when it is usable, else `problem` and maybe its `cure`."""

    path: Path
    origin: str
    rustc: Rustc | None
    problem: str = ""
    cure: str = ""


def find_rustc(llvm_major: int) -> Rustc:
    """The rustc to use: `RGLINK_RUSTC`, else the first usable of rustup's toolchains, else of PATH.

    `llvm_major` is the newest LLVM whose bitcode can be read.

    Raises:
        ToolError: none is usable; every one that was looked at is named with what it lacks.
    """
    seen: list[Candidate] = []
    for candidate in candidates(llvm_major):
        if candidate.rustc is not None:
            return candidate.rustc
        seen.append(candidate)
    wanted = next((each for each in seen if each.origin == "RGLINK_RUSTC"), None)
    if wanted is not None:
        raise ToolError(f"RGLINK_RUSTC: {wanted.path}: {wanted.problem}", slug="no-rustc", cure=wanted.cure or None)
    places = [f"{each.path} ({each.origin}): {each.problem}" for each in seen]
    raise ToolError(
        "no usable rustc: wanted one with its library sources and LLVM up to " + str(llvm_major),
        *(places or ["neither a rustup toolchain nor a rustc on PATH"]),
        slug="no-rustc",
        cure=next((each.cure for each in seen if each.cure), _how_to_install(llvm_major)),
    )


def candidates(llvm_major: int) -> Iterator[Candidate]:
    """Every rustc in the order of preference, looked at when it is asked for.

    With `RGLINK_RUSTC` set, that one alone.
    """
    named = os.environ.get("RGLINK_RUSTC")
    if named:
        yield examine(Path(named).absolute(), "RGLINK_RUSTC", llvm_major)
        return
    for toolchain in _rustup_toolchains():
        yield examine(toolchain / "bin" / "rustc", f"rustup toolchain {toolchain.name}", llvm_major)
    for path in _rustcs_on_path():
        yield examine(path, "on PATH", llvm_major)


def examine(path: Path, origin: str, llvm_major: int) -> Candidate:
    """Look at one rustc; never raises for what is wrong with it."""
    problem = _not_runnable(path)
    if problem:
        return Candidate(path, origin, None, problem, "set RGLINK_RUSTC to a rustc")
    try:
        verbose, sysroot = _ask(path)
    except ToolError as error:
        return Candidate(path, origin, None, error.diagnostic.message)
    fields = dict(re.findall(r"^([\w -]+): (.*)$", verbose, re.MULTILINE))
    if "release" not in fields or not re.match(r"\d+\.\d+", fields.get("LLVM version", "")):
        return Candidate(path, origin, None, "it does not answer `rustc -vV` as rustc with LLVM does")
    rustc = Rustc(
        path=path,
        version=fields["release"],
        llvm_version=fields["LLVM version"],
        verbose=verbose,
        host=fields.get("host", ""),
        sysroot=sysroot,
        library=sysroot / _LIBRARY,
    )
    problem, cure = _newer_llvm(rustc, llvm_major)
    if not problem:
        problem, cure = _library_problem(rustc, origin)
    if problem:
        return Candidate(path, origin, None, problem, cure)
    return Candidate(path, origin, rustc)


def _not_runnable(path: Path) -> str:
    if not path.is_file():
        return "no such program"
    return "" if os.access(path, os.X_OK) else "not executable"


def _newer_llvm(rustc: Rustc, llvm_major: int) -> tuple[str, str]:
    """Bitcode is readable by newer LLVMs only."""
    if rustc.llvm_major <= llvm_major:
        return "", ""
    problem = f"rustc {rustc.version} has LLVM {rustc.llvm_version}, rglink reads bitcode up to LLVM {llvm_major}"
    if llvm_major not in _LAST_RUSTC:
        return problem, f"use a rustc with LLVM {llvm_major}, or an rglink with LLVM {rustc.llvm_major}"
    stable, nightly = _LAST_RUSTC[llvm_major]
    return f"{problem}; the last rustc that fits is {stable} or {nightly}", _rustup_install(nightly)


def _library_problem(rustc: Rustc, origin: str) -> tuple[str, str]:
    cure = _how_to_install(rustc.llvm_major)
    if origin.startswith("rustup toolchain "):
        cure = f"rustup component add rust-src --toolchain {origin.rsplit(' ', 1)[1]}"
    elif rustc.sysroot == Path("/usr"):
        cure = "apt install rust-web-src (for rustc-web) or rust-src (for rustc)"
    if not (rustc.library / "core/src/lib.rs").is_file():
        return f"rustc {rustc.version} has no library sources ({rustc.library})", cure
    sources = _library_version(rustc.library)
    if sources is not None and sources != rustc.version.split("-")[0]:
        return f"rustc {rustc.version} comes with library sources of {sources} ({rustc.library.resolve()})", cure
    if not (rustc.library / "compiler-builtins/compiler-builtins/src/lib.rs").is_file():
        return f"rustc {rustc.version} is too old: its library has no compiler-builtins", cure
    return "", ""


def _library_version(library: Path) -> str | None:
    """The version of library sources where it is known; rustup's rust-src does not say, nor can it differ."""
    version_file = library.resolve().parent / "src" / "version"
    if version_file.is_file():
        return version_file.read_text().strip()
    found = re.search(r"/rustc-(\d+\.\d+\.\d+)", str(library.resolve()))
    return found.group(1) if found else None


def _how_to_install(llvm_major: int) -> str:
    debian = "apt install rustc-web rust-web-src"
    if llvm_major in _LAST_RUSTC:
        return f"{_rustup_install(_LAST_RUSTC[llvm_major][1])} (or on Debian: {debian})"
    return f"rustup toolchain install nightly --component rust-src (or on Debian: {debian})"


def _rustup_install(toolchain: str) -> str:
    return f"rustup toolchain install {toolchain} --component rust-src"


def _rustup_toolchains() -> list[Path]:
    """The one that `RUSTUP_TOOLCHAIN` names, nightly, dated nightlies from the newest on, then the others."""
    home = Path(os.environ.get("RUSTUP_HOME") or Path("~/.rustup").expanduser())
    try:
        found = [each for each in (home / "toolchains").iterdir() if (each / "bin/rustc").exists()]
    except OSError:
        return []
    chosen = os.environ.get("RUSTUP_TOOLCHAIN", "")

    def rank(toolchain: Path) -> tuple[int, str]:
        name = toolchain.name
        if chosen and (name == chosen or name.startswith(f"{chosen}-")):
            return 0, name
        if re.match(r"nightly-\d", name):
            # Digits complemented, so that the newest date sorts first.
            return 2, name.translate(str.maketrans("0123456789", "9876543210"))
        return (1 if name.startswith("nightly") else 3), name

    return sorted(found, key=rank)


def _rustcs_on_path() -> list[Path]:
    """Every rustc on PATH but rustup's proxies, whose toolchains were looked at already."""
    found: list[Path] = []
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *SYSTEM_FOLDERS]
    for folder in folders:
        path = Path(folder or ".").absolute() / "rustc"
        if not os.access(path, os.X_OK) or path.resolve().name.startswith("rustup"):
            continue
        if not any(path.samefile(other) for other in found):
            found.append(path)
    return found


def _ask(path: Path) -> tuple[str, Path]:
    """`rustc -vV` and its sysroot, remembered by path, size and time of change (70 ms for the two calls).

    Raises:
        ToolError: it does not answer.
    """
    status = path.stat()
    text = f"1\0{path}\0{path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}"
    memory = cache_root() / "rustc" / (hashlib.sha256(text.encode()).hexdigest()[:32] + ".json")
    try:
        verbose, sysroot = json.loads(memory.read_text())
        return str(verbose), Path(sysroot)
    except (OSError, ValueError):
        pass
    verbose = _output(path, "-vV")
    sysroot = _output(path, "--print", "sysroot").strip()
    memory.parent.mkdir(mode=0o700, exist_ok=True)
    partial = memory.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps([verbose, sysroot]))
    partial.replace(memory)
    return verbose, Path(sysroot)


def _output(path: Path, *arguments: str) -> str:
    command = " ".join([str(path), *arguments])
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"`{command}` failed: {error}") from None
    if done.returncode != 0:
        raise ToolError(f"`{command}` failed with exit code {done.returncode}: {done.stderr.strip()[:200]}")
    return done.stdout

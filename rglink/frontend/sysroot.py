"""The device sysroot: core, compiler_builtins and alloc, compiled for nvptx64 once per rustc.

They keep the form that rustc's optimizer gave them: they hold no barrier and no shared memory.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rglink.cache import cache_root
from rglink.diagnostics import ToolError

if TYPE_CHECKING:  # a link that finds its sysroot in the cache needs no rustc
    from rglink.frontend.rustc import Rustc

TARGET = "nvptx64-nvidia-cuda"
# rustc itself would take sm_30, which NVIDIA's tools refuse today; this is the lowest they still know.
LOWEST_CPU = "sm_75"

_FLAGS = (
    "--crate-type=lib",
    "--edition=2024",
    "--cap-lints=allow",
    "-Copt-level=3",
    "-Cpanic=abort",
    "-Ccodegen-units=128",
    "-Cdebuginfo=0",
    f"-Ctarget-cpu={LOWEST_CPU}",
    "-Zforce-unstable-if-unmarked",
)
# As library/compiler-builtins' build script would set them for this target, with `mem`: nobody else has memcpy.
_BUILTINS_CFGS = (
    'feature="compiler-builtins"',
    'feature="mem"',
    'feature="unstable-intrinsics"',
    "intrinsics_enabled",
    "arch_enabled",
    "optimizations_enabled",
    "f16_enabled",
)
_BUILTINS_ENV = {"CFG_CARGO_FEATURES": "", "CFG_OPT_LEVEL": "3", "CFG_TARGET_FEATURES": ""}
# Crate, its source below the library folder, the crates it needs.
_CRATES = (
    ("core", "core/src/lib.rs", ()),
    ("compiler_builtins", "compiler-builtins/compiler-builtins/src/lib.rs", ("core",)),
    ("alloc", "alloc/src/lib.rs", ("core", "compiler_builtins")),
)
_LIB = Path("lib/rustlib") / TARGET / "lib"
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Sysroot:
    """`directory` is what rustc takes as `--sysroot`; the others are the rlibs in it. `key` names the content."""

    directory: Path
    core: Path
    alloc: Path
    compiler_builtins: Path
    key: str

    @property
    def rlibs(self) -> tuple[Path, Path, Path]:
        return self.alloc, self.compiler_builtins, self.core


def device_sysroot(rustc: Rustc, program: str = "rglink") -> Sysroot:
    """The sysroot of `rustc`, from the cache or built there (about 20 s; a line on stderr says so).

    `program` begins that line. Two callers at once build once. An entry whose files changed is built again.

    Raises:
        ToolError: a crate does not compile; the message holds rustc's words and the command.
    """
    key = sysroot_key(rustc)
    directory = cache_root() / "sysroot" / key
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    if not _is_intact(directory):
        with _locked(directory.with_name(f"{key}.lock")):
            # Another run may have built it while this one waited.
            if not _is_intact(directory):
                _build(rustc, directory, program)
    return _sysroot(directory)


def _sysroot(directory: Path) -> Sysroot:
    rlibs = {name: directory / _LIB / f"lib{name}.rlib" for name, _, _ in _CRATES}
    return Sysroot(directory, key=directory.name, **rlibs)


def cached_sysroot(key: str) -> Sysroot | None:
    """The sysroot of this key when it is in the cache, whichever rustc made it.

    Raises:
        ToolError: the cache folder is unusable.
    """
    directory = cache_root() / "sysroot" / key
    if not re.fullmatch(r"[0-9a-f]{32}", key) or not _is_intact(directory):
        return None
    return _sysroot(directory)


def sysroot_key(rustc: Rustc) -> str:
    """32 hex digits that say which compiler and flags made the sysroot."""
    parts = (
        library_prefix(rustc),
        rustc.verbose,
        *_FLAGS,
        *_BUILTINS_CFGS,
        *(f"{k}={v}" for k, v in _BUILTINS_ENV.items()),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def library_prefix(rustc: Rustc) -> str:
    """What stands for the folder of the library sources in crates: the name that official builds use."""
    return f"/rustc/{rustc.commit}/library"


def _build(rustc: Rustc, directory: Path, program: str) -> None:
    started = time.monotonic()
    print(
        f"{program}: building core, compiler_builtins and alloc for {TARGET} with rustc {rustc.version} "
        "(once, about 20 s)",
        file=sys.stderr,
        flush=True,
    )
    partial = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
    try:
        (partial / _LIB).mkdir(parents=True)
        for name, source, needs in _CRATES:
            _compile(rustc, partial, name, source, needs)
        _write_manifest(partial)
        if directory.exists():
            # What is there is damaged. Moved first: a reader sees the old, none, or the new one.
            shutil.rmtree(directory.rename(partial / "old"), ignore_errors=True)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"{program}: built in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def _compile(rustc: Rustc, root: Path, name: str, source: str, needs: tuple[str, ...]) -> None:
    out = root / _LIB
    command = [str(rustc.path), f"--crate-name={name}", source, f"--target={TARGET}", *_FLAGS]
    command += [f"-Cmetadata=rglink-{name}", f"--sysroot={root}", f"--out-dir={out}", "-L", str(out)]
    command += [f"--extern={each}={out}/lib{each}.rlib" for each in needs]
    # rustc sees its folder with links resolved.
    library = rustc.library.resolve()
    command += [f"--remap-path-prefix={library}={library_prefix(rustc)}"]
    env = rustc.env
    if name == "compiler_builtins":
        command += [f"--cfg={cfg}" for cfg in _BUILTINS_CFGS]
        env |= _BUILTINS_ENV
    done = subprocess.run(command, cwd=library, env=env, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise ToolError(
            f"rustc {rustc.version} cannot compile its own {name} for {TARGET}",
            *done.stderr.strip().splitlines()[-20:],
            f"in {library}: {shlex.join(command)}",
            slug="sysroot-failed",
            cure="check that the library sources and rustc are of one version, or set RGLINK_RUSTC to another rustc",
        )


def _write_manifest(root: Path) -> None:
    entries = {}
    for name, _, _ in _CRATES:
        path = root / _LIB / f"lib{name}.rlib"
        status = path.stat()
        entries[path.name] = [status.st_size, status.st_mtime_ns, _sha256(path)]
    (root / _MANIFEST).write_text(json.dumps(entries, indent=1, sort_keys=True))


def _is_intact(root: Path) -> bool:
    """Whether every rlib is the one that was built: by size and time, else by content (0.1 s)."""
    try:
        entries = json.loads((root / _MANIFEST).read_text())
        for name, _, _ in _CRATES:
            path = root / _LIB / f"lib{name}.rlib"
            size, changed, digest = entries[path.name]
            status = path.stat()
            if (status.st_size, status.st_mtime_ns) != (size, changed) and _sha256(path) != digest:
                return False
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file; the system lets go of it when this program ends, however it ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

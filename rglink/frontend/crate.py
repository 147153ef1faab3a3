"""Compiling one crate: rustc to bitcode, the device ABI's steps, our optimizer, the `.rgo`."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rglink import __version__
from rglink.arch import Arch
from rglink.diagnostics import Diagnostic, Diagnostics, InputError, ToolError
from rglink.frontend.rustc import Rustc, find_rustc
from rglink.frontend.sysroot import TARGET, Sysroot, device_sysroot
from rglink.ir import LLVM_MAJOR, Module
from rglink.lto.device_abi import prepare_crate
from rglink.lto.summary import summarize
from rglink.objfmt.rgo import Rgo, RgoReader, read_rgo, write_rgo
from rglink.objfmt.rgo_payload import CrateMetadata, Producer
from rglink.worker import run_supervised

OptLevel = Literal["0", "1", "2", "3", "s"]
Debug = Literal["none", "lines", "full"]

# device-abi.md, "Protected and unprotected crates": rustc neither copies barriers nor splits shared statics, and
# `noredzone` marks every definition.
_PROTECTING = (
    "-Zmir-enable-passes=-JumpThreading",
    "-Cno-prepopulate-passes",
    "-Zcross-crate-inline-threshold=never",
    "-Ccodegen-units=1",
    "-Cno-redzone=yes",
)
_DEBUGINFO: dict[Debug, str] = {"none": "0", "lines": "line-tables-only", "full": "2"}
_COLLISION = re.compile(rb"found crates \(`\w+` and `(\w+)`\) with colliding StableCrateId|error\[E0519\]")


class RustcFailed(Exception):
    """rustc refused the crate and has said why."""


@dataclass(frozen=True)
class CrateOptions:
    """What rgcc was asked for; `externs` are (name, `.rgo`), `arch` the lowest architecture."""

    source: Path
    output: Path
    crate_name: str | None
    edition: str
    externs: tuple[tuple[str, Path], ...]
    cfgs: tuple[str, ...]
    opt_level: OptLevel
    debug: Debug
    arch: Arch
    metadata: str | None
    rustc_args: tuple[str, ...]


@dataclass(frozen=True)
class _Extern:
    """A crate to compile against: the name it is used by, its file, its metadata and that of all it depends on."""

    name: str
    path: Path
    closure: tuple[CrateMetadata, ...]

    @property
    def own(self) -> CrateMetadata:
        return self.closure[0]


def compile_crate(options: CrateOptions, diags: Diagnostics) -> bytes:
    """Compile the crate that `options` names; returns the bytes of its `.rgo`.

    Raises:
        RustcFailed: rustc found mistakes (they are on stderr).
        LinkFailed: the device ABI's steps found mistakes (they are in `diags`).
        InputError: a file is missing or damaged, or a crate comes from another rustc.
        ToolError: no rustc is usable, or rustc or LLVM broke down.
    """
    if not options.source.is_file():
        raise InputError(f"{options.source}: no such file", slug="no-such-file")
    rustc = find_rustc(LLVM_MAJOR)
    sysroot = device_sysroot(rustc, "rgcc")
    name = options.crate_name or _default_name(options, rustc)
    producer = _producer(options, rustc, sysroot, name)
    externs = [_load_extern(each, path, producer) for each, path in options.externs]
    with tempfile.TemporaryDirectory(prefix="rgcc-") as folder:
        bitcode, metadata = _run_rustc(options, rustc, sysroot, name, externs, Path(folder))
    digest = hashlib.sha256(metadata).hexdigest()[:32]
    own = CrateMetadata(name, digest, f"lib{name}-{digest}.rmeta", metadata)
    closure = _closure(own, externs)
    return run_supervised(
        f"{options.source}: LLVM", lambda: _lower(options, bitcode, producer, closure, diags), diags=diags
    )


def _lower(
    options: CrateOptions,
    bitcode: bytes,
    producer: Producer,
    closure: tuple[CrateMetadata, ...],
    diags: Diagnostics,
) -> bytes:
    """In a child: the device ABI's steps, then the optimizer; returns the `.rgo`."""
    module = Module.parse_bitcode(bitcode, str(options.source))
    prepare_crate(module, diags)
    diags.checkpoint()
    unoptimized = module.bitcode()
    # For `s` rustc has marked the functions; LLVM's level that goes with the mark is 2.
    module.optimize(2 if options.opt_level == "s" else int(options.opt_level), options.arch.sm)
    summary = summarize(module, protected=True)
    return write_rgo(Rgo(producer, module.bitcode(), unoptimized, summary, closure))


def _default_name(options: CrateOptions, rustc: Rustc) -> str:
    """The name of the source file, unless the crate says another itself."""
    if b"crate_name" in options.source.read_bytes():
        command = [str(rustc.path), f"--edition={options.edition}", "--print=crate-name", str(options.source)]
        done = subprocess.run(command, env=rustc.env, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    name = options.source.stem.replace("-", "_")
    if not re.fullmatch(r"[^\W\d]\w*", name):
        raise InputError(
            f"{options.source}: its name is no crate name, which is an identifier",
            slug="crate-name",
            cure="--crate-name",
        )
    return name


def _producer(options: CrateOptions, rustc: Rustc, sysroot: Sysroot, name: str) -> Producer:
    flags = [f"-Copt-level={options.opt_level}", f"-Cdebuginfo={_DEBUGINFO[options.debug]}"]
    flags += [f"-Ctarget-cpu={options.arch.sm}", *_PROTECTING, f"--edition={options.edition}"]
    flags += [f"--cfg={cfg}" for cfg in options.cfgs]
    flags += [*options.rustc_args, f"--sysroot={sysroot.key}"]
    version = rustc.verbose.splitlines()[0].removeprefix("rustc ")
    return Producer(version, rustc.llvm_version, __version__, tuple(flags), True, name)


def _sysroot_key(producer: Producer) -> str:
    return next((flag for flag in producer.flags if flag.startswith("--sysroot=")), "")


def _load_extern(name: str, path: Path, ours: Producer) -> _Extern:
    """Read the metadata of one `--extern`.

    Raises:
        InputError: the file is missing, damaged, or made by another rustc or against another sysroot.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read for --extern {name}: {error.strerror}", slug="no-such-file") from None
    reader: RgoReader = read_rgo(str(path), data)
    theirs = reader.producer()
    recompile = f"compile {theirs.crate_name} again with this rgcc"
    if theirs.rustc != ours.rustc:
        raise InputError(
            f"{path}: compiled by rustc {theirs.rustc}, this is rustc {ours.rustc}",
            slug="other-rustc",
            cure=recompile,
        )
    if _sysroot_key(theirs) != _sysroot_key(ours):
        raise InputError(
            f"{path}: compiled by rglink {theirs.rglink} against another core, this is rglink {ours.rglink}",
            slug="other-rustc",
            cure=recompile,
        )
    closure = reader.metadata()
    if not closure or closure[0].crate != theirs.crate_name:
        raise InputError(f"{path}: holds no Rust metadata, so no crate can be compiled against it")
    return _Extern(name, path, closure)


def _closure(own: CrateMetadata, externs: list[_Extern]) -> tuple[CrateMetadata, ...]:
    """The crate itself, then all it depends on, each once, sorted."""
    below = {entry.hash: entry for extern in externs for entry in extern.closure if entry.hash != own.hash}
    return own, *sorted(below.values(), key=lambda entry: (entry.crate, entry.hash))


def _run_rustc(
    options: CrateOptions, rustc: Rustc, sysroot: Sysroot, name: str, externs: list[_Extern], folder: Path
) -> tuple[bytes, bytes]:
    """rustc's bitcode and metadata for the crate."""
    out, dependencies = folder / "out", folder / "deps"
    out.mkdir()
    dependencies.mkdir()
    for extern in externs:
        for entry in extern.closure:
            (dependencies / entry.file_name).write_bytes(entry.data)
    command = [str(rustc.path), *_rustc_arguments(options, name), f"--sysroot={sysroot.directory}"]
    # Without files' names: they would count into the crate's hash.
    command += ["--emit=metadata,obj", f"--out-dir={out}", f"-Ldependency={dependencies}"]
    command += [f"--extern={extern.name}={dependencies / extern.own.file_name}" for extern in externs]
    command += _terminal_options(options.rustc_args)
    status, said = _pass_through(command, rustc.env)
    if status == 1:
        _explain(said, name, externs)
        raise RustcFailed
    if status != 0:
        raise ToolError(
            f"rustc {rustc.version} broke down ({f'signal {-status}' if status < 0 else f'exit code {status}'})"
            f" on {options.source}",
            slug="rustc-failed",
        )
    return (out / f"{name}.o").read_bytes(), (out / f"lib{name}.rmeta").read_bytes()


def _terminal_options(rustc_args: tuple[str, ...]) -> list[str]:
    """rustc writes into a pipe of ours; tell it what it would see without, unless the user says otherwise."""
    if not sys.stderr.isatty():
        return []
    # A terminal of unknown width says 0; 140 is what rustc takes then.
    width = os.get_terminal_size(sys.stderr.fileno()).columns or 140
    wanted = {"--color": "always", "--diagnostic-width": str(width)}
    given = {argument.split("=", 1)[0] for argument in rustc_args}
    return [f"{option}={value}" for option, value in wanted.items() if option not in given]


def _rustc_arguments(options: CrateOptions, name: str) -> list[str]:
    folder = os.getcwd()
    # The same words for a source wherever its folder lies.
    source = os.path.relpath(options.source, folder)
    metadata = options.metadata or default_metadata(name, source)
    arguments = [source, f"--crate-name={name}", "--crate-type=rlib", f"--edition={options.edition}"]
    arguments += [f"--target={TARGET}", f"-Ctarget-cpu={options.arch.sm}", "-Cpanic=abort"]
    arguments += [f"-Copt-level={options.opt_level}", f"-Cdebuginfo={_DEBUGINFO[options.debug]}"]
    arguments += [f"-Cmetadata={metadata}", f"--remap-path-prefix={folder}=."]
    arguments += [f"--cfg={cfg}" for cfg in options.cfgs]
    return [*arguments, *options.rustc_args, *_PROTECTING]


def default_metadata(name: str, source: str) -> str:
    """What tells crates of one name apart: name, cargo's version if set, and the source's path from here."""
    parts = (name, os.environ.get("CARGO_PKG_VERSION", ""), Path(source).as_posix())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _pass_through(command: list[str], env: dict[str, str]) -> tuple[int, bytes]:
    """Run rustc with its words going to our stderr as they come; returns its exit code and those words."""
    said = bytearray()
    try:
        with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
            assert running.stderr is not None
            while chunk := os.read(running.stderr.fileno(), 1 << 16):
                sys.stderr.buffer.write(chunk)
                sys.stderr.flush()
                said += chunk
    except OSError as error:
        raise ToolError(f"{command[0]}: cannot be run: {error.strerror}", slug="rustc-failed") from None
    return running.returncode, bytes(said)


def _explain(said: bytes, name: str, externs: list[_Extern]) -> None:
    """Add what rustc cannot know: which files hold the crates that it takes for one, and the cure."""
    found = _COLLISION.search(said)
    if found is None:
        return
    crate = (found[1] or name.encode()).decode()
    places = sorted(
        f"{crate} {entry.hash[:8]} in {extern.path}"
        for extern in externs
        for entry in extern.closure
        if entry.crate == crate
    )
    item = Diagnostic(
        "error",
        "same-crate-id",
        f"two crates named {crate} have one identity",
        tuple(places),
        "where they are two crates, compile one with another --metadata;"
        " where one is an older build, compile again what uses it",
    )
    print(item.render("rgcc"), file=sys.stderr)

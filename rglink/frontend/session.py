"""The two halves of a link as the command runs them: the program in a supervised child, the images from here.

While the child reads and optimizes, this process loads what code generation needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rglink.diagnostics import Diagnostics, ToolError
from rglink.frontend.outputs import OutputFile
from rglink.nvjitlink.job import Program
from rglink.options import Emit, LinkOptions
from rglink.trace import PhaseTime, Stopped, Trace
from rglink.worker import run_supervised

if TYPE_CHECKING:  # each half is imported by the process that runs it
    from rglink.images import Images

_FRAME = struct.Struct("<I")  # length of the JSON before the bytes
_IR_KINDS: tuple[Emit, ...] = ("ll", "bc")


@dataclass(frozen=True)
class Half:
    """What the child made. `ir` are outputs that hold IR, `printed` and `map_text` what reports tell of the program."""

    program: Program
    ir: dict[Emit, bytes]
    printed: str
    map_text: str
    times: tuple[PhaseTime, ...]
    stopped: str


def run_link(options: LinkOptions, diags: Diagnostics, trace: Trace) -> tuple[list[OutputFile], str]:
    """Link; returns the files to write and the text for stdout.

    Raises:
        LinkFailed: mistakes were found; they are in `diags`.
        InputError, UsageError, ToolError: as their docstrings say.
    """
    images_wanted = any(kind not in _IR_KINDS for kind in options.emit)
    half = _first_half(options, images_wanted, diags, trace)
    trace.times += half.times
    if half.stopped:
        return [], f"stopped after {half.stopped}\n"
    from rglink.frontend.image_reports import render_images_reports
    from rglink.images import Images, generate_images
    from rglink.nvjitlink.backends import LocalBackend

    images = Images((), b"")
    if {"fatbin", "cubin", "ptx"} & set(options.emit):
        images = generate_images(half.program, options, LocalBackend(), diags, trace)
    files = [
        OutputFile(_path_of(options, kind), _contents(half, images, options, kind), _lifted(options, kind))
        for kind in options.emit
    ]
    text, reports = render_images_reports(images, half.map_text, options, trace)
    return files + reports, half.printed + text


def _first_half(options: LinkOptions, images_wanted: bool, diags: Diagnostics, trace: Trace) -> Half:
    """Build the program in a child, and load here what makes images of it.

    Raises:
        ToolError: LLVM crashed or overran a budget; the message says on what.
    """
    terminal = os.dup(2)
    try:
        answer = run_supervised(
            "link",
            lambda: _build(options, terminal, diags, trace),
            diags=diags,
            meanwhile=(lambda: _load_second_half(options)) if images_wanted else None,
        )
    except ToolError as error:
        said = error.diagnostic
        if not said.message.startswith("link: "):
            raise
        message = said.message.replace("link:", f"{trace.last_note()}:", 1)
        raise ToolError(message, *said.places, slug=said.slug, cure=said.cure) from None
    finally:
        os.close(terminal)
    return _decode(answer)


def _load_second_half(options: LinkOptions) -> None:
    from rglink import images  # noqa: F401
    from rglink.nvjitlink.backends import LocalBackend

    LocalBackend().prepare(options.codegen)


def _build(options: LinkOptions, terminal: int, diags: Diagnostics, trace: Trace) -> bytes:
    """In the child: the program and all that its reports say, packed."""
    from rglink import ir
    from rglink.frontend.program_reports import render_map, render_program_reports
    from rglink.link import build_program

    ir.watchers.append(trace.note)
    empty = Program(b"", (), (), "none")
    try:
        built = build_program(options, lambda key: _sysroot_rlibs(key, terminal), diags, trace)
    except Stopped as stopped:
        return _encode(Half(empty, {}, "", "", tuple(trace.times), str(stopped)))
    contents: dict[Emit, bytes] = {}
    if "ll" in options.emit:
        contents["ll"] = built.module.text().encode("utf-8", "surrogateescape")
    if "bc" in options.emit:
        contents["bc"] = built.program.bitcode
    printed = render_program_reports(built, options, diags)
    map_text = render_map(built) if options.print_map else ""
    return _encode(Half(built.program, contents, printed, map_text, tuple(trace.times), ""))


def _sysroot_rlibs(key: str, terminal: int) -> list[str]:
    """core, alloc and compiler_builtins for the device, built when they are not there yet, which `terminal` is told.

    Raises:
        ToolError: crates were compiled against a sysroot that is gone and that this machine's rustc does not make.
    """
    from rglink.frontend.sysroot import cached_sysroot, device_sysroot, sysroot_key

    sysroot = cached_sysroot(key) if key else None
    if sysroot is None:
        from rglink.frontend.rustc import find_rustc
        from rglink.ir import LLVM_MAJOR

        rustc = find_rustc(LLVM_MAJOR)
        if key and sysroot_key(rustc) != key:
            raise ToolError(
                f"the core that the crates were compiled against is not there, and rustc {rustc.version} makes another",
                slug="no-sysroot",
                cure="compile the crates again, or set RGLINK_RUSTC to the rustc that compiled them",
            )
        with open(terminal, "w", closefd=False) as stream, contextlib.redirect_stderr(stream):
            sysroot = device_sysroot(rustc)
    return [str(path) for path in sysroot.rlibs]


def _encode(half: Half) -> bytes:
    program = half.program
    header = {
        "kernels": program.kernels,
        "variables": program.variables,
        "debug": program.debug,
        "printed": half.printed,
        "map": half.map_text,
        "times": [(time.name, time.start, time.seconds) for time in half.times],
        "stopped": half.stopped,
        "bitcode": len(program.bitcode),
        "ir": [(kind, len(data)) for kind, data in half.ir.items()],
    }
    encoded = json.dumps(header).encode()
    return b"".join([_FRAME.pack(len(encoded)), encoded, program.bitcode, *half.ir.values()])


def _decode(answer: bytes) -> Half:
    (length,) = _FRAME.unpack_from(answer)
    position = _FRAME.size + length
    header = json.loads(answer[_FRAME.size : position])
    bitcode = answer[position : position + header["bitcode"]]
    position += len(bitcode)
    contents: dict[Emit, bytes] = {}
    for kind, size in header["ir"]:
        contents[kind] = answer[position : position + size]
        position += size
    program = Program(bitcode, tuple(header["kernels"]), tuple(header["variables"]), header["debug"])
    times = tuple(PhaseTime(*time) for time in header["times"])
    return Half(program, contents, header["printed"], header["map"], times, header["stopped"])


def _path_of(options: LinkOptions, kind: Emit) -> str:
    """OUT for its own kind; others take OUT's name with their ending."""
    if options.output.endswith(f".{kind}") or len(options.emit) == 1:
        return options.output
    return str(Path(options.output).with_suffix(f".{kind}"))


def _lifted(options: LinkOptions, kind: Emit) -> str:
    """cargo lifts the file that rustc names out of its `deps` folder; we lift the others."""
    path = _path_of(options, kind)
    return lifted(Path(path)) if options.driven_by_rustc and path != options.output else ""


def lifted(path: Path) -> str:
    """The path one level up when cargo links into its `deps` folder, else ""."""
    return str(path.parent.parent / path.name) if path.parent.name == "deps" else ""


def _contents(half: Half, images: Images, options: LinkOptions, kind: Emit) -> bytes:
    if kind in _IR_KINDS:
        return half.ir[kind]
    if kind == "fatbin":
        return images.fatbin
    if kind == "ltoir":
        return _ltoir(half.program, options)
    from rglink.images import single_target

    target = single_target(options, kind)
    return next(result.image for result in images.results if result.target == target)


def _ltoir(program: Program, options: LinkOptions) -> bytes:
    """The program as LTO-IR for the lowest architecture asked for: what newer ones can still link."""
    from rglink.images import plan_codegen
    from rglink.nvjitlink.nvvm_route import make_ltoir

    (job,) = plan_codegen(program, replace(options, emit=("ptx",), codegen="nvvm", targets=options.targets[:1]))
    return run_supervised(f"{job.label}: libNVVM", lambda: make_ltoir(job))

"""What `rgrun` runs: the file, the kernel in it, and whether arguments fit its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rglink.demangle import demangle, path_of
from rglink.diagnostics import InputError, RglinkError, UsageError
from rglink.objfmt.input_file import InputKind, describe, open_any

if TYPE_CHECKING:
    from rglink.emulate.ptx import Function, Parameter, Program
    from rglink.emulate.specs import Prepared

# What the machine executes in a second, roughly: without checks, and with them.
PLAIN_RATE, CHECKED_RATE = 100e6, 30e6
LONGEST_RUN = 120.0
LINK_FIRST = frozenset((InputKind.RGO, InputKind.ARCHIVE, InputKind.BITCODE, InputKind.TEXTUAL_IR))


def read_program(path: str, arch: str) -> Program:
    """The PTX of a file.

    Raises:
        InputError: it cannot be read, or is neither PTX nor a fat binary with PTX for `arch` ("" for the newest).
    """
    from rglink.emulate.loader import read_ptx

    file = open_any(path)
    if file.kind in (InputKind.FATBIN, InputKind.PTX):
        return read_ptx(bytes(file.data), path, arch)
    cure = None
    if file.kind in LINK_FIRST:
        cure = f"link it first: rglink {path} -o app.fatbin --arch compute_75"
    elif file.kind in (InputKind.CUBIN, InputKind.HOST_OBJECT):
        cure = "machine code is not run: link with `--arch compute_75` as well and run the fat binary"
    raise InputError(f"{path}: is {describe(file)}, wanted a fat binary or PTX", slug="not-runnable", cure=cure)


def kernels_of(program: Program) -> tuple[str, ...]:
    """The symbols of the kernels, sorted."""
    return tuple(sorted(f.name for f in program.functions.values() if f.is_kernel and f.defined))


def find_kernel(program: Program, name: str | None) -> str:
    """The symbol of the kernel that a symbol, a Rust path or the end of one names.

    Raises:
        UsageError: none, or several.
    """
    from rglink.emulate.names import nearest_name, symbols_called

    known = kernels_of(program)
    if not known:
        raise InputError(f"{program.name}: holds no kernel", slug="no-kernel")
    if name is None:
        if len(known) == 1:
            return known[0]
        raise _kernel_error(program, "say which kernel to run with --kernel", known)
    found = symbols_called(name, known)
    if len(found) == 1:
        return found[0]
    if found:
        raise _kernel_error(program, f"several kernels are called {name}; choose by symbol", found)
    near = nearest_name(name, known)
    raise _kernel_error(program, f"no kernel {name}{f', did you mean {near}' if near else ''}", known)


def check_arguments(function: Function, prepared: Sequence[Prepared]) -> None:
    """Compare number and sizes of arguments with the parameters, before anything runs.

    Raises:
        UsageError: they differ; both are shown.
    """
    parameters = function.parameters
    message, cure = "", None
    if len(parameters) != len(prepared):
        count = f"{len(parameters)} argument{'' if len(parameters) == 1 else 's'}"
        were = "was" if len(prepared) == 1 else "were"
        message = f"kernel {path_of(function.name)} takes {count}, {len(prepared)} {were} given"
    for at, (parameter, argument) in enumerate(zip(parameters, prepared, strict=False)):
        if message or argument.size == parameter.size:
            continue
        message = (
            f"argument {at + 1} of kernel {path_of(function.name)} is {argument.type} ({_passed(argument)}),"
            f" the parameter has {_bytes(parameter.size)}"
        )
        if argument.array is not None and parameter.size == 16:
            cure = f"a Rust slice is pointer and length: --arg 'slice:{argument.spec.text}'"
        elif argument.spec.sliced and parameter.size == 8:
            cure = "a pointer is passed without `slice:`"
    if message:
        wanted = ", ".join(map(parameter_text, parameters)) or "none"
        given = ", ".join(argument.type for argument in prepared) or "none"
        raise _usage(message, f"parameters: {wanted}", f"arguments: {given}", slug="bad-arguments", cure=cure)


def check_length(function: Function, threads: int, runs: int, *, checked: bool) -> None:
    """Refuse what would run for minutes, by the instructions that the kernel's text has: loops and calls add to them.

    Raises:
        UsageError: with the estimate.
    """
    instructions = len(function.instructions)
    seconds = runs * threads * instructions / (CHECKED_RATE if checked else PLAIN_RATE)
    if seconds <= LONGEST_RUN:
        return
    times = f" {runs} times" if runs > 1 else ""
    raise _usage(
        f"kernel {path_of(function.name)}: {threads} threads with {instructions} instructions or more each{times}"
        f" would run for about {_duration(seconds)} or more",
        slug="long-run",
        cure="run fewer blocks, or allow it with --allow-long",
    )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"


def parameter_text(parameter: Parameter) -> str:
    """A parameter as PTX writes it: `.u64`, `.b8[16]`."""
    size = parameter.size
    return f".{parameter.type}" if (size <= 8 and parameter.type[-2:] != "b8") or size == 1 else f".b8[{size}]"


def _bytes(size: int) -> str:
    return "1 byte" if size == 1 else f"{size} bytes"


def _passed(argument: Prepared) -> str:
    if argument.array is None:
        return _bytes(argument.size)
    return "pointer and length, 16 bytes" if argument.spec.sliced else "a pointer, 8 bytes"


def _kernel_error(program: Program, message: str, symbols: Sequence[str]) -> RglinkError:
    places = [symbol if demangle(symbol) == symbol else f"{symbol}  {demangle(symbol)}" for symbol in symbols]
    return _usage(f"{program.name}: {message}", *places, slug="no-kernel")


def _usage(message: str, *places: str, slug: str, cure: str | None = None) -> UsageError:
    return UsageError(message, *places, slug=slug, cure=cure)

"""`rgrun FILE --kernel NAME --grid G --block B --arg SPEC...`: run a linked kernel on the CPU.

What the kernel computes and prints goes to stdout, errors and reports to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rglink.demangle import demangle
from rglink.diagnostics import EXIT_BUG, EXIT_DONE, Diagnostic, InputError, RglinkError, UsageError
from rglink.frontend.cli import EXIT_INTERRUPTED, EXIT_PIPE
from rglink.frontend.rgrun_program import check_arguments, find_kernel, read_program
from rglink.frontend.rgrun_text import (
    JsonValue,
    json_of_profile,
    json_of_results,
    render_kernels,
    render_profile,
    render_results,
)

if TYPE_CHECKING:
    from rglink.emulate.launch import Launched
    from rglink.emulate.observer import Observer
    from rglink.emulate.profile import Profile
    from rglink.emulate.ptx import Program
    from rglink.emulate.specs import ArgumentSpec, Prepared

EPILOG = """\
SPEC says what is passed, in the order of the kernel's parameters:
  f32[1024]=random      an array, copied in and back; =zeros (default), ones, arange[:START[:STEP]],
                        random[:LOW:HIGH], a number for all, 1,2,3 or @FILE.npy
  @x.npy                an array from a NumPy file
  slice:u32[64]=arange  a Rust slice: pointer and length
  u64=1024, f32=1.5     a number; hex=00ff10.. the bytes of a struct passed by value
  out:f32[1024]         print it afterwards; y.npy:f32[1024] also writes it to a file
  x:f32[4]=1,2,3,4      any other name before a colon is what it is called

exit code: 0 done, 1 a fault, a report of a check or bad input, 2 wrong usage"""


@dataclass(frozen=True)
class Request:
    """What to launch: `grid` and `block` in blocks and threads, one to three extents; `shared` in bytes.

    `seed` is that of random data; `steps` None for the machine's own budget.
    """

    program: Program
    kernel: str
    specs: tuple[ArgumentSpec, ...]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    seed: int
    shared: int
    steps: int | None


@dataclass(frozen=True)
class Run:
    """One launch in one order of threads: what it left, and what was counted if somebody asked for a profile."""

    prepared: tuple[Prepared, ...]
    launched: Launched
    profile: Profile | None


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = _parser().parse_args(words)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except RglinkError as error:
        _show(error.diagnostic, arguments)
        return error.exit_code
    except KeyboardInterrupt:
        _show(Diagnostic("error", "interrupted", "interrupted; nothing was written"), arguments)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except Exception as error:
        _show(
            Diagnostic(
                "error",
                "bug",
                f"a bug of rglink: {type(error).__name__}: {error}",
                (f"to reproduce: {shlex.join(['rgrun', *words])}",),
            ),
            arguments,
        )
        return EXIT_BUG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rgrun",
        description="Run a kernel of a linked program on the CPU, and report what it does wrong.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="a fat binary with PTX, or PTX")
    add("--kernel", metavar="NAME", help="symbol or Rust path; may be left out if there is one kernel")
    add("--grid", metavar="G", default="1", help="blocks: 4, 16x16 or 2x2x2 (default: 1)")
    add("--block", metavar="B", default="1", help="threads of a block, likewise (default: 1)")
    add("--arg", metavar="SPEC", action="append", default=[], help="an argument, see below; repeatable")
    add("--save", metavar="WHICH=FILE", action="append", default=[], help="write an array to a NumPy file afterwards")
    add("--shared", metavar="BYTES", type=_count, default=0, help="dynamic shared memory of each block")
    add("--arch", metavar="ARCH", default="", help="the PTX to take, as compute_90 (default: the newest)")
    add("--seed", metavar="N", type=_count, default=0, help="seed of random data (default: 0)")
    add("--schedules", metavar="N", type=_positive, default=1, help="run in N orders of threads (default: 1)")
    add("--order", metavar="K", type=_count, help="run in this order alone, as a report of --schedules names it")
    add("--steps", metavar="N", type=_positive, help="instructions that one thread may execute")
    add("--trace", metavar="FILE", help="write every executed instruction to a file")
    add("--profile", action="store_true", help="count instructions, divergence and memory traffic by source line")
    add("--list", action="store_true", help="list the kernels and their parameters")
    add("--sources", metavar="DIR", action="append", default=[], help="where source files are, for quoting")
    add("--json", action="store_true", help="print JSON")
    return parser


def _count(text: str) -> int:
    number = int(text, 0)
    if number < 0:
        raise ValueError
    return number


def _positive(text: str) -> int:
    number = int(text, 0)
    if number < 1:
        raise ValueError
    return number


# argparse names the type of a bad value by these.
_count.__name__ = "number"
_positive.__name__ = "positive number"


def _run(arguments: argparse.Namespace) -> int:
    from rglink.emulate.specs import parse_specs, with_saves

    program = read_program(arguments.file, arguments.arch)
    if arguments.list:
        print(render_kernels(program))
        return EXIT_DONE
    name = find_kernel(program, arguments.kernel)
    specs = with_saves(parse_specs(arguments.arg), arguments.save)
    request = Request(
        program,
        name,
        specs,
        _extent("--grid", arguments.grid),
        _extent("--block", arguments.block),
        arguments.seed,
        arguments.shared,
        arguments.steps,
    )
    orders = range(arguments.schedules) if arguments.order is None else (arguments.order,)
    runs = [_run_order(request, order, arguments, watched=order == orders[0]) for order in orders]
    _save(runs[0].prepared)
    _print_run(request, runs[0], arguments)
    _tell_differences(runs, orders)
    return EXIT_DONE


def _run_order(request: Request, order: int, arguments: argparse.Namespace, *, watched: bool) -> Run:
    """Run in one order of threads; the first order is the one that a trace and a profile are made of."""
    from rglink.emulate.errors import KernelFault

    try:
        if watched and arguments.trace:
            _trace(request, order, arguments.trace)
        if watched and arguments.profile:
            from rglink.emulate.profile import ProfileObserver

            observer = ProfileObserver()
            return replace(_launch(request, order, observer), profile=observer.profile())
        return _launch(request, order, None)
    except KernelFault as fault:
        sys.stdout.write("" if arguments.json else fault.output)
        if order:
            seen = fault.diagnostic
            fault.diagnostic = replace(seen, places=(*seen.places, f"order {order} of the threads: --order {order}"))
        raise


def _launch(request: Request, order: int, observer: Observer | None) -> Run:
    """Run once, on fresh memory: what an earlier run left in variables is not seen."""
    from rglink.emulate.launch import STEP_BUDGET, LoadedProgram
    from rglink.emulate.specs import prepare

    prepared = prepare(request.specs, request.seed)
    kernel = LoadedProgram(request.program)[request.kernel]
    check_arguments(kernel.function, prepared)
    launched = kernel.launch(
        request.grid,
        request.block,
        [argument.value for argument in prepared],
        shared=request.shared,
        seed=order or None,
        observer=observer,
        steps=request.steps or STEP_BUDGET,
    )
    return Run(prepared, launched, None)


def _trace(request: Request, order: int, path: str) -> None:
    from rglink.emulate.listing import ListingObserver

    try:
        with open(path, "w", encoding="utf-8") as file:
            _launch(request, order, ListingObserver(file))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def _save(prepared: Sequence[Prepared]) -> None:
    from rglink.emulate.specs import save

    for argument in prepared:
        if argument.array is not None and argument.spec.save:
            save(argument.array, argument.spec.save)


def _print_run(request: Request, run: Run, arguments: argparse.Namespace) -> None:
    if arguments.json:
        described: dict[str, JsonValue] = {
            "kernel": request.kernel,
            "path": demangle(request.kernel),
            "grid": list(request.grid),
            "block": list(request.block),
            **json_of_results(run.prepared, run.launched),
        }
        if run.profile is not None:
            described["profile"] = json_of_profile(run.profile)
        print(json.dumps(described, indent=2))
        return
    print(render_results(run.prepared, run.launched), end="")
    if run.profile is not None:
        print(render_profile(run.profile, _folders(arguments)))


def _tell_differences(runs: Sequence[Run], orders: Sequence[int]) -> None:
    """Say when results depend on the order of threads: it may be meant (atomics on floats), or a race."""
    for run, order in zip(runs[1:], orders[1:], strict=True):
        for before, after in zip(runs[0].prepared, run.prepared, strict=True):
            if before.array is None or after.array is None or before.array.tobytes() == after.array.tobytes():
                continue
            message = f"{before.spec.name} differs between the orders {orders[0]} and {order} of the threads"
            print(Diagnostic("note", "schedule-dependent", message).render("rgrun"), file=sys.stderr)
            return


def _extent(option: str, text: str) -> tuple[int, ...]:
    try:
        extents = tuple(int(part) for part in text.split("x"))
    except ValueError:
        extents = ()
    if not 1 <= len(extents) <= 3 or min(extents) < 1:
        raise UsageError(f"{option} {text}: wanted one to three positive numbers as 4, 16x16 or 2x2x2")
    return extents


def _folders(arguments: argparse.Namespace) -> tuple[Path, ...]:
    """Where source files may be: what the user says, here, and beside the program."""
    return (*map(Path, arguments.sources), Path(), Path(arguments.file).parent)


def _show(diagnostic: Diagnostic, arguments: argparse.Namespace) -> None:
    if arguments.json:
        described: dict[str, JsonValue] = {
            "slug": diagnostic.slug,
            "message": diagnostic.message,
            "places": list(diagnostic.places),
            "help": diagnostic.cure,
        }
        print(json.dumps({"error": described}, indent=2))
        return
    from rglink.emulate.sources import quoted

    sys.stdout.flush()
    print(replace(diagnostic, places=quoted(diagnostic.places, _folders(arguments))).render("rgrun"), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

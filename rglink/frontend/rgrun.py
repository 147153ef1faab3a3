"""`rgrun FILE --kernel NAME --grid G --block B --arg SPEC...`: run a linked kernel on the CPU.

What the kernel computes and prints goes to stdout, errors and reports to stderr.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rglink.demangle import demangle
from rglink.diagnostics import EXIT_BUG, EXIT_DONE, Diagnostic, InputError, RglinkError, UsageError
from rglink.frontend.cli import EXIT_INTERRUPTED, EXIT_PIPE
from rglink.frontend.rgrun_program import check_arguments, check_length, find_kernel, read_program
from rglink.frontend.rgrun_text import (
    JsonValue,
    json_of_diagnostic,
    json_of_failure,
    json_of_profile,
    json_of_report,
    json_of_results,
    render_kernels,
    render_profile,
    render_results,
)

if TYPE_CHECKING:
    from rglink.emulate.checks import Report
    from rglink.emulate.launch import Kernel, Launched
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


# Executed instructions of one thread after which it is taken for one that does not end.
STEPS = 10_000_000
# More threads than any grid has.
ANY_NUMBER = 1 << 80


@dataclass(frozen=True)
class Request:
    """What to launch: `grid` and `block` in blocks and threads, one to three extents; `shared` in bytes.

    `seed` orders the threads, None for the machine's own order; `data_seed` makes random data; `steps` is how many
    instructions one thread may execute, `most_threads` how many threads there may be.
    """

    program: Program
    kernel: str
    specs: tuple[ArgumentSpec, ...]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    seed: int | None
    data_seed: int
    shared: int
    steps: int
    most_threads: int


@dataclass(frozen=True)
class Run:
    """What a launch left: its arguments, notes of the checks, and what was counted if somebody asked for a profile."""

    prepared: tuple[Prepared, ...]
    launched: Launched
    notes: tuple[Report, ...] = ()
    profile: Profile | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = _parser().parse_args(words)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except RglinkError as error:
        _show_failure(error, arguments)
        return error.exit_code
    except KeyboardInterrupt:
        _show(
            Diagnostic("error", "interrupted", "interrupted before the kernel ended; no result was printed or saved"),
            arguments,
        )
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
    add("--check", metavar="LIST", default="all", help="what to check: all, none or names (default: all)")
    add("--seed", metavar="N", type=_count, help="run the threads in the order of this seed, as a report names it")
    add("--schedules", metavar="N", type=_positive, default=1, help="check in N orders of threads (default: 1)")
    add("--data-seed", metavar="N", type=_count, default=0, help="seed of random data (default: 0)")
    add("--steps", metavar="N", type=_positive, default=STEPS, help=f"instructions of one thread (default: {STEPS})")
    add("--allow-long", action="store_true", help="run it even if that takes minutes")
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
    from rglink.emulate.launch import MOST_THREADS
    from rglink.emulate.specs import parse_specs, with_saves

    program = read_program(arguments.file, arguments.arch)
    if arguments.list:
        print(render_kernels(program))
        return EXIT_DONE
    request = Request(
        program,
        find_kernel(program, arguments.kernel),
        with_saves(parse_specs(arguments.arg), arguments.save),
        _extent("--grid", arguments.grid),
        _extent("--block", arguments.block),
        arguments.seed,
        arguments.data_seed,
        arguments.shared,
        arguments.steps,
        ANY_NUMBER if arguments.allow_long else MOST_THREADS,
    )
    kinds = _kinds(arguments.check)
    if not arguments.allow_long:
        threads = math.prod(request.grid) * math.prod(request.block)
        function = program.functions[request.kernel]
        check_length(function, threads, arguments.schedules, checked=bool(kinds))
    if arguments.trace:
        _trace(request, arguments.trace)
    run = _launch_checked(request, kinds, arguments.schedules)
    profile = _profile(request) if arguments.profile else None
    _save(run.prepared)
    _print_run(request, replace(run, profile=profile), arguments)
    return EXIT_DONE


def _kinds(text: str) -> frozenset[str]:
    """The checks of `--check`."""
    from rglink.emulate.checks import ALL

    if text in ("all", "none"):
        return ALL if text == "all" else frozenset()
    kinds = frozenset(text.split(","))
    if kinds - ALL:
        unknown = ", ".join(sorted(kinds - ALL))
        raise UsageError(f"--check {text}: no check is called {unknown}; there are all, none, {', '.join(sorted(ALL))}")
    return kinds


def _launch_checked(request: Request, kinds: frozenset[str], schedules: int) -> Run:
    """Run under the checks of `kinds`, in as many orders of threads as asked for; the first one's results count."""
    from rglink.emulate.checks import Checks, launch_checked

    if not kinds and schedules == 1:
        return _launch(request, None)
    kernel, prepared = _ready(request)
    # What is an output and was given nothing to begin with holds nothing until the kernel writes it.
    outputs = frozenset(at for at, argument in enumerate(prepared) if argument.spec.unwritten)
    checked = launch_checked(
        kernel,
        request.grid,
        request.block,
        [argument.value for argument in prepared],
        Checks(kinds, request.seed, schedules, outputs),
        shared=request.shared,
        steps=request.steps,
        most_threads=request.most_threads,
    )
    return Run(prepared, checked.launched, checked.reports)


def _ready(request: Request) -> tuple[Kernel, tuple[Prepared, ...]]:
    """The kernel in fresh memory, with its arguments: what an earlier run left in variables is not seen."""
    from rglink.emulate.launch import LoadedProgram
    from rglink.emulate.specs import prepare

    prepared = prepare(request.specs, request.data_seed)
    kernel = LoadedProgram(request.program)[request.kernel]
    check_arguments(kernel.function, prepared)
    return kernel, prepared


def _launch(request: Request, observer: Observer | None) -> Run:
    kernel, prepared = _ready(request)
    launched = kernel.launch(
        request.grid,
        request.block,
        [argument.value for argument in prepared],
        shared=request.shared,
        seed=request.seed,
        observer=observer,
        steps=request.steps,
        most_threads=request.most_threads,
    )
    return Run(prepared, launched)


def _trace(request: Request, path: str) -> None:
    """A run of its own, of which a fault is not told: the checked run after it finds the same."""
    from rglink.emulate.errors import KernelFault
    from rglink.emulate.listing import ListingObserver

    try:
        with open(path, "w", encoding="utf-8") as file, suppress(KernelFault):
            _launch(request, ListingObserver(file))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def _profile(request: Request) -> Profile:
    from rglink.emulate.profile import ProfileObserver

    observer = ProfileObserver()
    _launch(request, observer)
    return observer.profile()


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
        described["reports"] = [json_of_report(report) for report in run.notes]
        print(json.dumps(described))
        return
    from rglink.emulate.explain import rendered_reports

    print(render_results(run.prepared, run.launched), end="")
    if run.profile is not None:
        print(render_profile(run.profile, _folders(arguments)))
    if run.notes:
        sys.stdout.flush()
        print(rendered_reports(run.notes, _folders(arguments), "rgrun"), file=sys.stderr)


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


def _show_failure(error: RglinkError, arguments: argparse.Namespace) -> None:
    """What the kernel had printed, then the error with all reports."""
    from rglink.emulate.explain import explained, output_of

    if arguments.json:
        print(json.dumps(json_of_failure(error)))
        return
    sys.stdout.write(output_of(error))
    sys.stdout.flush()
    print(explained(error, _folders(arguments), "rgrun", "--seed {seed}"), file=sys.stderr)


def _show(diagnostic: Diagnostic, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps({"error": json_of_diagnostic(diagnostic)}))
        return
    sys.stdout.flush()
    print(diagnostic.render("rgrun"), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

"""`rgcc`: one Rust crate to one `.rgo`.

rgcc -c SRC.rs -o OUT.rgo [--crate-name N] [--edition E] [--extern NAME=PATH.rgo]... [--cfg C]...
     [-O 0|1|2|3|s] [-g | --lineinfo] [--arch sm_XX] [--metadata M] [-- RUSTC-ARGS]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

from rglink import __version__
from rglink.arch import Arch, parse_arch
from rglink.diagnostics import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_FAILED,
    Diagnostics,
    LinkFailed,
    RglinkError,
    UsageError,
)
from rglink.frontend.crate import CrateOptions, OptLevel, RustcFailed, compile_crate
from rglink.frontend.outputs import OutputFile, check_output, write_outputs

# Options of rustc that rgcc decides: without them the crate would lose its meaning, its name or its form.
_OWN_OPTIONS = (
    "--crate-name", "--crate-type", "--edition", "--emit", "--out-dir", "--print", "--sysroot",
    "--target", "--test", "-o",
)  # fmt: skip
_OWN_CODEGEN = (
    "codegen-units", "debuginfo", "extra-filename", "incremental", "linker-plugin-lto", "lto", "metadata",
    "no-prepopulate-passes", "no-redzone", "opt-level", "panic", "passes", "target-cpu",
)  # fmt: skip
_OWN_UNSTABLE = ("cross-crate-inline-threshold", "mir-enable-passes", "mir-opt-level", "share-generics")


def main(argv: list[str] | None = None) -> int:
    """Run rgcc with `argv` (default: the command line); returns the exit code, see interface."""
    diags = Diagnostics()
    try:
        options = parse_arguments(sys.argv[1:] if argv is None else argv)
        output = str(options.output)
        check_output(output, [str(options.source), *(str(path) for _, path in options.externs)])
        write_outputs([OutputFile(output, compile_crate(options, diags))])
    except RglinkError as error:
        _report(diags)
        print(error.diagnostic.render("rgcc"), file=sys.stderr)
        return error.exit_code
    except (RustcFailed, LinkFailed):
        _report(diags)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        print(f"rgcc: internal error: {type(error).__name__}: {error} [bug]", file=sys.stderr)
        if os.environ.get("RGLINK_BACKTRACE"):
            raise
        print(">>> help: run it again with RGLINK_BACKTRACE=1 and report what it prints", file=sys.stderr)
        return EXIT_BUG
    _report(diags)
    return EXIT_DONE


def _report(diags: Diagnostics) -> None:
    for item in diags.items:
        print(item.render("rgcc"), file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, cure="rgcc --help")


def _parser() -> _Parser:
    parser = _Parser(
        prog="rgcc",
        usage="rgcc -c SRC.rs -o OUT.rgo [options] [-- RUSTC-ARGS]",
        description="Compile one Rust crate for nvptx64-nvidia-cuda into an .rgo, which rglink links.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-c", action="store_true", help="compile (rglink links)")
    add("source", nargs="?", metavar="SRC.rs", help="the crate's root source file")
    add("-o", dest="output", metavar="OUT.rgo", help="the file to write")
    add("--crate-name", metavar="N", help="default: the source file's name")
    add("--edition", default="2021", metavar="E", help="Rust edition (default: 2021)")
    add("--extern", action="append", default=[], metavar="NAME=PATH.rgo", help="a crate that this one uses")
    add("--cfg", action="append", default=[], metavar="C", help="as for rustc")
    add("-O", dest="opt_level", default="3", choices=("0", "1", "2", "3", "s"), help="optimization (default: 3)")
    debug = parser.add_mutually_exclusive_group()
    debug.add_argument("-g", dest="debug", action="store_const", const="full", help="full debug info")
    debug.add_argument("--lineinfo", dest="debug", action="store_const", const="lines", help="line tables")
    add("--arch", metavar="sm_XX", help="lowest architecture to compile for (default: sm_75)")
    add("--metadata", metavar="M", help="tells crates of one name apart (default: from name, version and path)")
    add("--version", action="version", version=f"rgcc {__version__}")
    return parser


def parse_arguments(argv: list[str]) -> CrateOptions:
    """Read rgcc's command line.

    Raises:
        UsageError: it asks for something that rgcc does not do.
    """
    own, rustc_args = argv, []
    if "--" in argv:
        split = argv.index("--")
        own, rustc_args = argv[:split], argv[split + 1 :]
    found = _parser().parse_args(own)
    if found.source is None:
        raise UsageError("no source file", cure="rgcc -c SRC.rs -o OUT.rgo")
    if not found.c:
        raise UsageError("rgcc compiles only: -c is missing", cure="rgcc -c SRC.rs -o OUT.rgo; rglink links")
    if found.output is None:
        raise UsageError("-o OUT.rgo is missing")
    _check_rustc_args(rustc_args)
    opt_level: OptLevel = found.opt_level
    return CrateOptions(
        source=Path(found.source),
        output=Path(found.output),
        crate_name=_checked_name(found.crate_name, "--crate-name"),
        edition=found.edition,
        externs=_externs(found.extern),
        cfgs=tuple(found.cfg),
        opt_level=opt_level,
        debug=found.debug or "none",
        arch=_arch(found.arch),
        metadata=found.metadata,
        rustc_args=tuple(rustc_args),
    )


def _checked_name(name: str | None, option: str) -> str | None:
    if name is not None and not re.fullmatch(r"[^\W\d]\w*", name):
        raise UsageError(f"{option} {name}: not a crate name, which is an identifier")
    return name


def _arch(name: str | None) -> Arch:
    if name is None:
        return parse_arch("sm_75")
    if not name.startswith("sm_") or "," in name:
        raise UsageError(f"--arch {name}: wanted one architecture such as sm_90", slug="unknown-arch")
    return parse_arch(name)


def _externs(values: list[str]) -> tuple[tuple[str, Path], ...]:
    found: dict[str, Path] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not equals or not path:
            raise UsageError(f"--extern {value}: wanted NAME=PATH.rgo")
        _checked_name(name, "--extern")
        if found.setdefault(name, Path(path)) != Path(path):
            raise UsageError(f"--extern {name} is given twice: {found[name]} and {path}")
    return tuple(found.items())


def _check_rustc_args(arguments: list[str]) -> None:
    """Refuse what rgcc itself decides; everything else is rustc's business."""
    for index, argument in enumerate(arguments):
        following = arguments[index + 1] if index + 1 < len(arguments) else ""
        option = "-o" if argument.startswith("-o") else argument.split("=", 1)[0]
        if option in _OWN_OPTIONS:
            raise UsageError(f"{option} cannot be passed to rustc: rgcc sets it", cure="rgcc --help")
        for short, long, names in (("-C", "--codegen", _OWN_CODEGEN), ("-Z", "", _OWN_UNSTABLE)):
            value = following if argument in (short, long) else ""
            if argument.startswith(short):
                value = argument[len(short) :] or following
            elif long and argument.startswith(f"{long}="):
                value = argument[len(long) + 1 :]
            name = value.split("=", 1)[0].replace("_", "-")
            if name in names:
                raise UsageError(f"{short}{name} cannot be passed to rustc: rgcc sets it", cure="rgcc --help")

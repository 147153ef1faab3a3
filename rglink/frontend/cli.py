"""`rglink`: a link by hand, or for cargo in place of rustc's own linker, and the subcommands."""

from __future__ import annotations

import gc
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rglink import __version__
from rglink.arch import Arch
from rglink.diagnostics import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_FAILED,
    Diagnostics,
    LinkFailed,
    RglinkError,
)
from rglink.frontend.outputs import OutputFile, check_output, write_outputs
from rglink.options import LinkOptions, parse_options
from rglink.trace import Trace
from rglink.worker import BugInChild

USAGE = """\
usage: rglink INPUT... -o OUT [options]
       rglink cargo-config [--write]
       rglink doctor

Links Rust crates for NVIDIA GPUs into one fat binary. Inputs: .rgo, .rlib, .a, .bc, .ll, @FILE.
OUT's ending says what is made: .fatbin, .cubin, .ptx, .ltoir, .bc, .ll.

  --arch LIST             sm_80,sm_90a,compute_120; all, all-major, native   (default: sm_75,compute_75)
  --keep GLOB, --drop GLOB, --kernels-from FILE       kernels to keep, by name or Rust path
  --export-symbol NAME    a symbol that must survive
  -O0..3, --codegen=auto|llvm|nvvm, -g, --lineinfo, --remap-path-prefix OLD=NEW
  --emit KIND[,KIND]      fatbin,cubin,ptx,ltoir,bc,ll beside each other
  -L DIR, -l NAME, -j N, --cache-dir DIR
  --print-resources[=json], --print-gc, --print-map FILE, --print-barriers, --why-live SYM
  --time-phases, --time-trace FILE, --save-temps[=PHASES], --stop-after PHASE
  --allow=SLUG, --warn=SLUG, --deny=SLUG              level of a named diagnostic
"""

# As shells report the signals SIGINT and SIGPIPE.
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
_SUBCOMMANDS = ("cargo-config", "doctor")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `rglink` with these arguments (default: the process's); returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except RglinkError as error:
        print(error.diagnostic.render(), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Who read our output has gone, as with `| head`: nothing more can be said, and nobody is to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_PIPE
    except (AssertionError, BugInChild) as error:
        print(f"rglink: error: a bug of rglink: {error}", file=sys.stderr)
        print(f">>> to reproduce: {shlex.join(['rglink', *words])}", file=sys.stderr)
        return EXIT_BUG


def entry() -> NoReturn:
    """The console script: `main`, then the end of the process at once, as lld does it.

    Taking the interpreter and the loaded libraries apart would cost a small link a tenth of its time, and so would
    looking for reference cycles: a link makes few, and ends.
    """
    gc.set_threshold(200_000)
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(words: list[str]) -> int:
    if words and words[0] in _SUBCOMMANDS:
        return _subcommand(words[0], words[1:])
    if not words or words[0] in ("-h", "--help"):
        print(USAGE, end="")
        return EXIT_DONE
    if words[0] in ("-V", "--version"):
        print(f"rglink {__version__}")
        return EXIT_DONE
    from rglink.objfmt.response_file import expand_response_files

    flags = shlex.split(os.environ.get("RGLINK_FLAGS", ""))
    options = parse_options(expand_response_files([*words, *flags]), _native_arches)
    if options.cache_dir:
        os.environ["RGLINK_CACHE_DIR"] = options.cache_dir
    return _link(options)


def _subcommand(name: str, words: list[str]) -> int:
    if name == "doctor":
        from rglink.frontend import doctor

        return doctor.main(words)
    from rglink.frontend import cargo_config

    return cargo_config.main(words)


def _link(options: LinkOptions) -> int:
    """Link, then write what it made: all or nothing."""
    from rglink.frontend.session import run_link

    check_output(options.output, options.inputs)
    diags = Diagnostics(dict(options.levels))
    if options.replaced_cpu:
        diags.report(
            "default-target-cpu",
            f"--target-cpu {options.replaced_cpu} is below sm_75: making sm_75 and compute_75",
            cure="choose with -Ctarget-cpu=sm_90 in rustflags, or --arch",
        )
    trace = Trace(options.output, options.save_temps, options.stop_after)
    try:
        files, printed = run_link(options, diags, trace)
    except LinkFailed:
        _show(diags)
        return EXIT_FAILED
    except RglinkError:
        _show(diags)
        raise
    if options.driven_by_rustc:
        files.append(_report_file(options, diags, printed))
    write_outputs(files)
    # rustc makes warnings of what a succeeding linker says: notes are for the report file.
    _show(diags, notes=not options.driven_by_rustc)
    print(printed, end="")
    return EXIT_DONE


def _show(diags: Diagnostics, notes: bool = True) -> None:
    for item in diags.items:
        if notes or item.level != "note":
            print(item.render(), file=sys.stderr)


def _report_file(options: LinkOptions, diags: Diagnostics, printed: str) -> OutputFile:
    """`app.rglink.txt`: what was said, for rustc drops a succeeding linker's output."""
    from rglink.frontend.session import lifted

    text = "".join(f"{item.render()}\n" for item in diags.items) + printed
    path = Path(options.output).with_suffix(".rglink.txt")
    return OutputFile(str(path), text.encode("utf-8", "surrogateescape"), link_to=lifted(path))


def _native_arches() -> tuple[Arch, ...]:
    """Architectures of this machine's GPUs, asked of the driver; empty without one."""
    from rglink.nvjitlink.native import native_arches

    return native_arches()

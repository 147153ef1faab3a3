"""LinkOptions: all that a link can be asked for, parsed and checked once.

The command line is rustc's for its nvptx linker (`--export-symbol N --target T --target-cpu C -o OUT -O3 --debug`)
plus ours, in the manner of lld: long options take `--name=value` or `--name value`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from rglink.arch import Arch, Target, parse_arch, parse_arch_list
from rglink.diagnostics import CHANGEABLE, UsageError

Emit = Literal["fatbin", "cubin", "ptx", "ltoir", "bc", "ll"]
Codegen = Literal["auto", "llvm", "nvvm"]
Debug = Literal["auto", "lineinfo", "full"]
Verdict = Literal["allow", "warn", "deny"]

PHASES = ("merge", "gc", "abi", "opt", "final")

# Known, documented, and refused until built, so that nothing asked for is ever ignored.
_NOT_BUILT = {
    "--launch", "--print-inline", "--print-races", "-r", "--drop-unsupported", "--fast-math", "--reproduce",
}  # fmt: skip


@dataclass(frozen=True)
class LinkOptions:
    """`targets` is sorted; `keep`, `drop` hold patterns; `save_temps` holds phase names.

    `replaced_cpu` is a `--target-cpu` below sm_75 that was taken as not given.
    """

    inputs: tuple[str, ...] = ()
    output: str = ""
    emit: tuple[Emit, ...] = ()
    targets: tuple[Target, ...] = ()
    target_cpu: str = ""
    replaced_cpu: str = ""
    driven_by_rustc: bool = False
    exports: tuple[str, ...] = ()
    library_dirs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    kernels_from: tuple[str, ...] = ()
    opt_level: int = 3
    codegen: Codegen = "auto"
    debug: Debug = "auto"
    remap_path_prefix: tuple[tuple[str, str], ...] = ()
    levels: tuple[tuple[str, Verdict], ...] = ()
    print_map: str = ""
    print_gc: bool = False
    print_resources: Literal["", "table", "json"] = ""
    print_barriers: bool = False
    why_live: tuple[str, ...] = ()
    time_phases: bool = False
    time_trace: str = ""
    save_temps: tuple[str, ...] = ()
    stop_after: str = ""
    cache_dir: str = ""
    jobs: int = 0


def parse_options(argv: Sequence[str], native: Callable[[], tuple[Arch, ...]]) -> LinkOptions:
    """Read a link's command line (response files already expanded).

    `native` lists the architectures of this machine's GPUs, asked only for `--arch native`.

    Raises:
        UsageError: an unknown or not yet built option, a missing or impossible value, no input, no output.
    """
    options = LinkOptions()
    arches: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "-" or not word.startswith("-"):
            options = replace(options, inputs=(*options.inputs, word))
            continue
        name, value = _split(word)
        if name == "--arch":
            arches.append(_required(name, value, words))
            continue
        options = _apply(options, name, value, words)
    if not options.inputs:
        raise UsageError("no input files")
    if not options.output:
        raise UsageError("no output: -o OUT is wanted")
    return _with_targets(_with_emit(options), ",".join(arches), native)


def _split(word: str) -> tuple[str, str | None]:
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    if word[:2] in ("-L", "-l", "-o", "-j", "-O") and len(word) > 2:
        return word[:2], word[2:]
    return word, None


def _required(name: str, value: str | None, words: Iterator[str]) -> str:
    if value is None:
        value = next(words, None)
    if not value:
        raise UsageError(f"{name}: a value is wanted")
    return value


_LISTS = {"--export-symbol": "exports", "-L": "library_dirs", "-l": "libraries", "--why-live": "why_live",
          "--keep": "keep", "--drop": "drop", "--kernels-from": "kernels_from"}  # fmt: skip
_SCALARS = {"-o": "output", "--target-cpu": "target_cpu", "--print-map": "print_map", "--time-trace": "time_trace",
            "--cache-dir": "cache_dir"}  # fmt: skip
_FLAGS = {"--print-gc": "print_gc", "--time-phases": "time_phases", "--print-barriers": "print_barriers"}
_CHOICES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    # option: (field or "", values that are built, values that are documented and not built)
    "--codegen": ("codegen", get_args(Codegen), ()),
    "--race": ("", ("off",), ("warn", "error", "strict")),
    "--inline": ("", ("auto",), ("none", "all", "search")),
    "--partitions": ("", ("auto", "one"), ()),
    "--message-format": ("", ("human",), ("json", "sarif")),
}


def _apply(options: LinkOptions, name: str, value: str | None, words: Iterator[str]) -> LinkOptions:
    if name in _NOT_BUILT:
        raise UsageError(f"{name}: not built in this version", slug="not-built")
    if name in _FLAGS:
        return replace(options, **{_FLAGS[name]: True})  # type: ignore[arg-type]
    if name in _LISTS:
        old: tuple[str, ...] = getattr(options, _LISTS[name])
        return replace(options, **{_LISTS[name]: (*old, _required(name, value, words))})  # type: ignore[arg-type]
    if name in _SCALARS:
        return replace(options, **{_SCALARS[name]: _required(name, value, words)})  # type: ignore[arg-type]
    if name in _CHOICES:
        return _apply_choice(options, name, _required(name, value, words))
    return _apply_special(options, name, value, words)


def _apply_choice(options: LinkOptions, name: str, value: str) -> LinkOptions:
    field, built, planned = _CHOICES[name]
    if value in planned or (name == "--partitions" and value.isdigit()):
        raise UsageError(f"{name}={value}: not built in this version", slug="not-built")
    if value not in built:
        raise UsageError(f"{name}={value}: unknown value, wanted one of {', '.join((*built, *planned))}")
    return replace(options, **{field: value}) if field else options  # type: ignore[arg-type]


def _apply_special(options: LinkOptions, name: str, value: str | None, words: Iterator[str]) -> LinkOptions:
    match name:
        case "--debug" | "--no-cache":
            # rustc passes --debug in every build, so it tells nothing; no link is cached in this version.
            return options
        case "--target":
            return _with_target(options, _required(name, value, words))
        case "-O":
            return replace(options, opt_level=_opt_level(value))
        case "-g":
            return replace(options, debug="full")
        case "--lineinfo":
            return replace(options, debug="lineinfo")
        case "-j":
            return replace(options, jobs=_positive(name, _required(name, value, words)))
        case "--emit":
            return replace(options, emit=_emit(_required(name, value, words)))
        case "--remap-path-prefix":
            return _with_remap(options, _required(name, value, words))
        case "--allow" | "--warn" | "--deny":
            return _with_levels(options, name, _required(name, value, words))
        case "--print-resources":
            return _with_resources(options, value)
        case "--save-temps":
            return replace(options, save_temps=_phases(name, value) if value else PHASES)
        case "--stop-after":
            return replace(options, stop_after=_phases(name, _required(name, value, words))[0])
    raise UsageError(f"{name}: unknown option{_near_option(name)}", slug="unknown-option")


def _with_target(options: LinkOptions, triple: str) -> LinkOptions:
    if triple != "nvptx64-nvidia-cuda":
        raise UsageError(f"--target {triple}: unknown target, wanted nvptx64-nvidia-cuda")
    return replace(options, driven_by_rustc=True)


def _opt_level(value: str | None) -> int:
    levels = {"0": 0, "1": 1, "2": 2, "3": 3, "s": 2, "z": 2}
    if value not in levels:
        raise UsageError(f"-O{value or ''}: unknown level, wanted -O0 to -O3 or -Os")
    return levels[value]


def _positive(name: str, value: str) -> int:
    if not value.isdigit() or int(value) == 0:
        raise UsageError(f"{name} {value}: a positive number is wanted")
    return int(value)


def _emit(value: str) -> tuple[Emit, ...]:
    kinds: list[Emit] = []
    for kind in value.split(","):
        if kind in ("host-object", "rust-bindings", "c-header"):
            raise UsageError(f"--emit {kind}: not built in this version", slug="not-built")
        found = [known for known in get_args(Emit) if known == kind]
        if not found:
            raise UsageError(f"--emit {kind}: unknown kind, wanted one of {', '.join(get_args(Emit))}")
        kinds += found
    return tuple(dict.fromkeys(kinds))


def _with_remap(options: LinkOptions, value: str) -> LinkOptions:
    old, equals, new = value.rpartition("=")
    if not equals or not old:
        raise UsageError(f"--remap-path-prefix {value}: OLD=NEW is wanted")
    return replace(options, remap_path_prefix=(*options.remap_path_prefix, (old, new)))


def _with_levels(options: LinkOptions, name: str, value: str) -> LinkOptions:
    verdicts: dict[str, Verdict] = {"--allow": "allow", "--warn": "warn", "--deny": "deny"}
    levels = list(options.levels)
    for slug in value.split(","):
        if slug not in CHANGEABLE:
            near = difflib.get_close_matches(slug, CHANGEABLE, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{name}={slug}: no diagnostic of that name whose level may be changed{hint}")
        levels.append((slug, verdicts[name]))
    return replace(options, levels=tuple(levels))


def _with_resources(options: LinkOptions, value: str | None) -> LinkOptions:
    if value in (None, "table"):
        return replace(options, print_resources="table")
    if value == "json":
        return replace(options, print_resources="json")
    raise UsageError(f"--print-resources={value}: unknown form, wanted table or json")


def _phases(name: str, value: str) -> tuple[str, ...]:
    phases = tuple(value.split(","))
    for phase in phases:
        if phase not in PHASES:
            raise UsageError(f"{name}={phase}: unknown phase, wanted one of {', '.join(PHASES)}")
    return phases


def _near_option(name: str) -> str:
    known = [*_NOT_BUILT, *_LISTS, *_SCALARS, *_FLAGS, *_CHOICES, "--arch", "--debug", "--no-cache",
             "--target", "--lineinfo", "--emit", "--remap-path-prefix", "--allow", "--warn", "--deny",
             "--print-resources", "--save-temps", "--stop-after"]  # fmt: skip
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _with_emit(options: LinkOptions) -> LinkOptions:
    """What to write: rustc asks for PTX and gets the fat binary too; by hand the ending decides."""
    if options.emit:
        return options
    if options.driven_by_rustc:
        return replace(options, emit=("ptx", "fatbin"))
    ending = options.output.rpartition(".")[2] if "." in options.output else ""
    found = [kind for kind in get_args(Emit) if kind == ending]
    if not found:
        wanted = ", ".join(f".{kind}" for kind in get_args(Emit))
        raise UsageError(f"-o {options.output}: unknown output kind, wanted an ending of {wanted}, or --emit KIND")
    return replace(options, emit=(found[0],))


def _with_targets(options: LinkOptions, arches: str, native: Callable[[], tuple[Arch, ...]]) -> LinkOptions:
    cpu = options.target_cpu
    if arches:
        wants_native = "native" in arches.split(",")
        return replace(options, targets=parse_arch_list(arches, native() if wants_native else ()))
    if cpu and not _is_below_sm_75(cpu):
        arch = parse_arch(cpu)
        return replace(options, targets=(Target(arch, "cubin"), Target(arch, "ptx")))
    return replace(options, targets=parse_arch_list("sm_75,compute_75"), replaced_cpu=cpu)


def _is_below_sm_75(cpu: str) -> bool:
    number = cpu.removeprefix("sm_").rstrip("af")
    return cpu.startswith("sm_") and number.isdigit() and int(number) < 75

"""Roots: the kernels and statics that a link is for. What no root reaches is dropped.

A kernel is found by its calling convention or annotation, whatever its visibility or mangling. Exported plain
device functions are no roots: nothing on the host can call them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rglink.demangle import crate_of, demangle, instance_of, is_mangled, path_of
from rglink.diagnostics import Diagnostics
from rglink.lto.sources import Inputs, Source
from rglink.objfmt.summary import Symbol

# Statics that rustc names itself; made external only so that codegen units can share them.
_COMPILERS_OWN = re.compile(
    r"alloc_[0-9a-f]{32}\Z|anon\.|switch\.table|vtable\.|.*\.llvm\.\d+\Z|__rust_|_ZTV|_ZTS|_ZTI"
)
_ILLEGAL = re.compile(r"[^A-Za-z0-9_$]")


@dataclass(frozen=True)
class RootRequest:
    """What was asked for. `exports` is rustc's list, None when the link is run by hand; `kernels_from` are names
    that other files use, None when the option was not given."""

    exports: tuple[str, ...] | None = None
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    kernels_from: frozenset[str] | None = None


@dataclass(frozen=True)
class Kernel:
    """A kernel: `symbol` is its name in its module, `export` the unique external name that the output gives it.

    `source` is the index into `Inputs.sources` of a kernel with internal linkage, None for an external name.
    """

    symbol: str
    export: str
    crate: str
    path: str
    source: int | None = None


@dataclass(frozen=True)
class Dropped:
    """A kernel that is not kept, and why."""

    kernel: Kernel
    reason: str


@dataclass(frozen=True)
class Roots:
    """Kernels sorted by export name, exported variables sorted, and the kernels left out."""

    kernels: tuple[Kernel, ...]
    variables: tuple[str, ...]
    dropped: tuple[Dropped, ...] = ()


def choose_roots(inputs: Inputs, request: RootRequest, diags: Diagnostics) -> Roots:
    """Find all kernels, apply `--keep`, `--drop` and `--kernels-from`, and choose the exported statics.

    Reports `no-kernels` and `no-such-kernel`.
    """
    kernels = find_kernels(inputs)
    variables = _exported_variables(inputs, request.exports)
    if not kernels:
        _report_no_kernels(inputs, diags)
        return Roots((), variables)
    kept: list[Kernel] = []
    dropped: list[Dropped] = []
    for kernel in kernels:
        reason = _reason_to_drop(kernel, request)
        if reason:
            dropped.append(Dropped(kernel, reason))
        else:
            kept.append(kernel)
    kept, twins = _without_twins(kept, inputs, request)
    dropped += twins
    _report_unmatched(kernels, request, diags)
    if not kept and not any(item.level == "error" for item in diags.items):
        seen = [f"{d.kernel.path}: {d.reason}" for d in dropped]
        diags.error("no-kernels", "every kernel was dropped", *seen)
    return Roots(tuple(kept), variables, tuple(dropped))


def find_kernels(inputs: Inputs) -> tuple[Kernel, ...]:
    """All kernels that the sources define, with their export names, sorted by these."""
    found: dict[tuple[int | None, str], tuple[Source, Symbol]] = {}
    taken = {s.name for source in inputs.sources for s in source.summary.symbols if s.binding != "internal"}
    for number, source in enumerate(inputs.sources):
        for symbol in source.summary.symbols:
            if symbol.kind == "kernel" and symbol.is_definition:
                found.setdefault((number if symbol.binding == "internal" else None, symbol.name), (source, symbol))
    kernels: list[Kernel] = []
    for (index, name), (source, _) in sorted(
        found.items(), key=lambda e: (e[0][1], -1 if e[0][0] is None else e[0][0])
    ):
        export = _ILLEGAL.sub("_", f"kernel_{name}" if name[:1].isdigit() else name)
        if index is not None or export != name:
            export = _unique(export, source, taken)
            taken.add(export)
        kernels.append(Kernel(name, export, crate_of(name) or source.crate, path_of(name), index))
    return tuple(sorted(kernels, key=lambda kernel: kernel.export))


def _order(key: tuple[int | None, str]) -> tuple[bool, str, int]:
    """External names first: they keep their names."""
    index, name = key
    return index is not None, name, -1 if index is None else index


def _unique(name: str, source: Source, taken: set[str]) -> str:
    """`name`, or a name made from it and the crate that nobody has."""
    if name not in taken:
        return name
    stem = f"{name}_{_ILLEGAL.sub('_', source.crate)}"
    candidates = (stem, *(f"{stem}_{number}" for number in range(2, len(taken) + 3)))
    return next(candidate for candidate in candidates if candidate not in taken)


def _exported_variables(inputs: Inputs, exports: tuple[str, ...] | None) -> tuple[str, ...]:
    defined = (
        symbol
        for source in inputs.sources
        for symbol in source.summary.symbols
        if symbol.kind == "variable" and symbol.is_definition and symbol.binding != "internal"
    )
    # rustc lists exports for a cdylib only: none at all says nothing about a `bin`.
    wanted = set(exports) if exports else None
    return tuple(
        sorted(
            {
                symbol.name
                for symbol in defined
                if not symbol.section.startswith(".rglink.") or symbol.section == ".rglink.constant"
                if symbol.addrspace != 3
                if (symbol.name in wanted if wanted is not None else _is_by_hand_root(symbol.name))
            }
        )
    )


def _is_by_hand_root(name: str) -> bool:
    return not _COMPILERS_OWN.match(name) and not is_mangled(name)


def _without_twins(
    kernels: Sequence[Kernel], inputs: Inputs, request: RootRequest
) -> tuple[list[Kernel], list[Dropped]]:
    """One kernel for each instance of a generic, however many crates made it; the others are dropped.

    An instance's name says which generic of which crate, with which arguments: such kernels are compiled from one
    source and differ in name alone. A protected crate's is preferred. One that was asked for by its symbol stays.
    """
    asked = {*request.keep, *(request.kernels_from or ())}
    protected = _protection(inputs)
    first: dict[str, Kernel] = {}
    dropped: list[Dropped] = []
    for kernel in sorted(kernels, key=lambda kernel: (not protected[kernel.source, kernel.symbol], kernel.export)):
        instance = kernel.symbol if asked & {kernel.symbol, kernel.export} else instance_of(kernel.symbol)
        twin = first.setdefault(instance, kernel)
        if twin is not kernel and instance != kernel.symbol:
            dropped.append(Dropped(kernel, f"the same instance as {twin.export}"))
    gone = {entry.kernel for entry in dropped}
    return [kernel for kernel in kernels if kernel not in gone], dropped


def _protection(inputs: Inputs) -> dict[tuple[int | None, str], bool]:
    """Whether the module that defines a kernel is known to be unharmed, by the kernel's source and symbol."""
    found: dict[tuple[int | None, str], bool] = {}
    for index, source in enumerate(inputs.sources):
        for symbol in source.summary.symbols:
            if symbol.kind == "kernel" and symbol.is_definition:
                key = index if symbol.binding == "internal" else None, symbol.name
                found[key] = found.get(key, True) and source.summary.protected is not False
    return found


def _reason_to_drop(kernel: Kernel, request: RootRequest) -> str:
    for pattern in request.drop:
        if matches(pattern, kernel):
            return f"--drop {pattern}"
    if request.keep and not any(matches(pattern, kernel) for pattern in request.keep):
        return "no --keep pattern matches it"
    if request.kernels_from is not None and not request.kernels_from & {kernel.symbol, kernel.export}:
        return "--kernels-from does not name it"
    return ""


def matches(pattern: str, kernel: Kernel) -> bool:
    """Whether a pattern names a kernel: by symbol or by Rust path, exactly or as a glob."""
    names = (kernel.symbol, kernel.export, kernel.path, demangle(kernel.symbol))
    return pattern in names or any(fnmatchcase(name, pattern) for name in names)


def _report_unmatched(kernels: Sequence[Kernel], request: RootRequest, diags: Diagnostics) -> None:
    asked: list[tuple[str, Sequence[str], Callable[[str, Kernel], bool]]] = [
        ("--keep", request.keep, matches),
        ("--drop", request.drop, matches),
        (
            "--kernels-from",
            sorted(request.kernels_from or ()),
            lambda name, kernel: name in (kernel.symbol, kernel.export),
        ),
    ]
    for option, patterns, test in asked:
        for pattern in patterns:
            if any(test(pattern, kernel) for kernel in kernels):
                continue
            near = near_misses(pattern, kernels)
            cure = f"did you mean {' or '.join(near)}?" if near else None
            seen = () if near else _listed("kernel here", (kernel.path for kernel in kernels))
            diags.error("no-such-kernel", f"{option} {pattern}: no kernel has this name", *seen, cure=cure)


def near_misses(pattern: str, kernels: Sequence[Kernel]) -> list[str]:
    """Up to three names or paths of kernels that resemble a pattern."""
    plain = pattern.strip("*").removesuffix("::")
    names = {name for kernel in kernels for name in (kernel.export, kernel.path)}
    last = {kernel.path.rsplit("::", 1)[-1]: kernel.path for kernel in kernels}
    close = difflib.get_close_matches(plain, sorted(names), 3)
    close += [last[word] for word in difflib.get_close_matches(plain, sorted(last), 3)]
    return sorted(set(close), key=close.index)[:3]


def _listed(what: str, names: Iterable[str], limit: int = 10) -> tuple[str, ...]:
    ordered = sorted(set(names))
    lines = [f"{what}: {name}" for name in ordered[:limit]]
    if len(ordered) > limit:
        lines.append(f"and {len(ordered) - limit} more")
    return tuple(lines)


def _report_no_kernels(inputs: Inputs, diags: Diagnostics) -> None:
    lines: list[str] = []
    for source in inputs.sources:
        functions = [s for s in source.summary.symbols if s.kind == "function" and s.is_definition]
        lines.append(f"{source.name}: kernels 0, device functions {len(functions)}")
    diags.error(
        "no-kernels",
        "no kernels found",
        *lines[:10],
        *([f"and {len(lines) - 10} more modules"] if len(lines) > 10 else []),
        cure='declare kernels as `#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn`',
    )

"""Declarations that disagree with the definition they are linked to, and kernels called as functions.

Only a declaration that live code uses is compared, and only with the definition that prevails: two declarations may
differ harmlessly, and attributes are the optimizer's business. LLVM's linker and NVIDIA's say nothing of any of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rglink.demangle import demangle
from rglink.diagnostics import Diagnostics
from rglink.irinst import Call, instructions, read_call
from rglink.irtext import Item, ModuleText
from rglink.lto.driver import DRIVER_FUNCTIONS
from rglink.lto.resolve import Definition, Resolution
from rglink.lto.sources import Source, describe, parse_source
from rglink.lto.summary import value_size
from rglink.lto.wording import Wording
from rglink.objfmt.summary import Symbol


@dataclass(frozen=True)
class _Disagreement:
    slug: str
    message: str
    cure: str | None = None


def check_mismatches(resolution: Resolution, diags: Diagnostics) -> None:
    """Compare every live declaration with its definition, and look for calls of kernels.

    Reports `mismatched-kind`, `mismatched-type`, `mismatched-size`, `mismatched-addrspace`, `mismatched-constant`
    and `kernel-called`.
    """
    _check_kernel_calls(resolution, diags)
    for name, source, declared in _live_declarations(resolution):
        definition = resolution.prevailing.get(name)
        if definition is not None:
            _compare(name, source, declared, definition, resolution, diags)
        elif name in DRIVER_FUNCTIONS and declared.type != DRIVER_FUNCTIONS[name]:
            diags.error(
                "mismatched-type",
                f"{name}: declared with another type than the CUDA driver's function has",
                f"declared as {_shown(declared)} in {describe(source)}",
                f"the driver's is function {DRIVER_FUNCTIONS[name]}",
            )


def _live_declarations(resolution: Resolution) -> Iterator[tuple[str, Source, Symbol]]:
    """(name, source, symbol) of each declaration that a live definition of the same source mentions."""
    mentioned: dict[int, set[str]] = {}
    for node in resolution.live:
        symbol = resolution.symbol_of(node)
        if symbol is not None:
            index = node[0] if node[0] >= 0 else resolution.prevailing[node[1]].source
            mentioned.setdefault(index, set()).update(symbol.refs)
    found: list[tuple[str, tuple[str, str, str], int, Symbol]] = []
    for index, names in mentioned.items():
        source = resolution.sources[index]
        found += [
            (symbol.name, source.key, index, symbol)
            for symbol in source.summary.symbols
            if not symbol.is_definition and symbol.name in names
        ]
    for name, _, index, symbol in sorted(found, key=lambda entry: entry[:3]):
        yield name, resolution.sources[index], symbol


def _compare(
    name: str, source: Source, declared: Symbol, definition: Definition, resolution: Resolution, diags: Diagnostics
) -> None:
    home = resolution.sources[definition.source]
    if _is_moved_static(source, declared, home, definition.symbol):
        declared = replace(declared, addrspace=definition.symbol.addrspace)
    found = _disagreement(declared, definition.symbol)
    if found is None:
        return
    diags.error(
        found.slug,
        f"{demangle(name)}: {found.message}",
        f"declared as {_shown(declared)} in {describe(source)}",
        f"defined as {_shown(definition.symbol)} in {describe(home, name)}",
        cure=found.cure,
    )


def _is_moved_static(source: Source, declared: Symbol, home: Source, defined: Symbol) -> bool:
    """Whether one crate's `.rglink.` static is named by another, whose rustc repeats no section on declarations.

    LLVM's linker makes a cast of the declaration when both meet, and the device ABI's second step folds it.
    """
    both_rust = all("rustc version" in each.summary.ident for each in (source, home))
    return both_rust and declared.kind == "variable" and declared.addrspace == 0 and defined.addrspace in (3, 4)


def _disagreement(declared: Symbol, defined: Symbol) -> _Disagreement | None:
    """The first way in which two sides differ, the coarsest first."""
    if declared.kind == "function" and defined.kind == "kernel":
        return None  # harmless unless it is called, which `kernel-called` is for
    if _code(declared) != _code(defined) or (declared.kind == "kernel") != (defined.kind == "kernel"):
        message = f"declared as a {declared.kind}, defined as a {_kind(defined)}"
        return _Disagreement("mismatched-kind", message)
    if declared.addrspace != defined.addrspace:
        message = "declared in another address space than it is defined in"
        return _Disagreement("mismatched-addrspace", message, _space_cure(declared, defined))
    if _code(declared):
        if _same_function(declared.type, defined.type):
            return None
        return _Disagreement("mismatched-type", "declared with another type than it is defined with")
    if not _same_size(declared.type, defined.type):
        return _Disagreement("mismatched-size", "declared with another size than it is defined with")
    if declared.constant and not defined.constant and defined.kind == "variable":
        cure = "declare it mutable: reads of a constant are folded and never see what is written"
        return _Disagreement("mismatched-constant", "declared constant, defined mutable", cure)
    return None


def _code(symbol: Symbol) -> bool:
    """Whether a symbol is code; an alias is what its type says."""
    return symbol.kind in ("function", "kernel") or (symbol.kind == "alias" and symbol.type.endswith(")"))


def _kind(symbol: Symbol) -> str:
    return ("function" if _code(symbol) else "variable") if symbol.kind == "alias" else symbol.kind


def _space_cure(declared: Symbol, defined: Symbol) -> str | None:
    if 3 in (declared.addrspace, defined.addrspace):
        return "shared memory (address space 3) must be declared as such wherever it is used"
    return None


def _same_function(declared: str, defined: str) -> bool:
    """Whether two function types agree; a C declaration without prototype, `T (...)`, agrees with any parameters."""
    if declared == defined:
        return True
    result, _, parameters = declared.partition(" (")
    return parameters == "...)" and result == defined.partition(" (")[0]


def _same_size(declared: str, defined: str) -> bool:
    """Whether two value types take the same room; a declared `[0 x T]` is an array of unknown length."""
    if declared == defined or re.match(r"\[0 x ", declared):
        return True
    sizes = value_size(declared), value_size(defined)
    return None in sizes or sizes[0] == sizes[1]


def _shown(symbol: Symbol) -> str:
    """ "constant variable [4 x i32] in address space 4", "function i32 (i32)"."""
    constant = "constant " if symbol.constant and not _code(symbol) else ""
    space = f" in address space {symbol.addrspace}" if symbol.addrspace else ""
    return f"{constant}{_kind(symbol)} {symbol.type}{space}"


def _check_kernel_calls(resolution: Resolution, diags: Diagnostics) -> None:
    """Report `kernel-called` for each call of a kernel in live code. Taking a kernel's address is no call."""
    suspects: dict[int, set[str]] = {}
    for node in resolution.live:
        symbol = resolution.symbol_of(node)
        if symbol is None or symbol.kind not in ("function", "kernel"):
            continue
        index = node[0] if node[0] >= 0 else resolution.prevailing[node[1]].source
        if any(_kernel(resolution, index, ref) for ref in symbol.refs):
            suspects.setdefault(index, set()).add(symbol.name)
    for index in sorted(suspects, key=lambda index: resolution.sources[index].key):
        source = resolution.sources[index]
        text = ModuleText.parse(parse_source(source.form, source.data, source.name).text())
        wording = Wording(text)
        for item in sorted(text.of_kind("define"), key=lambda item: item.name):
            if item.name in suspects[index]:
                _report_calls(item, index, resolution, wording, diags)


def _kernel(resolution: Resolution, index: int, name: str) -> Source | None:
    """The source of the kernel that `name` means inside source `index`, None when it means no kernel."""
    node = resolution.node(index, name)
    symbol = resolution.symbol_of(node)
    return resolution.source_of(node) if symbol is not None and symbol.kind == "kernel" else None


def _report_calls(item: Item, index: int, resolution: Resolution, wording: Wording, diags: Diagnostics) -> None:
    for call in _calls_of(item):
        home = _kernel(resolution, index, call.callee)
        if home is None:
            continue
        line = wording.line(call.suffix)
        diags.error(
            "kernel-called",
            f"device code calls kernel {demangle(call.callee)}",
            f"called by {demangle(item.name)}{f' at {line}' if line else ''}"
            f" in {describe(resolution.sources[index], item.name)}",
            f"kernel defined in {describe(home, call.callee)}",
            cure="only the host can start a kernel: move its body to a plain function and call that from both",
        )


def _calls_of(item: Item) -> Iterator[Call]:
    for instruction in instructions(item.body):
        if instruction.opcode in ("call", "invoke") and "@" in instruction.rest:
            yield read_call(instruction)

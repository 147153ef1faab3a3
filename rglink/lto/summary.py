"""Make a `ModuleSummary` from IR: what each global is, and which globals its definition refers to.

A kernel is what has the `ptx_kernel` convention. LLVM gives it to the functions that `!nvvm.annotations` of foreign IR
calls kernels as it reads a module (`UpgradeNVVMAnnotations` in AutoUpgrade.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from rglink.callgraph import mentioned
from rglink.ir import Module
from rglink.irtext import Item, ModuleText, global_names, read_function, read_variable, skip_type
from rglink.irtypes import layout_of
from rglink.lto.protect import classify
from rglink.objfmt.summary import Binding, Kind, ModuleSummary, Symbol

# What a linkage means for a definition; `appending` is only ever LLVM's own (`llvm.used`, `llvm.global_ctors`).
_DEFINED: dict[str, Binding] = {
    "external": "strong",
    "internal": "internal",
    "weak": "weak",
    "linkonce": "linkonce",
    "common": "common",
    "available_externally": "available_externally",
}
_ALIAS_LINKAGE = {
    "private": "internal",
    "internal": "internal",
    "weak": "weak",
    "weak_odr": "weak",
    "linkonce": "linkonce",
    "linkonce_odr": "linkonce",
    "available_externally": "available_externally",
}
_RENAMED_TYPE = re.compile(r'(%(?:"[^"]*?|[-a-zA-Z$._0-9]*?))\.\d+("?)(?![-a-zA-Z$._0-9"])')
_FUNCTION_LINKAGE = {**_ALIAS_LINKAGE, "extern_weak": "extern_weak"}
_USED = ("llvm.used", "llvm.compiler.used")


def summarize(module: Module, protected: bool | None = None) -> ModuleSummary:
    """The summary of a module, from the text that LLVM prints for it (about 10 MB/s).

    `protected` is what the caller knows of barriers and shared memory (see `ModuleSummary`); without it
    `protect.classify` tells.
    """
    text = ModuleText.parse(module.text())
    if protected is None:
        protected = {"protected": True, "unprotected": False, "unknown": None}[classify(text).state]
    return summarize_text(text, protected)


def summarize_text(text: ModuleText, protected: bool | None = None) -> ModuleSummary:
    """As `summarize`, for a module already printed."""
    symbols: list[Symbol] = []
    used: list[str] = []
    for item in text.of_kind("variable", "alias", "define", "declare"):
        if item.name in _USED:
            used += global_names(item.head.split(" = ", 1)[1])
        elif not item.name.startswith("llvm."):
            symbol = _symbol(item)
            # A global without a name (`@0`) cannot be linked to, whatever its linkage says.
            unnamed = item.name.isdigit() and f"@{item.name}" in item.head and symbol.is_definition
            symbols.append(replace(symbol, binding="internal") if unnamed else symbol)
    symbols.sort(key=lambda symbol: symbol.name)
    return ModuleSummary(triple_of(text), "; ".join(text.idents()), protected, tuple(symbols), tuple(sorted(set(used))))


def triple_of(text: ModuleText) -> str:
    """The target triple, "" when the module names none."""
    for item in text.of_kind("target"):
        match = re.match(r'target triple = "([^"]*)"', item.head)
        if match:
            return match[1]
    return ""


def normalized_type(text: str) -> str:
    """A type without the `.N` that LLVM appends to a named struct read a second time."""
    return _RENAMED_TYPE.sub(r"\1\2", text) if "%" in text else text


def value_size(type_: str) -> int | None:
    """Bytes that a value of a type takes in memory, None where the text does not tell (named and opaque types)."""
    try:
        return layout_of(type_, {}).size
    except ValueError:
        return None


def _symbol(item: Item) -> Symbol:
    if item.kind == "variable":
        return _variable(item)
    if item.kind == "alias":
        return _alias(item)
    return _function(item)


def _variable(item: Item) -> Symbol:
    variable = read_variable(item.head)
    if variable.initializer is None:
        binding: Binding = "extern_weak" if variable.linkage == "extern_weak" else "undefined"
    else:
        binding = _DEFINED.get(variable.linkage, "strong")
    refs = _others(item.name, global_names(variable.initializer or ""))
    return Symbol(
        item.name, "variable", binding, normalized_type(variable.type), variable.addrspace, variable.constant,
        variable.section, variable.align, refs,
    )  # fmt: skip


def _alias(item: Item) -> Symbol:
    words, _, rest = item.head.split(" = ", 1)[1].partition("alias " if " alias " in f" {item.head}" else "ifunc ")
    linkage = next((_ALIAS_LINKAGE[word] for word in words.split() if word in _ALIAS_LINKAGE), "external")
    end = skip_type(rest, 0)
    if rest[end : end + 2] == " (":  # a function type: its parameter list follows the return type
        end = rest.index(")", end) + 1
    space = re.search(r"ptr addrspace\((\d+)\)", rest[end:])
    refs = _others(item.name, global_names(rest[end:]))
    kind: Kind = "alias"
    addrspace = int(space[1]) if space else 0
    return Symbol(item.name, kind, _DEFINED[linkage], normalized_type(rest[:end]), addrspace, refs=refs)


def _function(item: Item) -> Symbol:
    head = _quick_head(item.head) or _full_head(item.head)
    if item.kind == "define":
        binding = _DEFINED.get(head.linkage, "strong")
    else:
        binding = "extern_weak" if head.linkage == "extern_weak" else "undefined"
    section = re.search(r'(?:^| )section "([^"]*)"', head.suffix)
    align = re.search(r"(?:^| )align (\d+)", head.suffix)
    return Symbol(
        item.name, "kernel" if head.is_kernel else "function", binding,
        normalized_type(head.type), section=section[1] if section else "", align=int(align[1]) if align else 0,
        refs=_others(item.name, mentioned(item)),
    )  # fmt: skip


class _Head(NamedTuple):
    """What a summary needs of a function's first line; `linkage` is one of irtext's words."""

    linkage: str
    is_kernel: bool
    type: str
    suffix: str


# A head of rustc's: return and parameter types without structs, vectors and address spaces; attributes in one level
# of parentheses. Anything else is taken apart by `read_function`, which costs ten times as much.
_QUICK = re.compile(
    r"""(?:define|declare)\ ((?:[a-z_]+(?:\([^()]*\))?\ )*?)(i\d+|ptr|void|float|double|half|\[\d+\ x\ \w+\])\ @
        (?:"[^"]*"|[-a-zA-Z$._0-9]+)\(((?:[^()<{"]|\([^()]*\))*)\)([^<{"]*)""",
    re.VERBOSE,
)
_IN_PARENTHESES = re.compile(r"\([^()]*\)")
_QUICK_PARAMETER = re.compile(r"\s*(\[\d+ x \w+\]|\w+|\.\.\.)")


def _quick_head(line: str) -> _Head | None:
    match = _QUICK.match(line)
    if match is None or "addrspace" in line or "target(" in line:
        return None
    parameters = _IN_PARENTHESES.sub("", match[3])
    types = [_QUICK_PARAMETER.match(part) for part in parameters.split(",")] if parameters else []
    if None in types or "x [" in parameters:
        return None
    words = match[1].split()
    linkage = next((_FUNCTION_LINKAGE[word] for word in words if word in _FUNCTION_LINKAGE), "external")
    return _Head(
        linkage, "ptx_kernel" in words, f"{match[2]} ({', '.join(found[1] for found in types if found)})", match[4]
    )


def _full_head(line: str) -> _Head:
    function = read_function(line)
    kernel = function.calling_convention == "ptx_kernel"
    return _Head(function.linkage, kernel, function.type, function.suffix)


def _others(own: str, names: Iterator[str]) -> tuple[str, ...]:
    """Names sorted, each once, without the symbol's own and LLVM's intrinsics."""
    return tuple(sorted({name for name in names if name != own and not name.startswith("llvm.")}))

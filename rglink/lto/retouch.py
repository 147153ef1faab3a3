"""Edits of a module's text before it is merged, for what LLVM's API does not reach.

`@llvm.used` lists are cut down to statics that must stay; aliases that nobody wants go, those that lost to another
definition become declarations; comdats go, because the resolution has chosen already; kernels get their names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from rglink.ir import Module
from rglink.irtext import Item, ModuleText, global_names, quote, rename_globals
from rglink.lto.resolve import is_used_root
from rglink.objfmt.summary import ModuleSummary, Symbol

_COMDAT = re.compile(r',? comdat(?:\(\$(?:"[^"]*"|[-a-zA-Z$._0-9]+)\))?')
_NULL = "rglink.null"
_USED = ("llvm.used", "llvm.compiler.used")


def needs_retouching(summary: ModuleSummary) -> bool:
    """Whether a module holds anything that only its text can change.

    rustc makes no comdats for this target; clang puts them on inline functions, which are linkonce or weak.
    """
    comdats = "rustc version" not in summary.ident
    return bool(summary.used) or any(
        symbol.kind == "alias" or (comdats and symbol.binding in ("linkonce", "weak")) for symbol in summary.symbols
    )


def retouch(
    module: Module,
    summary: ModuleSummary,
    wanted: Collection[str],
    lost: Collection[str],
    renamed: Mapping[str, str],
) -> None:
    """Apply the edits: `wanted` names survive, `lost` ones are defined elsewhere, `renamed` maps kernels' names."""
    text = ModuleText.parse(module.text())
    symbols = {symbol.name: symbol for symbol in summary.symbols}
    edited: list[Item] = []
    for item in text.items:
        if item.kind == "variable" and item.name in _USED:
            edited += _used_list(item, symbols)
        elif item.kind == "alias" and item.name in lost:
            edited.append(_declaration(item, symbols[item.name]))
        elif item.kind == "alias" and item.name not in wanted and symbols[item.name].binding != "internal":
            edited.append(_local_alias(item))
        elif item.kind != "comdat":
            edited.append(item)
    for item in edited:
        if item.kind in ("variable", "define", "declare"):
            item.head = _COMDAT.sub("", item.head)
    text.items = edited
    if renamed:
        text.rename(renamed.get)
    module.replace(text.render())


def _used_list(item: Item, symbols: Mapping[str, Symbol]) -> list[Item]:
    """The list with only the entries that are roots, nothing when there is none."""
    names = [name for name in global_names(item.head.split(" = ", 1)[1]) if name in symbols]
    kept = sorted({name for name in names if is_used_root(symbols[name])})
    if not kept:
        return []
    entries = ", ".join(_pointer(symbols[name]) for name in kept)
    head = f'{quote(item.name)} = appending global [{len(kept)} x ptr] [{entries}], section "llvm.metadata"'
    return [Item("variable", item.name, head)]


def _pointer(symbol: Symbol) -> str:
    if symbol.addrspace:
        return f"ptr addrspacecast (ptr addrspace({symbol.addrspace}) {quote(symbol.name)} to ptr)"
    return f"ptr {quote(symbol.name)}"


def _declaration(item: Item, symbol: Symbol) -> Item:
    name = quote(symbol.name)
    if symbol.type.endswith(")"):
        result, _, rest = symbol.type.partition(" (")
        return Item("declare", symbol.name, f"declare {result} {name}({rest}")
    space = f"addrspace({symbol.addrspace}) " if symbol.addrspace else ""
    return Item("variable", symbol.name, f"{name} = external {space}global {symbol.type}")


def _local_alias(item: Item) -> Item:
    token, _, rest = item.head.partition(" = ")
    words, _, tail = rest.partition("alias ")
    kept = [word for word in words.split() if word in ("unnamed_addr", "local_unnamed_addr")]
    return Item("alias", item.name, f"{token} = {' '.join(['internal', *kept])} alias {tail}")


def nullify(module: Module, names: Collection[str]) -> None:
    """Put null in place of weak references that nobody defines (LangRef, "Linkage Types", `extern_weak`)."""
    text = ModuleText.parse(module.text())
    text.items = [item for item in text.items if item.kind not in ("declare", "variable") or item.name not in names]
    for item in text.items:
        item.head = _with_null(item.head, names)
        item.body = [_with_null(line, names) for line in item.body]
    module.replace(text.render())


def _with_null(line: str, names: Collection[str]) -> str:
    marked = rename_globals(line, lambda name: _NULL if name in names else None)
    return line if marked == line else marked.replace(quote(_NULL), "null")

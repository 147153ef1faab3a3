"""Aliases replaced by what they stand for: PTX has no second name for a variable or a kernel."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from rglink.diagnostics import Diagnostics
from rglink.irtext import (
    Item,
    ModuleText,
    expect_equal,
    global_names,
    quote,
    read_function,
    rename_globals,
    skip_type,
    split_commas,
    unquote,
)

_ALIAS = re.compile(r" = .*?\b(alias|ifunc) ")
_LOCAL = re.compile(r'^(define |@(?:"[^"]*"|[-\w.$]+) = )(?:internal|private) ')
_PLACEHOLDER = "rglink.alias."
_STRING_OR_PLACEHOLDER = re.compile(r'"[^"]*"|@rglink\.alias\.(\d+)')


def replace_aliases(text: ModuleText, exported: Collection[str], diags: Diagnostics) -> int:
    """Put each alias's aliasee in its place; returns how many aliases there were.

    `exported` are the names the host uses. An exported alias of a kernel becomes a kernel of its own with the same
    body; of something that is not exported itself, the alias's name becomes its name. An exported alias of an
    exported variable is error `exported-alias`: one variable cannot have two names. An `ifunc` is error `ifunc`.

    Raises:
        EditMismatch: a use of an alias is left, which is a bug.
    """
    aliases = {item.name: item for item in text.of_kind("alias")}
    values: dict[str, str] = {}
    for name in sorted(aliases):
        word, value = _read_alias(aliases[name])
        values[name] = value
        if word == "ifunc":
            diags.error("ifunc", f"{name}: a function that is chosen at load time (ifunc) cannot run on a GPU")
    if not values:
        return 0
    text.items = [item for item in text.items if item.kind != "alias"]
    resolved = {name: _resolve(name, values) for name in sorted(values)}
    for name in sorted(exported):
        if name in resolved:
            _give_name(text, name, resolved, exported, diags)
    for item in text.items:
        item.head = _substitute(item.head, resolved)
        item.body = [_substitute(line, resolved) for line in item.body]
    defined = {item.name for item in text.of_kind("variable", "define")}
    left = [n for item in text.items for line in item.lines() for n in global_names(line) if n in aliases]
    expect_equal("uses of aliases", len(left), sum(1 for name in left if name in defined))
    return len(values)


def _read_alias(item: Item) -> tuple[str, str]:
    """("alias" or "ifunc", aliasee as printed without its type)."""
    match = _ALIAS.search(item.head)
    assert match is not None, item.head
    # "alias TYPE, ptr @OPERAND[, partition ...]"; LLVM prints an expression without its type.
    operand = split_commas(item.head[match.end() :])[1]
    start = skip_type(operand, 0) if operand.startswith("ptr ") else 0
    return match[1], operand[start:].strip()


def _resolve(name: str, values: Mapping[str, str]) -> str:
    """The aliasee with aliases inside it followed to the end."""
    value = values[name]
    while inner := [other for other in global_names(value) if other in values]:
        value = _substitute(value, {other: values[other] for other in inner})
    return value


def _substitute(line: str, values: Mapping[str, str]) -> str:
    """The line with each named global replaced by an operand's text."""
    if "@" not in line:
        return line
    names = sorted(values)
    line = rename_globals(line, lambda name: f"{_PLACEHOLDER}{names.index(name)}" if name in values else None)
    return _STRING_OR_PLACEHOLDER.sub(lambda m: m[0] if m[1] is None else values[names[int(m[1])]], line)


def _give_name(
    text: ModuleText, name: str, resolved: dict[str, str], exported: Collection[str], diags: Diagnostics
) -> None:
    """Make a definition of an exported alias, and take it out of `resolved`."""
    value = resolved[name]
    target = text.named().get(unquote(value)) if re.fullmatch(r'@("[^"]*"|[-\w.$]+)', value) else None
    if target is None:
        diags.error("exported-alias", f"{name}: an exported alias of an expression has no form in PTX")
        return
    if target.name not in exported:
        old = target.name
        del resolved[name]
        for other in resolved:
            resolved[other] = _substitute(resolved[other], {old: quote(name)})
        text.rename({old: name}.get)
        target.head = _LOCAL.sub(r"\1", target.head)
    elif target.kind == "define" and read_function(target.head).calling_convention == "ptx_kernel":
        del resolved[name]
        head = rename_globals(target.head, {target.name: name}.get)
        text.items.insert(text.items.index(target) + 1, Item("define", name, head, list(target.body)))
    else:
        message = f"{name}: an alias of {target.name}, which is exported too; one thing has one name in PTX"
        diags.error("exported-alias", message, cure="export one of them")

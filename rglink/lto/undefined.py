"""Undefined symbols, all in one go: who asks for them, from which kernel, and what the user can do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

from rglink.callgraph import CallGraph
from rglink.demangle import crate_of, demangle, path_of
from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import ModuleText, global_names
from rglink.lto.driver import DRIVER_FUNCTIONS
from rglink.lto.merge import preserved_names
from rglink.lto.places import Places
from rglink.lto.resolve import Resolution
from rglink.lto.sources import Inputs
from rglink.lto.wording import Wording

HOOK_PREFIX = "__rglink_"
_LIBC = frozenset({"memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen"})
_DEVICE_RUNTIME = re.compile(r"cuda[A-Z]\w*|__cudaCDP\w*|__cudaLaunch\w*|cnpv2\w*")
_SHOWN_USERS = 3
_NEAR = 0.75  # difflib ratio from which a name counts as a misspelling


def check_undefined(
    module: Module, resolution: Resolution, inputs: Inputs, diags: Diagnostics, elsewhere: Collection[str] = ()
) -> None:
    """Report every undefined symbol of the merged module, once each, sorted by name.

    `elsewhere` are names that inputs of other kinds (PTX, LTO-IR, cubins) define. What only dead code asks for is no
    error: gc went first. Reports `undefined-symbol` and `unknown-hook`.
    """
    names = sorted(module.undefined_names() - DRIVER_FUNCTIONS.keys() - set(elsewhere))
    if not names:
        return
    text = ModuleText.parse(module.text())
    found = _Users(text, resolution)
    for name in names:
        if name.startswith(HOOK_PREFIX):
            _report_hook(name, found, diags)
        else:
            cure = _cure(name, resolution, inputs)
            diags.error("undefined-symbol", f"undefined symbol: {demangle(name)}", *found.places(name), cure=cure)


class _Users:
    """Who mentions a name in the merged module, in words."""

    def __init__(self, text: ModuleText, resolution: Resolution) -> None:
        self._graph = CallGraph.of(text)
        self._roots = sorted(preserved_names(resolution) | _used(text))
        self._items = text.named()
        self._wording = Wording(text)
        self._places = Places(resolution)

    def places(self, name: str) -> list[str]:
        users = sorted(user for user, refs in self._graph.refs.items() if name in refs)
        chain = self._graph.chain(self._roots, name)
        if len(chain) > 1:  # the user on the shortest chain comes first
            users = [chain[-2], *(user for user in users if user != chain[-2])]
        lines = [self._line(user, name) for user in users[:_SHOWN_USERS]]
        if len(users) > _SHOWN_USERS:
            lines.append(f"and from {len(users) - _SHOWN_USERS} more")
        if len(chain) > 2:
            lines.append(f"chain: {' -> '.join(demangle(link) for link in chain)}")
        return lines

    def _line(self, user: str, name: str) -> str:
        line = self._source_line(user, name)
        where = f" at {line}" if line else ""
        return f"referenced by {demangle(user)}{where}{self._places.suffix(user)}"

    def _source_line(self, user: str, name: str) -> str | None:
        for text in self._items[user].body:
            if name in global_names(text) and "!dbg" in text:
                return self._wording.line(text)
        return None


def _used(text: ModuleText) -> set[str]:
    lists = (item for item in text.of_kind("variable") if item.name in ("llvm.used", "llvm.compiler.used"))
    return {name for item in lists for name in global_names(item.head.split(" = ", 1)[1])}


def _report_hook(name: str, users: _Users, diags: Diagnostics) -> None:
    diags.error(
        "unknown-hook",
        f"unknown hook: {name}",
        *users.places(name),
        cure="this version of rglink builds no __rglink_* hooks: use the sections .rglink.shared and .rglink.constant",
    )


def _cure(name: str, resolution: Resolution, inputs: Inputs) -> str | None:
    if name.startswith("__nv_"):
        return "it is a function of NVIDIA's libdevice, which this version does not link: use core's float methods"
    if _DEVICE_RUNTIME.fullmatch(name):
        return "it is a function of NVIDIA's device runtime (cudadevrt), which this version does not link"
    if name in _LIBC:
        return "compiler_builtins defines it: link the device's libcompiler_builtins.rlib"
    same = _same_path(name, resolution)
    if same:
        return f"{same} defines another build's {path_of(name)}: compile both crates against one build"
    near = _near_misses(name, resolution, inputs)
    return f"did you mean {' or '.join(near)}?" if near else None


def _same_path(name: str, resolution: Resolution) -> str:
    """A source that defines the same Rust path under another hash."""
    if not crate_of(name):
        return ""
    path = path_of(name)
    for source in resolution.sources:
        for symbol in source.summary.symbols:
            if symbol.is_definition and symbol.name != name and path_of(symbol.name) == path:
                return source.name
    return ""


def _near_misses(name: str, resolution: Resolution, inputs: Inputs) -> list[str]:
    """Up to three defined names that a misspelling may have meant, readable."""
    defined: set[str] = set()
    for source in resolution.sources:
        defined |= {s.name for s in source.summary.symbols if s.is_definition and s.kind != "kernel"}
    for archive in inputs.archives:
        defined |= archive.symbols.keys()
    readable = _readable(defined)
    return [near for near in difflib.get_close_matches(path_of(name), readable, 3, _NEAR) if near != path_of(name)]


def _readable(names: Iterable[str]) -> list[str]:
    return sorted({path_of(name) for name in names})

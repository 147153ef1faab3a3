"""Kernels and variables by the names that people write: the symbol, the Rust path, or the end of one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from rglink.demangle import demangle, path_of


def symbols_called(name: str, known: Sequence[str]) -> tuple[str, ...]:
    """The symbols of `known` that `name` means: one if it is exact, several if it is not enough, none."""
    if name in known:
        return (name,)
    for names_of in (demangle, path_of, lambda symbol: path_of(symbol).rsplit("::", 1)[-1]):
        found = tuple(symbol for symbol in known if names_of(symbol) == name)
        if found:
            return found
    return ()


def nearest_name(name: str, known: Sequence[str]) -> str:
    """The symbol or Rust path most like `name`, "" if none is."""
    readable = {text for symbol in known for text in (symbol, path_of(symbol), demangle(symbol))}
    near = difflib.get_close_matches(name, sorted(readable), 1)
    if not near:
        ends = {text.rsplit("::", 1)[-1]: text for text in sorted(readable)}
        near = [ends[end] for end in difflib.get_close_matches(name, list(ends), 1)]
    return near[0] if near else ""

"""The check of the whole program for crates that a stock rustc optimized (device ABI, "Protected and unprotected")."""

from __future__ import annotations

from rglink.diagnostics import Diagnostics
from rglink.irtext import ModuleText
from rglink.lto.protect import TRUSTED_CRATES, check_unprotected, classify
from rglink.lto.resolve import Resolution
from rglink.lto.sources import parse_source


def check_protection(resolution: Resolution, diags: Diagnostics) -> None:
    """Report `unprotected-crate` for live collectives and shared statics of unprotected crates.

    A protected module is read again only when another crate is unprotected: it may hold instances of its generics.
    """
    suspects = [
        index
        for index, source in enumerate(resolution.sources)
        if source.summary.protected is False and source.crate not in TRUSTED_CRATES
    ]
    if not suspects:
        return
    texts = {index: _text_of(resolution, index) for index, source in enumerate(resolution.sources) if not source.lazy}
    found = {index: classify(text) for index, text in texts.items()}
    crates = {protection.crate for protection in found.values() if protection.state == "unprotected"}
    for index, text in texts.items():
        check_unprotected(text, found[index], diags, crates - TRUSTED_CRATES, _live_names(resolution, index))


def _text_of(resolution: Resolution, index: int) -> ModuleText:
    source = resolution.sources[index]
    return ModuleText.parse(parse_source(source.form, source.data, source.name).text())


def _live_names(resolution: Resolution, index: int) -> set[str]:
    """Names of this source's own definitions that the program uses."""
    names = {symbol.name for symbol in resolution.sources[index].summary.symbols if symbol.is_definition}
    return {
        name
        for name in names
        if (index, name) in resolution.live
        or ((-1, name) in resolution.live and resolution.prevailing[name].source == index)
    }

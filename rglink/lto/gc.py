"""What the link kept and what it dropped, and why: `--print-gc`, `--why-live`, and a word on recursion."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from rglink.callgraph import cycles, direct_calls
from rglink.demangle import demangle, path_of
from rglink.diagnostics import Diagnostics
from rglink.irtext import ModuleText
from rglink.lto.places import Places
from rglink.lto.resolve import Node, Resolution, chain
from rglink.lto.roots import Dropped
from rglink.lto.sources import Source, describe
from rglink.objfmt.summary import Symbol

_NEAR = 0.75  # difflib ratio from which a name counts as a misspelling


@dataclass(frozen=True)
class Kept:
    """A definition of the merged program. `reason` is "kernel", "exported static", "used static" or "from NAME"."""

    name: str
    kind: str
    place: str
    reason: str


@dataclass(frozen=True)
class Gone:
    """A definition that the link left out, and why."""

    name: str
    kind: str
    place: str
    reason: str


@dataclass(frozen=True)
class GcReport:
    """Names are readable ones; both lists are sorted by kind (kernels first), name and place."""

    kept: tuple[Kept, ...]
    gone: tuple[Gone, ...]

    def render(self) -> str:
        """The report as lines for a person: what went, then what stayed."""
        lines = [f"dropped: {len(self.gone)}"]
        lines += [f"  {gone.kind} {gone.name} in {gone.place}: {gone.reason}" for gone in self.gone]
        lines.append(f"kept: {len(self.kept)}")
        lines += [f"  {kept.kind} {kept.name} in {kept.place}: {kept.reason}" for kept in self.kept]
        return "\n".join(lines) + "\n"


def gc_report(resolution: Resolution) -> GcReport:
    """Tell of every definition of the inputs whether it is in the program.

    Of lazy archives only what was taken out is told of: the rest was never read.
    """
    kept: list[Kept] = []
    gone: list[Gone] = []
    dropped = {(d.kernel.source, d.kernel.symbol): d for d in resolution.roots.dropped}
    for index, source in enumerate(resolution.sources):
        for symbol in source.summary.symbols:
            if not symbol.is_definition:
                continue
            node: Node = (index, symbol.name) if symbol.binding == "internal" else (-1, symbol.name)
            place = describe(source, symbol.name)
            winner = resolution.prevailing.get(symbol.name) if node[0] < 0 else None
            name = demangle(symbol.name)
            if node in resolution.live and (winner is None or winner.source == index):
                kept.append(Kept(name, symbol.kind, place, _reason_to_stay(resolution, node, symbol)))
            elif not source.lazy:
                decision = dropped.get((None if node[0] < 0 else index, symbol.name))
                gone.append(Gone(name, symbol.kind, place, _reason_to_go(resolution, node, decision)))
    return GcReport(tuple(sorted(kept, key=_order)), tuple(sorted(gone, key=_order)))


def _order(entry: Kept | Gone) -> tuple[bool, str, str, str]:
    return entry.kind != "kernel", entry.kind, entry.name, entry.place


def _reason_to_stay(resolution: Resolution, node: Node, symbol: Symbol) -> str:
    referrer = resolution.referrer[node]
    if referrer != node:
        return f"from {demangle(referrer[1])}"
    if symbol.kind == "kernel":
        return "kernel"
    return "exported static" if symbol.name in resolution.roots.variables else "used static"


def _reason_to_go(resolution: Resolution, node: Node, decision: Dropped | None) -> str:
    if decision is not None:
        return decision.reason
    if node in resolution.live:
        winner = resolution.source_of(node)
        return f"{describe(winner) if winner else 'another definition'} prevails"
    return "no root reaches it"


def why_live(resolution: Resolution, symbol: str, diags: Diagnostics) -> tuple[str, ...]:
    """Lines of the shortest chain of references from a root to `symbol` (a symbol's name or a Rust path).

    A name that nothing has is error `no-such-symbol` with near misses; one that is not in the program says so.
    """
    matching = sorted(node for node in resolution.live if symbol in _names(node[1]))
    if matching:
        return tuple(line for node in matching for line in _chain_lines(resolution, node))
    everything = {s.name for source in resolution.sources for s in source.summary.symbols if s.is_definition}
    if any(symbol in _names(name) for name in everything):
        return (f"{symbol} is not in the program: no root reaches it",)
    readable = sorted({path_of(name) for name in everything})
    near = difflib.get_close_matches(symbol, readable, 3, _NEAR)
    cure = f"did you mean {' or '.join(near)}?" if near else None
    diags.error("no-such-symbol", f"--why-live {symbol}: no input defines this name", cure=cure)
    return ()


def _names(name: str) -> tuple[str, str, str]:
    return name, demangle(name), path_of(name)


def _chain_lines(resolution: Resolution, node: Node) -> list[str]:
    nodes = chain(resolution, node)
    lines = [f"{demangle(node[1])} is live:"]
    for step, link in enumerate(nodes):
        source: Source | None = resolution.source_of(link)
        place = f" in {describe(source, link[1])}" if source else ""
        symbol = resolution.symbol_of(link)
        root = f" ({_reason_to_stay(resolution, link, symbol)})" if step == 0 and symbol else ""
        lines.append(f"{'  ' * (step + 1)}{demangle(link[1])}{place}{root}")
    return lines


def check_recursion(text: ModuleText, resolution: Resolution, diags: Diagnostics) -> tuple[tuple[str, ...], ...]:
    """Warn of every ring of functions that call each other, once each; returns the rings as names of the module.

    Reports `recursive-function`. Calls through pointers are not seen.
    """
    places = Places(resolution)
    rings = cycles(direct_calls(text))
    for ring in rings:
        _report_ring(ring, places, diags)
    return rings


def _report_ring(ring: Sequence[str], places: Places, diags: Diagnostics) -> None:
    names = [demangle(name) for name in ring]
    if len(ring) == 1:
        message = f"recursive function: {names[0]}; its stack size is unknown"
    else:
        message = f"recursive functions: {', '.join(names)}; their stack size is unknown"
    places_of = [f"{demangle(name)}{places.suffix(name)}" for name in ring]
    diags.report("recursive-function", message, *places_of)

"""Resolution: which definition of each name the link takes, and what each module has to bring.

The rule, which the order of the inputs does not enter: of several definitions of one name a strong one prevails,
then the largest common one, then weak, then linkonce; equals are told apart by `Source.key` (crate, member or file
name, content). Two strong ones are an error. `available_externally` copies never define anything. A lazy archive's
member is taken when a live name is defined nowhere else; of several members that define it, the first by archive
key and member index. What such a member defines besides never beats another input's definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from rglink.demangle import crate_of, demangle
from rglink.diagnostics import Diagnostics
from rglink.lto.extract import Extraction
from rglink.lto.roots import Roots
from rglink.lto.sources import Inputs, Source, describe
from rglink.lto.summary import value_size
from rglink.objfmt.summary import Binding, Symbol

_RANK: dict[Binding, int] = {"strong": 0, "common": 1, "weak": 2, "linkonce": 3}

# A definition or a use: (index of the source for internal names, else -1; name).
Node = tuple[int, str]


@dataclass(frozen=True)
class Definition:
    """A symbol and the source that brings it (index into `Resolution.sources`)."""

    source: int
    symbol: Symbol


@dataclass(frozen=True)
class Resolution:
    """The outcome. `sources` holds the inputs' sources, then the extracted members.

    `wanted[i]` are the external names that source `i` must bring and that survive in it; `live` is every live node;
    `referrer` maps a live node to the one through which it was first reached (roots map to themselves), so that it
    gives shortest chains; `undefined` are live names that nobody defines, each with the nodes that refer to it;
    `absent` are those among them that everybody declares weak, so that they are null;
    `locals` are each source's internal symbols.
    """

    sources: tuple[Source, ...] = field(repr=False)
    roots: Roots
    prevailing: Mapping[str, Definition] = field(repr=False)
    wanted: tuple[frozenset[str], ...] = field(repr=False)
    live: frozenset[Node] = field(repr=False)
    referrer: Mapping[Node, Node] = field(repr=False)
    undefined: Mapping[str, tuple[Node, ...]]
    absent: frozenset[str]
    locals: tuple[Mapping[str, Symbol], ...] = field(repr=False)

    def source_of(self, node: Node) -> Source | None:
        """The source that defines a node, None for an undefined name."""
        index, name = node
        if index < 0:
            definition = self.prevailing.get(name)
            return self.sources[definition.source] if definition else None
        return self.sources[index]

    def node(self, source: int, name: str) -> Node:
        """What `name` means inside a source."""
        return (source, name) if name in self.locals[source] else (-1, name)

    def symbol_of(self, node: Node) -> Symbol | None:
        index, name = node
        if index < 0:
            definition = self.prevailing.get(name)
            return definition.symbol if definition else None
        return self.locals[index].get(name)


def resolve_symbols(inputs: Inputs, roots: Roots, diags: Diagnostics) -> Resolution:
    """Choose definitions, close over what the roots refer to, and take members of lazy archives as needed.

    Reports `duplicate-symbol`.
    """
    extraction = Extraction(inputs.archives, inputs.pool)
    while True:
        sources = (*inputs.sources, *extraction.sources())
        table = _Table(sources)
        referrer = _reach(table, roots)
        missing = sorted(name for index, name in referrer if index < 0 and name not in table.prevailing)
        if not extraction.ask(missing):
            break
    # No further module joins after this line.
    _report_duplicates(table, diags)
    return _resolution(table, roots, referrer, missing)


class _Table:
    """The symbol table over all sources."""

    def __init__(self, sources: tuple[Source, ...]) -> None:
        self.sources = sources
        self.symbols = [{symbol.name: symbol for symbol in source.summary.symbols} for source in sources]
        self.candidates: dict[str, list[Definition]] = {}
        for index, source in enumerate(sources):
            for symbol in source.summary.symbols:
                if symbol.binding in _RANK:
                    self.candidates.setdefault(symbol.name, []).append(Definition(index, symbol))
        self.prevailing = {name: min(found, key=self._rank) for name, found in self.candidates.items()}

    def _rank(self, definition: Definition) -> tuple[bool, int, int, tuple[str, str, str]]:
        symbol, source = definition.symbol, self.sources[definition.source]
        size = (value_size(symbol.type) or 0) if symbol.binding == "common" else 0
        return source.lazy, _RANK[symbol.binding], -size, source.key

    def node(self, source: int, name: str) -> Node:
        """What `name` means inside a source."""
        symbol = self.symbols[source].get(name)
        return (source, name) if symbol is not None and symbol.binding == "internal" else (-1, name)

    def refs(self, node: Node) -> list[Node]:
        index, name = node
        if index < 0:
            definition = self.prevailing.get(name)
            if definition is None:
                return []
            index, symbol = definition.source, definition.symbol
        else:
            symbol = self.symbols[index][name]
        return [self.node(index, ref) for ref in symbol.refs]


def _reach(table: _Table, roots: Roots) -> dict[Node, Node]:
    """Breadth first from the roots: each live node with the node it was first reached from."""
    referrer: dict[Node, Node] = {}
    front: list[Node] = []
    for node in _root_nodes(table, roots):
        if node not in referrer:
            referrer[node] = node
            front.append(node)
    while front:
        following: list[Node] = []
        for node in front:
            for ref in table.refs(node):
                if ref not in referrer:
                    referrer[ref] = node
                    following.append(ref)
        front = following
    return referrer


def _root_nodes(table: _Table, roots: Roots) -> list[Node]:
    nodes: list[Node] = [(-1 if k.source is None else k.source, k.symbol) for k in roots.kernels]
    nodes += [(-1, name) for name in roots.variables]
    for index, source in enumerate(table.sources):
        for name in source.summary.used:
            symbol = table.symbols[index].get(name)
            if symbol is not None and is_used_root(symbol):
                nodes.append(table.node(index, name))
    return nodes


def is_used_root(symbol: Symbol) -> bool:
    """Whether an entry of `@llvm.used` keeps its global: a static that is no metadata of the device ABI."""
    return symbol.kind == "variable" and symbol.is_definition and not symbol.section.startswith(".rglink.")


def _resolution(table: _Table, roots: Roots, referrer: dict[Node, Node], missing: list[str]) -> Resolution:
    wanted: list[set[str]] = [set() for _ in table.sources]
    users: dict[str, list[Node]] = {name: [] for name in missing}
    for index, name in referrer:
        if index < 0 and name in table.prevailing:
            wanted[table.prevailing[name].source].add(name)
    for kernel in roots.kernels:
        if kernel.source is not None:
            wanted[kernel.source].add(kernel.symbol)
    for node in sorted(referrer):
        for _, name in table.refs(node):
            if name in users:
                users[name].append(node)
    weak = {name for name in missing if _only_weakly_wanted(table, name)}
    return Resolution(
        table.sources,
        roots,
        MappingProxyType(table.prevailing),
        tuple(frozenset(names) for names in wanted),
        frozenset(referrer),
        MappingProxyType(referrer),
        MappingProxyType({name: tuple(found) for name, found in users.items() if name not in weak}),
        frozenset(weak),
        tuple(
            MappingProxyType({name: s for name, s in symbols.items() if s.binding == "internal"})
            for symbols in table.symbols
        ),
    )


def _only_weakly_wanted(table: _Table, name: str) -> bool:
    """Whether every source that mentions `name` declares it `extern_weak`, so that it may be null."""
    bindings = {symbols[name].binding for symbols in table.symbols if name in symbols}
    return bindings == {"extern_weak"}


def _report_duplicates(table: _Table, diags: Diagnostics) -> None:
    for name, found in sorted(table.candidates.items()):
        strong = [d for d in found if d.symbol.binding == "strong" and not table.sources[d.source].lazy]
        strong.sort(key=lambda d: table.sources[d.source].key)
        if len(strong) < 2:
            continue
        places = [f"defined in {describe(table.sources[d.source], name)}" for d in strong]
        diags.error("duplicate-symbol", f"duplicate symbol: {demangle(name)}", *places, cure=_duplicate_cure(name))


def _duplicate_cure(name: str) -> str | None:
    if crate_of(name):
        return "two crates were compiled with one name and one -Cmetadata: give each its own --metadata"
    return None


def chain(resolution: Resolution, node: Node) -> list[Node]:
    """The shortest chain of references from a root to `node`, root first."""
    path = [node]
    while (before := resolution.referrer[path[-1]]) != path[-1]:
        path.append(before)
    return path[::-1]

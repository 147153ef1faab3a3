"""Members of lazy archives: parsed when a name is asked for, and then known by what that name needs.

A member is parsed once, and of its globals only those are printed that are needed: most of core is not.
"""

from __future__ import annotations

from collections.abc import Iterable

from rglink.ir import Module
from rglink.irtext import ModuleText, global_names
from rglink.lto.sources import LazyArchive, ModulePool, Source, digest_of, parse_source
from rglink.lto.summary import summarize_text

MemberKey = tuple[int, int]  # archive, member


class _Member:
    """One parsed member. `texts` are the printed globals that what was asked of it needs, by name."""

    def __init__(self, module: Module) -> None:
        self._text_of = module.texts()
        self.asked: set[str] = set()
        self.texts: dict[str, str] = {}

    def ask(self, name: str) -> None:
        self.asked.add(name)
        front = [name]
        while front:
            current = front.pop()
            text = None if current in self.texts else self._text_of(current)
            if text is not None:
                self.texts[current] = text
                front += {ref for line in text.splitlines() for ref in global_names(line)}

    def part(self) -> ModuleText:
        """The printed globals as items."""
        return ModuleText.parse("\n".join(self.texts[name].strip() for name in sorted(self.texts)))


class Extraction:
    """What has been taken out of a link's lazy archives so far; parsed members wait in `pool`."""

    def __init__(self, archives: Iterable[LazyArchive], pool: ModulePool) -> None:
        self._archives = sorted(archives, key=lambda archive: archive.key)
        self._pool = pool
        self._members: dict[MemberKey, _Member] = {}
        self._sources: dict[MemberKey, Source] = {}

    def sources(self) -> tuple[Source, ...]:
        """The extracted members, each with a summary of what was asked of it and what that needs."""
        return tuple(self._sources[key] for key in sorted(self._sources))

    def ask(self, names: Iterable[str]) -> bool:
        """Extract the members that define `names`; whether anything new came."""
        changed: set[MemberKey] = set()
        for name in names:
            key = self._find(name)
            if key is None:
                continue
            member = self._member(key)
            if name not in member.asked:
                member.ask(name)
                changed.add(key)
        for key in sorted(changed):
            self._sources[key] = self._source(key)
        return bool(changed)

    def undefined(self) -> set[str]:
        """Names that the extracted code refers to and that no extracted member brings."""
        symbols = [symbol for source in self._sources.values() for symbol in source.summary.symbols]
        brought = {symbol.name for symbol in symbols if symbol.is_definition and symbol.binding != "internal"}
        return {symbol.name for symbol in symbols if symbol.binding == "undefined"} - brought

    def modules(self) -> list[Module]:
        """The extracted members as modules that hold what is needed of each, ordered by `Source.key`."""
        needed = {
            symbol.name
            for source in self._sources.values()
            for symbol in source.summary.symbols
            if symbol.binding == "undefined"
        }
        parts: list[tuple[tuple[str, str, str], Module]] = []
        for key, source in self._sources.items():
            module = self._pool.take(source)
            kept = (self._members[key].asked | needed) & self._members[key].texts.keys()
            module.set_linkage(sorted(kept), "external")
            module.internalize(kept)
            module.run("globaldce")
            parts.append((source.key, module))
        return [module for _, module in sorted(parts, key=lambda part: part[0])]

    def _find(self, name: str) -> MemberKey | None:
        for index, archive in enumerate(self._archives):
            member = archive.symbols.get(name)
            if member is not None:
                return index, member
        return None

    def _member(self, key: MemberKey) -> _Member:
        if key not in self._members:
            data = self._archives[key[0]].members[key[1]].data
            module = parse_source("bitcode", data, self._archives[key[0]].member_name(key[1]))
            self._members[key] = _Member(module)
            self._pool.put(digest_of(data), module)
        return self._members[key]

    def _source(self, key: MemberKey) -> Source:
        archive = self._archives[key[0]]
        member = archive.members[key[1]]
        summary = summarize_text(self._members[key].part())
        digest = digest_of(member.data)
        return Source(archive.file, member.name, archive.crate, "bitcode", member.data, digest, summary, True)

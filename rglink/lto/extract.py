"""Members of lazy archives: parsed when a name is asked for, pruned to what was asked, again when more is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.sources import Form, LazyArchive, Source, digest_of, parse_source
from rglink.lto.summary import summarize_text
from rglink.objfmt.summary import Binding, ModuleSummary

_BINDING: dict[str, Binding] = {
    "external": "strong",
    "weak_any": "weak",
    "weak_odr": "weak",
    "linkonce_any": "linkonce",
    "linkonce_odr": "linkonce",
    "common": "common",
}


class Extraction:
    """What has been taken out of a link's lazy archives so far."""

    def __init__(self, archives: Iterable[LazyArchive]) -> None:
        self._archives = sorted(archives, key=lambda archive: archive.key)
        self._asked: dict[tuple[int, int], set[str]] = {}
        self._sources: dict[tuple[int, int], Source] = {}

    def sources(self) -> tuple[Source, ...]:
        """The extracted members, each with a summary of what was asked of it and what that needs."""
        return tuple(self._sources[key] for key in sorted(self._sources))

    def ask(self, names: Iterable[str]) -> bool:
        """Extract the members that define `names`; whether anything new came."""
        stale: set[tuple[int, int]] = set()
        for name in names:
            found = self._find(name)
            if found is None or name in self._asked.get(found, ()):
                continue
            self._asked.setdefault(found, set()).add(name)
            stale.add(found)
        for key in sorted(stale):
            self._sources[key] = self._extract(key)
        return bool(stale)

    def undefined(self) -> set[str]:
        """Names that the extracted code refers to and that no extracted member brings."""
        brought = {
            symbol.name
            for source in self._sources.values()
            for symbol in source.summary.symbols
            if symbol.is_definition and symbol.binding != "internal"
        }
        wanted = {
            symbol.name
            for source in self._sources.values()
            for symbol in source.summary.symbols
            if symbol.binding == "undefined"
        }
        return wanted - brought

    def modules(self) -> list[Module]:
        """The extracted members as modules that hold what was asked of each, ordered by `Source.key`."""
        parts: list[tuple[tuple[str, str, str], Module]] = []
        for key, source in self._sources.items():
            module = parse_source(source.form, source.data, source.name)
            module.set_linkage(sorted(self._asked[key]), "external")
            module.internalize(self._asked[key])
            module.run("globaldce")
            parts.append((source.key, module))
        return [module for _, module in sorted(parts, key=lambda part: part[0])]

    def _find(self, name: str) -> tuple[int, int] | None:
        for index, archive in enumerate(self._archives):
            member = archive.symbols.get(name)
            if member is not None:
                return index, member
        return None

    def _extract(self, key: tuple[int, int]) -> Source:
        archive = self._archives[key[0]]
        member = archive.members[key[1]]
        name = archive.member_name(key[1])
        form: Form = "bitcode"
        module = parse_source(form, member.data, name)
        original = {g.name: _BINDING.get(g.linkage) for g in module.globals() if not g.is_declaration}
        module.internalize(self._asked[key])
        module.run("globaldce")
        summary = summarize_text(ModuleText.parse(module.text()))
        digest = digest_of(member.data)
        return Source(
            archive.file, member.name, archive.crate, form, member.data, digest, _restored(summary, original), True
        )


def _restored(summary: ModuleSummary, original: dict[str, Binding | None]) -> ModuleSummary:
    """The summary with the bindings from before pruning, so that a stronger definition elsewhere still prevails."""
    symbols = tuple(
        replace(symbol, binding=original.get(symbol.name) or symbol.binding) if symbol.binding == "internal" else symbol
        for symbol in summary.symbols
    )
    return replace(summary, symbols=symbols)

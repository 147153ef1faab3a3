"""Where a symbol of the merged module came from, in words: file, member, crate."""

from __future__ import annotations

import re

from rglink.lto.resolve import Resolution
from rglink.lto.sources import Source, describe


class Places:
    """Finds the source of a name of the merged module, also when LLVM or the link renamed it."""

    def __init__(self, resolution: Resolution) -> None:
        self._sources: dict[str, Source] = {}
        for node in sorted(resolution.live, reverse=True):  # external names, which sort first, win
            source = resolution.source_of(node)
            if source is not None:
                self._sources[node[1]] = source
        for kernel in resolution.roots.kernels:
            source = self._sources.get(kernel.symbol)
            if source is not None:
                self._sources.setdefault(kernel.export, source)

    def source(self, name: str) -> Source | None:
        """The source of a name; the number that LLVM appends to a second local name (`TILE1`) is seen through."""
        return self._sources.get(name) or self._sources.get(re.sub(r"\.?\d+\Z", "", name))

    def suffix(self, name: str) -> str:
        """ " in FILE (crate C)" when the source is known, else ""."""
        source = self.source(name)
        return f" in {describe(source, name)}" if source else ""

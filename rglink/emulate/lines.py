"""Where instructions come from: `.loc` directives, with the calls at which their functions were inlined.

Source: PTX ISA, "Debugging Directives": `.loc`. `inlined_at` names a location that an earlier `.loc` gave, which may
have been inlined itself. LLVM up to 22 writes no `inlined_at`, libNVVM does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rglink.emulate.constants import TokenStream, constant_of_sum
from rglink.emulate.ptx import Source

# Rust's own library: as its builders name it, or as an installed copy of its sources is found.
LIBRARY = re.compile(r"(?:^|/)(?:rustc/[0-9a-f]{7,}|lib/rustlib/src/rust)/library/")


def is_library(file: str) -> bool:
    """Whether a file is of Rust's own library."""
    return LIBRARY.search(file) is not None


def library_place(source: Source) -> str:
    """`core/src/num/mod.rs:7` for a line of the library."""
    return f"{LIBRARY.split(source[0])[-1]}:{source[1]}"


class LineReader:
    """Follows the `.loc` directives of one function: `loc`, `within` and `inlined_at` as `Instruction` has them."""

    def __init__(self, files: Mapping[int, str]) -> None:
        self.files = files
        self.loc: Source | None = None
        self.within: Source | None = None
        self.inlined_at: tuple[Source, ...] = ()
        self._user: Source | None = None
        self._chains: dict[tuple[int, int, int], tuple[Source, ...]] = {}

    def read(self, stream: TokenStream) -> None:
        """What follows `.loc`."""
        position = self._position(stream)
        outer: tuple[Source, ...] = ()
        while stream.text == "," and stream.tokens[stream.at + 1].text in ("function_name", "inlined_at"):
            stream.take()
            if stream.take() == "function_name":
                stream.take()
                constant_of_sum(stream)
            else:
                at = self._position(stream)
                outer = self._chains.get(at) or (self._source(at),)
        if not position[1]:  # Line 0 means code of no line; the last line before it is nearer than none.
            return
        chain = self._chains[position] = (self._source(position), *outer)
        own = tuple(source for source in chain if source[1] and not is_library(source[0]))
        if own:
            self.loc, self.within, self.inlined_at = own[0], None, own[1:]
            self._user = own[0]
        elif self._user is not None:
            self.loc, self.within, self.inlined_at = self._user, chain[0], ()
        else:
            self.loc, self.within, self.inlined_at = chain[0], None, ()

    def _position(self, stream: TokenStream) -> tuple[int, int, int]:
        return stream.integer(), stream.integer(), stream.integer()

    def _source(self, position: tuple[int, int, int]) -> Source:
        return self.files.get(position[0], f"file {position[0]}"), position[1]

"""Where something stands, in words: function, crate, source line."""

from __future__ import annotations

import re

from rglink.demangle import crate_of, demangle
from rglink.irtext import ModuleText, Variable, unquote

_NODE = re.compile(r"(!\d+) = (?:distinct )?(!\w+\(.*|!\{.*)$")
_FIELD = re.compile(r'(\w+): (![0-9]+|"[^"]*"|[^,()]+)')


def readable(name: str) -> str:
    """A global's name as its author knows it."""
    return demangle(name)


class Wording:
    """Reads the debug info of one module when it is first asked for."""

    def __init__(self, text: ModuleText) -> None:
        self._text = text
        self._nodes: dict[str, str] | None = None

    def place(self, function: str, suffix: str = "") -> str:
        """ "in FUNCTION of crate K (FILE:LINE)" for code with this text after it (`, !dbg !7`): what is known of it."""
        line, crate = self.line(suffix), crate_of(function) or self.crate
        of_crate = f" of crate {crate}" if crate else ""
        return f"in {readable(function)}{of_crate}" + (f" ({line})" if line else "")

    def static(self, variable: Variable) -> tuple[str, ...]:
        """The place of a static, where its crate is known."""
        crate = crate_of(variable.name) or self.crate
        return (f"in crate {crate}",) if crate else ()

    @property
    def crate(self) -> str:
        """The crate that rustc compiled into this module, by its source_filename `k.1e05a79da20ad57d-cgu.0`."""
        for item in self._text.of_kind("target"):
            match = re.match(r'source_filename = "([A-Za-z_][A-Za-z0-9_]*)\.[0-9a-f]+-cgu\.', item.head)
            if match:
                return match[1]
        return ""

    def line(self, suffix: str) -> str | None:
        """ "src/lib.rs:12" from a `!dbg` attachment."""
        match = re.search(r"!dbg (!\d+)", suffix)
        if match is None:
            return None
        location = self._fields(match[1])
        for _ in range(100):  # out of what was inlined, to the function in which the code stands now
            location = self._fields(location["inlinedAt"]) if "inlinedAt" in location else location
        number = location.get("line")
        scope = location.get("scope")
        for _ in range(100):  # lexical blocks nest; a cycle would be damage
            if scope is None or number is None:
                return None
            fields = self._fields(scope)
            if "file" in fields:
                name = self._fields(fields["file"]).get("filename", '""')
                return f"{unquote(name)}:{number}"
            scope = fields.get("scope")
        return None

    def _fields(self, node: str) -> dict[str, str]:
        if self._nodes is None:
            matches = (_NODE.match(item.head) for item in self._text.of_kind("metadata"))
            self._nodes = {match[1]: match[2] for match in matches if match}
        return dict(_FIELD.findall(self._nodes.get(node, "")))

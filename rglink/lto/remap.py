"""`--remap-path-prefix`: source paths in debug info, so that a moved build gives the same bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rglink.irtext import ModuleText

_FILE = re.compile(r'(filename|directory): "([^"]*)"')


def remap_paths(text: ModuleText, prefixes: Sequence[tuple[str, str]]) -> int:
    """Replace prefixes in the paths of `DIFile` nodes, as rustc does: the last pair that fits wins, whole path
    components only. Returns how many paths changed."""
    changed = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal changed
        for old, new in reversed(prefixes):
            path = match[2]
            if path == old or path.startswith(old.rstrip("/") + "/"):
                changed += 1
                return f'{match[1]}: "{new}{path[len(old.rstrip("/")) :]}"'
        return match[0]

    for item in text.of_kind("metadata"):
        if "!DIFile(" in item.head:
            item.head = _FILE.sub(replace, item.head)
    return changed

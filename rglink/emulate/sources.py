"""Quotes source lines where the files are there.

Paths in line tables are mostly relative to the folder in which somebody compiled: they are looked for under the given
folders, and then with leading parts left off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

PLACE = re.compile(r"(?:near )?(?P<file>[^\s:][^:]*?):(?P<line>[1-9]\d*)(?::\d+)?(?=[\s,:)]|$)")
LARGEST_SOURCE = 4 << 20


def source_line(file: str, line: int, folders: Sequence[Path]) -> str | None:
    """Line `line` (from 1) of a source file, without indentation; None if it is not found."""
    path = find_source(file, tuple(folders))
    if path is None:
        return None
    lines = _lines(path)
    return lines[line - 1].strip() if line <= len(lines) else None


@lru_cache(maxsize=256)
def find_source(file: str, folders: tuple[Path, ...]) -> Path | None:
    """The file that a line table means."""
    path = Path(file)
    if path.is_absolute():
        return path if path.is_file() else None
    parts = [part for part in path.parts if part != "."]
    if ".." in parts:
        return None
    for skipped in range(max(1, len(parts) - 1)):
        for folder in folders:
            found = folder.joinpath(*parts[skipped:])
            if found.is_file():
                return found
    return None


@lru_cache(maxsize=64)
def _lines(path: Path) -> tuple[str, ...]:
    try:
        if path.stat().st_size > LARGEST_SOURCE:
            return ()
        return tuple(path.read_text("utf-8", "replace").splitlines())
    except OSError:
        return ()


def quoted(places: Iterable[str], folders: Sequence[Path]) -> tuple[str, ...]:
    """Places, each that begins with `file:line` followed by that line where the file is there."""
    found: list[str] = []
    for place in places:
        found.append(place)
        match = PLACE.match(place)
        text = source_line(match["file"], int(match["line"]), folders) if match is not None else None
        if match is not None and text:
            found.append(f"{match['line']:>5} | {text}")
    return tuple(found)

"""The walls between rooms, the doors to foreign libraries, and the sizes (ARCHITECTURE.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "rglink"
MODULES = sorted(ROOT.rglob("*.py"))

# Left may import right; rooms that share a rank never see each other.
RANKS: dict[str, int] = {
    "frontend": 0,
    "pytest_plugin": 0,
    "link": 1,
    "images": 1,
    "emulate": 1,
    "lto": 2,
    "nvjitlink": 2,
    "inline": 3,
    "callgraph": 4,
    "trace": 5,
    "cache": 5,
    "worker": 5,
    "objfmt": 6,
    "ir": 6,
    "options": 6,
    "arch": 7,
    "demangle": 7,
    "diagnostics": 8,
}
# Modules that together make the room `ir`.
ROOM_OF = {"irtext": "ir", "irinst": "ir", "irtypes": "ir"}
DOORS: dict[str, set[str]] = {
    "llvmlite": {"ir.py"},
    "cuda": {"nvjitlink"},
    "elftools": {"objfmt"},
    "zstandard": {"objfmt"},
    "networkx": {"callgraph.py"},
    "click": {"frontend"},
    "numpy": {"emulate"},
    "pytest": {"pytest_plugin.py"},
}
FORBIDDEN_WORDS = {"process", "handle", "manager", "helper", "helpers", "utils", "common"}
MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 40


def room_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return ROOM_OF.get(first, first)


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, dotted module) of every import, late ones included, those for type checking left out."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module in ("rglink", "rglink.nvjitlink", "rglink.lto", "rglink.objfmt", "rglink.frontend"):
                found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, node.module))
    return found


def test_the_package_is_seen_whole() -> None:
    rooms = {room_of(path) for path in MODULES}
    assert rooms - {"__init__"} == set(RANKS) & rooms, "a room without a rank"
    assert {"frontend", "link", "lto", "nvjitlink", "objfmt", "ir"} <= rooms


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_room_imports_to_its_left(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    for line, module in imports(path):
        parts = module.split(".")
        if parts[0] != "rglink" or len(parts) == 1 or parts[1] == "__version__":
            continue
        other = ROOM_OF.get(parts[1], parts[1])
        assert other == room or RANKS[room] < RANKS[other], f"{path.name}:{line}: {room} imports {other}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_foreign_library_has_one_door(path: Path) -> None:
    first = path.relative_to(ROOT).parts[0]
    for line, module in imports(path):
        doors = DOORS.get(module.split(".")[0])
        assert doors is None or first in doors, f"{path.name}:{line}: {module} has its door in {doors}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sizes_and_names(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MAX_MODULE_LINES, f"{path.name} is longer than {MAX_MODULE_LINES} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            words = set(node.name.lower().strip("_").split("_"))
            assert not words & FORBIDDEN_WORDS, f"{path.name}:{node.lineno}: {node.name}"
        if isinstance(node, ast.FunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{path.name}:{node.lineno}: {node.name} has {length} lines"


def test_the_plain_link_path_does_not_import_slow_libraries() -> None:
    """networkx and click (0.3 to 0.5 s) stay out of what `rglink a.rgo -o b.fatbin` imports."""
    top_level = {"networkx", "click"}
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            assert not {name.split(".")[0] for name in names} & top_level, f"{path.name}:{node.lineno}"

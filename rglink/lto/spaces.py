"""Step 2 of the device ABI: statics that name shared or constant memory move to their address space.

It must happen before any pass that looks at globals: in the generic space LLVM may split a shared static, or make
it a private local of its only kernel. In addrspace(3) it may not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from rglink.diagnostics import Diagnostics
from rglink.irtext import (
    Item,
    ModuleText,
    Variable,
    expect_equal,
    global_names,
    quote,
    read_variable,
    split_commas,
    unquote,
)
from rglink.irtypes import layout_of, named_types
from rglink.lto.derived import CONSTANT, SHARED, mentions_space, retarget_accesses
from rglink.lto.wording import Wording, readable

SHARED_SECTION = ".rglink.shared"
CONSTANT_SECTION = ".rglink.constant"
# The program's one dynamic pool. In a crate its name carries the alignment that is asked for, because merging
# symbols of one name would lose it: `__rglink_dynamic_shared.16`. There it is a weak definition: defined for the
# linker, and of unknown size for LLVM, to which an access to an array that is known to be empty is undefined.
POOL = "__rglink_dynamic_shared"
_USED = ("llvm.used", "llvm.compiler.used")
_MOVES = re.compile(r'section "\.rglink\.(?:shared|constant)"|addrspace\(3\)')


@dataclass(frozen=True)
class MoveCounts:
    """Statics moved to shared and constant memory, arrays folded into the dynamic pool, and uses rewritten."""

    shared: int = 0
    constant: int = 0
    pools: int = 0
    uses: int = 0

    @property
    def changed(self) -> bool:
        return self != MoveCounts()


@dataclass(frozen=True)
class _Move:
    """Uses of a global in the generic space become a cast of `target` (a token) from address space `space`."""

    target: str
    space: int

    @property
    def cast(self) -> str:
        return f"addrspacecast (ptr addrspace({self.space}) {self.target} to ptr)"


def move_statics(text: ModuleText, diags: Diagnostics) -> MoveCounts:
    """Move the statics of `.rglink.shared` and `.rglink.constant`; rewrite their uses as casts.

    Reports `initialised-shared`, `constant-in-constant-section`, and `shared-address` where a static's initializer
    holds the address of shared memory.
    """
    types = named_types(text)
    wording = Wording(text)
    moves: dict[str, _Move] = {}
    pools: set[int] = set()
    counts = {"shared": 0, "constant": 0, "pools": 0}
    for item in text.of_kind("variable"):
        if not _MOVES.search(item.head):
            continue
        variable = read_variable(item.head)
        kind = _kind(variable, types)
        if kind in ("shared", "initialised") and not _is_undefined(variable):
            _report_initialised(variable, wording, diags)
        if kind == "pool":
            moves[variable.name] = _enter_pool(item, variable, pools)
            counts["pools"] += 1
        elif kind in ("shared", "constant"):
            moves[variable.name] = _move(item, variable, kind, diags)
            counts[kind] += 1
    _add_pools(text, pools)
    uses = _rewrite_uses(text, moves, diags)
    return MoveCounts(counts["shared"], counts["constant"], counts["pools"], uses)


def _kind(variable: Variable, types: Mapping[str, str]) -> Literal["shared", "constant", "pool", "initialised", ""]:
    if variable.addrspace == SHARED:
        return "initialised" if variable.initializer is not None else ""
    if variable.addrspace != 0:
        return ""
    if variable.section == CONSTANT_SECTION:
        return "constant"
    if variable.section != SHARED_SECTION:
        return ""
    return "pool" if layout_of(variable.type, types).size == 0 else "shared"


def _is_undefined(variable: Variable) -> bool:
    return variable.initializer is None or _undefined_value(variable.initializer)


def _undefined_value(value: str) -> bool:
    """Whether a constant holds no defined byte: undef, poison, or an aggregate of such."""
    if value in ("undef", "poison"):
        return True
    for opening, closing in (("<{", "}>"), ("{", "}"), ("[", "]")):
        if value.startswith(opening) and value.endswith(closing):
            parts = split_commas(value[len(opening) : -len(closing)].strip())
            return bool(parts) and all(part.endswith((" undef", " poison")) for part in parts)
    return False


def _report_initialised(variable: Variable, wording: Wording, diags: Diagnostics) -> None:
    value = variable.initializer or ""
    shown = value if len(value) <= 40 else value[:37] + "..."
    diags.error(
        "initialised-shared",
        f"shared static `{readable(variable.name)}` has an initial value ({shown}): shared memory starts without one,"
        " nothing runs before a kernel that could store it",
        *wording.static(variable),
        cure="declare it as MaybeUninit::uninit() and let the kernel write it before a barrier",
    )


def _without_section(suffix: str) -> str:
    return re.sub(r', section "\.rglink\.[a-z]+"', "", suffix)


def _move(item: Item, variable: Variable, kind: Literal["shared", "constant"], diags: Diagnostics) -> _Move:
    suffix = _without_section(variable.suffix)
    if kind == "shared":
        value = None if variable.initializer is None else "undef"
        moved = replace(variable, addrspace=SHARED, constant=False, initializer=value, suffix=suffix)
    else:
        prefix = variable.prefix
        if variable.initializer is not None and "externally_initialized" not in prefix.split():
            prefix = f"{prefix} externally_initialized"
        moved = replace(variable, addrspace=CONSTANT, prefix=prefix, suffix=suffix)
        if variable.constant:
            diags.report(
                "constant-in-constant-section",
                f"`{readable(variable.name)}` in {CONSTANT_SECTION} is immutable: rustc may have put its value into the"
                " code already, where a host that writes it changes nothing",
                cure="wrap the value in UnsafeCell, with #[used] on the static",
            )
    item.head = moved.render()
    return _Move(quote(variable.name), moved.addrspace)


def _enter_pool(item: Item, variable: Variable, pools: set[int]) -> _Move:
    """A zero-length static: its uses become the pool's. One that other crates may name stays, as its sign."""
    align = max(variable.align, 1)
    pools.add(align)
    if variable.linkage == "internal":
        item.kind, item.head, item.name = "blank", "", ""
    else:
        suffix = _without_section(variable.suffix)
        value = None if variable.initializer is None else "undef"
        sign = replace(variable, addrspace=SHARED, constant=False, type="[0 x i8]", initializer=value, suffix=suffix)
        item.head = sign.render()
    return _Move(quote(f"{POOL}.{align}"), SHARED)


def _add_pools(text: ModuleText, pools: set[int]) -> None:
    existing = text.named() if pools else {}
    for align in sorted(pools):
        if f"{POOL}.{align}" not in existing:
            text.add(f"@{POOL}.{align} = weak addrspace(3) global [0 x i8] undef, align {align}")


def fold_pools(text: ModuleText) -> int:
    """Make one dynamic pool, with the largest alignment, of all zero-length arrays in shared memory.

    Returns the number of arrays folded. For the merged program: a launch gives one size for all of them.
    """
    types = named_types(text)
    found: dict[str, int] = {}
    for item in text.of_kind("variable"):
        if "addrspace(3)" not in item.head:
            continue
        variable = read_variable(item.head)
        if variable.addrspace == SHARED and layout_of(variable.type, types).size == 0:
            found[item.name] = max(variable.align, layout_of(variable.type, types).align)
    if not found or set(found) == {POOL}:
        return 0
    text.items = [item for item in text.items if item.kind != "variable" or item.name not in found]
    _drop_from_used(text, set(found))
    text.rename(lambda name: POOL if name in found else None)
    text.add(f"@{POOL} = external addrspace(3) global [0 x i8], align {max(found.values())}")
    return len(found)


def _rewrite_uses(text: ModuleText, moves: Mapping[str, _Move], diags: Diagnostics) -> int:
    """Put a cast wherever a moved global is named; the type before it, where there is one, stays `ptr`."""
    if not moves:
        return 0
    _drop_from_used(text, {name for name, move in moves.items() if move.space == SHARED})
    seen = changed = 0
    for item in text.items:
        if item.kind in ("variable", "alias"):
            _check_initializer(item, moves, diags)
        seen += sum(name in moves for line in [item.head, *item.body] for name in global_names(line))
        # The name at the start of its own definition stays.
        begin = len(quote(item.name)) if item.kind in ("variable", "alias") else 0
        seen -= 1 if begin and item.name in moves else 0
        tail, count = _rewrite_line(item.head[begin:], moves)
        item.head = item.head[:begin] + tail
        changed += count
        for position, line in enumerate(item.body):
            item.body[position], count = _rewrite_line(line, moves)
            changed += count
    expect_equal("uses of moved statics", seen, changed)
    return changed


_NAME_OR_STRING = re.compile(r'@(?:"[^"]*"|[-a-zA-Z$._0-9]+)|[c!]?"[^"]*"|;.*')


def _rewrite_line(line: str, moves: Mapping[str, _Move]) -> tuple[str, int]:
    """The line with each moved name replaced by its cast, and how many there were."""
    if "@" not in line:
        return line, 0
    count = 0

    def put(match: re.Match[str]) -> str:
        nonlocal count
        move = moves.get(unquote(match[0])) if match[0].startswith("@") else None
        if move is None:
            return match[0]
        count += 1
        return move.cast

    return _NAME_OR_STRING.sub(put, line), count


def _check_initializer(item: Item, moves: Mapping[str, _Move], diags: Diagnostics) -> None:
    if item.name in _USED:
        return
    own = 0 if item.kind == "variable" else 1
    names = list(global_names(item.head))[1:]
    for name in names:
        if name in moves and moves[name].space == SHARED:
            what = ("static", "alias")[own]
            diags.error(
                "shared-address",
                f"{what} `{readable(item.name)}` holds the address of shared static `{readable(name)}`, which differs"
                " from block to block: it can be taken in a kernel only",
            )


def _drop_from_used(text: ModuleText, names: set[str]) -> None:
    """Take shared statics off `@llvm.used`: the host cannot see them, and a dead one needs no place."""
    for item in text.of_kind("variable"):
        if item.name not in _USED or not names & set(global_names(item.head)):
            continue
        variable = read_variable(item.head)
        entries = split_commas((variable.initializer or "[]")[1:-1])
        kept = [entry for entry in entries if not names & set(global_names(entry))]
        if kept:
            kept_type = f"[{len(kept)} x ptr]"
            item.head = replace(variable, type=kept_type, initializer=f"[{', '.join(kept)}]").render()
        else:
            item.kind, item.head, item.name = "blank", "", ""


def access_spaces(text: ModuleText, diags: Diagnostics) -> int:
    """Send the loads, stores and atomics on moved statics to their space; returns how many were changed.

    Reports `constant-store` for a write to a constant static.
    """
    wording = Wording(text)
    changed = 0
    for item in text.of_kind("define"):
        if not mentions_space(item):
            continue
        before = list(item.body)
        counts = retarget_accesses(item, {})
        changed += counts.changed
        for index in counts.constant_stores:
            diags.error(
                "constant-store",
                "write to constant memory, which only the host can change",
                wording.place(item.name, before[index]),
            )
    return changed

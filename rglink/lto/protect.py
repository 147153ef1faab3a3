"""Whether a crate was compiled so that its barriers and shared memory are still what its author wrote.

rustc's own optimizer copies calls of barriers into both arms of a branch, and LLVM under rustc makes private
locals of shared statics; neither can be seen afterwards. Crates compiled with the flags of `rgcc` or of the rustc
wrapper carry a mark, `noredzone` on every definition, that nothing else sets for this target and that changes no
code. An unmarked crate is still intact if no optimizer has touched it (opt-level 0).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from rglink.demangle import crate_of
from rglink.diagnostics import Diagnostics
from rglink.irinst import instructions, read_call
from rglink.irtext import Item, ModuleText, read_function, read_variable
from rglink.lto.attributes import attribute_words
from rglink.lto.collectives import collective_in_asm, is_collective_intrinsic
from rglink.lto.spaces import SHARED_SECTION
from rglink.lto.wording import Wording, readable

MARK = "noredzone"
WRAPPER = "rglink-rustc"
# Never seen on 3,857 unoptimized definitions of rustc 1.96.
_FUNCTION_SIGNS = ("norecurse", "nofree", "nosync", "willreturn", "mustprogress")
_PARAMETER_SIGN = re.compile(r"\b(writeonly|initializes)\b")
_TAIL_CALL = re.compile(r"\btail call\b")
# Their rlibs hold no collectives; rustc optimizes them in every build.
TRUSTED_CRATES = frozenset({"core", "alloc", "compiler_builtins"})
# The made-up crate of the allocator's entry points, which rustc writes by itself and marks in no way.
RUNTIME_CRATE = "__rustc"
_SHOWN = 10


@dataclass(frozen=True)
class Protection:
    """How one module was compiled. `crate` is "" when it cannot be told; `sign` says what the state was told by."""

    state: Literal["protected", "unprotected", "unknown"]
    crate: str
    sign: str


def classify(text: ModuleText) -> Protection:
    """Tell how a module was compiled, from the attributes of its definitions."""
    crate = Wording(text).crate
    if not any(ident.startswith("rustc version") for ident in text.idents()):
        return Protection("protected", crate, "not compiled by rustc")
    definitions = [item for item in text.of_kind("define") if crate_of(item.name) != RUNTIME_CRATE]
    if not definitions:
        return Protection("unknown", crate, "no definition to tell by")
    groups = {number: attribute_words(content) for number, content in text.attribute_groups().items()}
    unmarked: list[Item] = []
    for item in definitions:
        group = read_function(item.head).attribute_group
        if group is None or MARK not in groups[group]:
            unmarked.append(item)
    if not unmarked:
        return Protection("protected", crate, f"`{MARK}` on every definition")
    for item in definitions:
        sign = _sign(item, groups)
        if sign:
            lacking = f"`{readable(unmarked[0].name)}` is without `{MARK}`"
            other = "and" if item is unmarked[0] else f"and `{readable(item.name)}`"
            return Protection("unprotected", crate, f"{lacking} {other} {sign}")
    return Protection("protected", crate, "no sign of an optimizer")


def _sign(item: Item, groups: dict[int, list[str]]) -> str | None:
    """What shows that an optimizer has worked on a definition."""
    function = read_function(item.head)
    words = groups[function.attribute_group] if function.attribute_group is not None else []
    for word in words:
        if word in _FUNCTION_SIGNS or word.startswith("memory("):
            return f"is `{word}`"
    if "convergent" not in words:
        return "is not `convergent`"
    if function.calling_convention == "fastcc":
        return "is `fastcc`"
    for parameter in function.parameters:
        if match := _PARAMETER_SIGN.search(parameter.attributes):
            return f"has a parameter that is `{match[1]}`"
    if any(_TAIL_CALL.search(line) for line in item.body):
        return "has a `tail call`"
    return None


def check_unprotected(
    text: ModuleText,
    protection: Protection,
    diags: Diagnostics,
    unprotected_crates: Collection[str] = (),
    live: Collection[str] | None = None,
) -> None:
    """Report `unprotected-crate` for barriers, warp collectives and shared statics that rustc may have broken.

    `text` is a module as its compiler left it, `protection` what `classify` says of it. An instance of a generic
    counts with the crate that wrote the generic: name the program's unprotected crates in `unprotected_crates` to
    find such instances in protected modules. `live` are the definitions that the program uses (default: all).
    """
    wording = Wording(text)
    found: dict[str, list[str]] = {}
    for item in text.of_kind("variable", "define"):
        crate = crate_of(item.name) or protection.crate
        if protection.state != "unprotected" and crate not in unprotected_crates:
            continue
        if live is not None and item.name not in live:
            continue
        places = _collectives(item, wording) if item.kind == "define" else _shared_static(item)
        if places:
            # core's own code has no collective: what stands in it was inlined from this module's crate.
            blamed = protection.crate or crate if crate in TRUSTED_CRATES else crate
            found.setdefault(blamed, []).extend(places)
    for crate in sorted(found):
        _report(crate, found[crate], protection, diags)


def _collectives(item: Item, wording: Wording) -> list[str]:
    places: list[str] = []
    for instruction in instructions(item.body):
        if instruction.opcode != "call" or not ("asm " in instruction.rest or "@llvm.nvvm." in instruction.rest):
            continue
        call = read_call(instruction)
        name = collective_in_asm(call.asm_text) if call.is_asm else call.callee
        if name and (call.is_asm or is_collective_intrinsic(call.callee)):
            places.append(f"`{name}` {wording.place(item.name, call.suffix)}")
    return places


def _shared_static(item: Item) -> list[str]:
    if SHARED_SECTION not in item.head:
        return []
    variable = read_variable(item.head)
    if variable.section != SHARED_SECTION or variable.initializer is None:
        return []
    return [f"shared static `{readable(item.name)}`"]


def _report(crate: str, places: list[str], protection: Protection, diags: Diagnostics) -> None:
    times = Counter(places)
    lines = [place if count == 1 else f"{place}, {count} times" for place, count in times.items()]
    shown = lines[:_SHOWN]
    if len(lines) > _SHOWN:
        shown.append(f"and {len(lines) - _SHOWN} more")
    told = [protection.sign] if protection.state == "unprotected" else []
    diags.report(
        "unprotected-crate",
        f"crate `{crate or 'of unknown name'}` was optimized by rustc without protection: its barriers may have been"
        " copied into the arms of branches, its shared statics made private to each thread, and nothing shows it",
        *shown,
        *(f"told by: {sign}" for sign in told),
        cure=_cure(),
    )


def _cure() -> str:
    cures = (
        "`rglink cargo-config --write` and build again; or the device crate, whose hooks rustc leaves intact; or"
        " --allow=unprotected-crate to link it as it is"
    )
    wrapper = os.environ.get("RUSTC_WRAPPER", "")
    if wrapper and os.path.basename(wrapper) != WRAPPER:
        cures += f"; RUSTC_WRAPPER={wrapper} is set and replaces the wrapper that cargo-config writes: unset it"
    return cures

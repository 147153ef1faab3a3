"""Names that PTX can spell, for every global of a program.

PTX ISA, "Identifiers": `[a-zA-Z][a-zA-Z0-9_$]*` or `[_$%][a-zA-Z0-9_$]+`; `%` is left to registers. Instruction and
directive names are free for symbols and length is no limit (70,000 characters pass ptxas). Not free are `WARP_SZ` and
the names that LLVM's NVPTX printer gives to things inside a function, which would hide a global silently: a kernel
`k` has `k_param_0`, a call `param0` and `retval0`, a frame `__local_depot0`, labels `$L__BB0_1`.

A name that has to change becomes its legal characters and eight digits of its own SHA-256, so it depends on
nothing but itself: the same program in another order gets the same names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

from rglink.demangle import demangle
from rglink.diagnostics import Diagnostics
from rglink.irtext import ModuleText

_LEGAL = re.compile(r"[a-zA-Z][a-zA-Z0-9_$]*|[_$][a-zA-Z0-9_$]+")
_RESERVED = re.compile(
    r"WARP_SZ|param\d+|retval\d+|func_retval\d+|temp_param_reg|prototype_\d+|__local_depot\d+|\$L__.*|(?P<owner>.+)_param_\d+"
)
_DIGITS = 8


def is_legal(name: str, functions: Collection[str] = ()) -> bool:
    """Whether a PTX global may be called `name` in a program with these functions."""
    if not _LEGAL.fullmatch(name):
        return False
    reserved = _RESERVED.fullmatch(name)
    return reserved is None or (reserved["owner"] is not None and reserved["owner"] not in functions)


def legal_name(name: str, digits: int = _DIGITS) -> str:
    """A legal name made from `name` alone."""
    clean = re.sub(r"[^a-zA-Z0-9_$]", "_", name)
    mark = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:digits]
    front = clean if clean[:1].isalpha() or (clean[:1] == "_" and len(clean) > 1) else f"_{clean}"
    return f"{front}${mark}"


def legalize_names(text: ModuleText, exported: Collection[str], diags: Diagnostics) -> dict[str, str]:
    """Rename every defined global that PTX cannot spell; returns old -> new for all that changed.

    An exported kernel or variable that has to change is reported under `renamed-kernel`, because the host finds it
    by name. Declarations keep their names: whoever defines them decides.
    """
    functions = {item.name for item in text.of_kind("define", "declare")}
    names = {item.name for item in text.of_kind("variable", "alias", "define") if not item.name.startswith("llvm.")}
    taken = {item.name for item in text.of_kind("variable", "alias", "define", "declare")}
    renamed: dict[str, str] = {}
    for name in sorted(names):
        if is_legal(name, functions):
            continue
        digits = _DIGITS
        while (new := legal_name(name, digits)) in taken:
            digits += 1
        taken.add(new)
        renamed[name] = new
        if name in exported:
            shown = demangle(name)
            called = f"{shown}: its symbol {name}" if shown != name else name
            diags.report("renamed-kernel", f"{called} is no PTX identifier: the output calls it {new}")
    if renamed:
        text.rename(renamed.get)
    return renamed

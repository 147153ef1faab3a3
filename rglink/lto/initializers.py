"""Rings of statics that hold each other's addresses: neither LLVM's PTX nor ptxas can order their definitions."""

from __future__ import annotations

from rglink.callgraph import strongly_connected
from rglink.demangle import crate_of, demangle
from rglink.diagnostics import Diagnostics
from rglink.irtext import ModuleText, global_names


def check_initializers(text: ModuleText, diags: Diagnostics) -> None:
    """Report `cyclic-initializer` for every ring; what is dead must be gone before."""
    refs = {
        item.name: sorted(set(global_names(item.head.split(" = ", 1)[1])))
        for item in text.of_kind("variable")
        if not item.name.startswith("llvm.")
    }
    for ring in strongly_connected(refs):
        if len(ring) == 1 and ring[0] not in refs[ring[0]]:
            continue
        diags.error(
            "cyclic-initializer",
            "statics are initialised with each other's addresses in a ring, which PTX cannot express",
            *(f"{demangle(name)}{_crate(name)}" for name in sorted(ring)),
            cure="store one of the addresses when the kernel starts",
        )


def _crate(name: str) -> str:
    crate = crate_of(name)
    return f" (crate {crate})" if crate else ""

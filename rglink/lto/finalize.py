"""The last edits of the whole program's IR, after the optimizer and before any route to machine code."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import Item, ModuleText, quote, read_variable
from rglink.lto.barriers import unalign_barriers
from rglink.lto.lower import lower_operations

DebugLevel = Literal["none", "lineinfo", "full"]


@dataclass(frozen=True)
class Final:
    """What changed at the end: `names` maps the exported names that had to change to what they became."""

    names: Mapping[str, str]
    barriers: tuple[object, ...]


def finalize_program(
    module: Module, kernels: Collection[str], variables: Collection[str], debug: DebugLevel, diags: Diagnostics
) -> Final:
    """Make the optimized module ready for both code generators, in place."""
    text = ModuleText.parse(module.text())
    lower_operations(text)
    unalign_barriers(text)
    _set_used(text, {*kernels, *variables})
    module.replace(text.render())
    module.verify()
    return Final({}, ())


def _set_used(text: ModuleText, names: Collection[str]) -> None:
    """Put exactly these globals into `@llvm.used`: libNVVM and nvJitLink drop what is not there."""
    text.items = [item for item in text.items if item.name not in ("llvm.used", "llvm.compiler.used")]
    named = text.named()
    entries = [_used_entry(named[name]) for name in sorted(names) if name in named]
    if entries:
        array = f"[{len(entries)} x ptr] [{', '.join(entries)}]"
        text.add(f'@llvm.used = appending global {array}, section "llvm.metadata"')


def _used_entry(item: Item) -> str:
    space = read_variable(item.head).addrspace if item.kind == "variable" else 0
    if space == 0:
        return f"ptr {quote(item.name)}"
    return f"ptr addrspacecast (ptr addrspace({space}) {quote(item.name)} to ptr)"

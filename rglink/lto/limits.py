"""What a program asks of fixed memories, against what every target has; before ptxas says it less well.

Sizes are those of the statics as written, so run this before LLVM's optimization, which splits and renames them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rglink.arch import CONSTANT_LIMIT, STATIC_SHARED_LIMIT, Target
from rglink.demangle import crate_of
from rglink.diagnostics import Diagnostics
from rglink.irtext import ModuleText, global_names, read_variable
from rglink.irtypes import align_up, layout_of, named_types
from rglink.lto.derived import CONSTANT, SHARED
from rglink.lto.wording import readable

_SHOWN = 10  # statics listed in one message


@dataclass(frozen=True)
class StaticMemory:
    """A static in one of the small memories; bytes."""

    name: str
    size: int
    align: int


def statics_of(text: ModuleText, space: int) -> list[StaticMemory]:
    """The defined statics of an address space, by name; zero-length ones take nothing."""
    types = named_types(text)
    found: list[StaticMemory] = []
    for item in text.of_kind("variable"):
        if f"addrspace({space})" not in item.head:
            continue
        variable = read_variable(item.head)
        if variable.addrspace != space or variable.initializer is None:
            continue
        layout = layout_of(variable.type, types)
        found.append(StaticMemory(item.name, layout.size, max(variable.align, layout.align)))
    return sorted(found, key=lambda static: static.name)


def total_size(statics: Iterable[StaticMemory]) -> int:
    """Bytes that statics take when laid out tightly: the most aligned first, those that end unaligned last."""
    total = 0
    for static in sorted(statics, key=lambda each: (-each.align, -each.size % each.align)):
        total = align_up(total, static.align) + static.size
    return total


def check_shared_memory(
    text: ModuleText, kernels: Collection[str], targets: Sequence[Target], diags: Diagnostics
) -> None:
    """Report `shared-memory-overflow` for each kernel whose static shared memory is above the limit.

    A kernel's statics are those that it, and all it calls or takes the address of, refer to. The limit is the same
    for every target; `targets` are named in the message.
    """
    statics = {static.name: static for static in statics_of(text, SHARED)}
    if total_size(statics.values()) <= STATIC_SHARED_LIMIT:
        return
    refs = _references(text)
    names = ", ".join(target.name for target in targets)
    for kernel in sorted(kernels):
        used = [statics[name] for name in sorted(_reached(kernel, refs)) if name in statics]
        total = total_size(used)
        if total <= STATIC_SHARED_LIMIT:
            continue
        diags.error(
            "shared-memory-overflow",
            f"kernel `{readable(kernel)}` has {total} bytes of static shared memory, the limit is"
            f" {STATIC_SHARED_LIMIT} on every target{f' ({names})' if names else ''}",
            *_largest(used),
            cure="make the largest smaller, or use the dynamic pool: a zero-length array in .rglink.shared whose size"
            " the host gives at launch",
        )


def check_constant_memory(text: ModuleText, diags: Diagnostics) -> None:
    """Report `constant-memory-overflow` if the statics in constant memory do not fit; dead ones must be gone."""
    statics = statics_of(text, CONSTANT)
    total = total_size(statics)
    if total <= CONSTANT_LIMIT:
        return
    diags.error(
        "constant-memory-overflow",
        f"the program has {total} bytes of constant memory, the limit is {CONSTANT_LIMIT}",
        *_largest(statics),
        cure="leave the largest in global memory: without .rglink.constant",
    )


def _largest(statics: Sequence[StaticMemory]) -> list[str]:
    """Lines for a message: the largest first."""
    order = sorted(statics, key=lambda static: (-static.size, static.name))
    lines = [f"{static.size} bytes: `{readable(static.name)}`{_crate(static.name)}" for static in order[:_SHOWN]]
    rest = order[_SHOWN:]
    if rest:
        lines.append(f"{sum(static.size for static in rest)} bytes: {len(rest)} more")
    return lines


def _crate(name: str) -> str:
    crate = crate_of(name)
    return f" in crate {crate}" if crate else ""


def _references(text: ModuleText) -> dict[str, set[str]]:
    """The globals that each definition mentions."""
    return {
        name: {other for line in item.lines() for other in global_names(line)} - {name}
        for name, item in text.named().items()
        if item.kind != "declare"
    }


def _reached(root: str, refs: Mapping[str, set[str]]) -> set[str]:
    reached = {root}
    pending = [root]
    while pending:
        for name in refs.get(pending.pop(), ()):
            if name not in reached:
                reached.add(name)
                pending.append(name)
    return reached

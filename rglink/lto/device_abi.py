"""The four steps that keep a program's meaning, before any optimization, ours or NVIDIA's.

1. what threads do together is `convergent` (`convergent`); 2. shared and constant statics are in their address
space (`spaces`); 3. what a kernel reaches through its parameters is global (`kernel_params`); 4. barriers are in
the unaligned form, which counts by barrier wherever it stands (`barriers`).
"""

from __future__ import annotations

from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.barriers import unalign_barriers
from rglink.lto.convergent import mark_convergent
from rglink.lto.kernel_params import globalize_kernel_pointers
from rglink.lto.spaces import access_spaces, fold_pools, move_statics


def prepare_crate(module: Module, diags: Diagnostics) -> None:
    """Apply the four steps to one crate as its compiler left it, unoptimized; `module` is changed in place."""
    _apply(module, diags, whole_program=False)


def apply_device_abi(module: Module, diags: Diagnostics) -> None:
    """Apply the four steps to the merged program: what `prepare_crate` has seen already stays as it is.

    The dynamic pools of all crates become one here. A static of another crate that was declared in the generic
    space (rustc repeats no section on declarations) has become a cast of the moved one when LLVM merged the two.
    """
    _apply(module, diags, whole_program=True)


def _apply(module: Module, diags: Diagnostics, whole_program: bool) -> None:
    text = ModuleText.parse(module.text())
    marked = mark_convergent(text, diags).changed
    moved = move_statics(text, diags).changed
    folded = whole_program and fold_pools(text) > 0
    if marked or moved or folded:
        module.replace(text.render())
    # Constants and words of parameters show through wrappers only after these; neither looks at globals.
    module.run("always-inline", "sroa")
    text = ModuleText.parse(module.text())
    access_spaces(text, diags)
    globalize_kernel_pointers(text)
    unalign_barriers(text)
    module.replace(text.render())
    module.verify()


def globalize_exposed(module: Module, diags: Diagnostics) -> None:
    """Once more steps 2 and 3 for accesses that inlining brought into kernels; run after LLVM's optimization."""
    text = ModuleText.parse(module.text())
    accesses = access_spaces(text, diags)
    if accesses + globalize_kernel_pointers(text).changed:
        module.replace(text.render())

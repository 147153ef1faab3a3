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
    text = ModuleText.parse(module.text())
    if _mark(text, diags):
        module.replace(text.render())
    _address(module, diags)


def mark_program(text: ModuleText, diags: Diagnostics) -> None:
    """The first two steps on the merged program: what `prepare_crate` has seen already stays as it is.

    The dynamic pools of all crates become one here. A static of another crate that was declared in the generic
    space (rustc repeats no section on declarations) has become a cast of the moved one when LLVM merged the two.
    """
    _mark(text, diags)
    fold_pools(text)


def address_program(module: Module, diags: Diagnostics) -> ModuleText:
    """The other two steps on the marked program, in place; returns its text."""
    return _address(module, diags)


def _mark(text: ModuleText, diags: Diagnostics) -> bool:
    """Whether anything changed."""
    marked = mark_convergent(text, diags).changed
    return move_statics(text, diags).changed or marked


def _address(module: Module, diags: Diagnostics) -> ModuleText:
    # Constants and words of parameters show through wrappers only after these; neither looks at globals.
    module.run("always-inline", "sroa")
    text = ModuleText.parse(module.text())
    expose_spaces(text, diags)
    unalign_barriers(text)
    module.replace(text.render())
    module.verify()
    return text


def expose_spaces(text: ModuleText, diags: Diagnostics) -> None:
    """Send accesses to the address space that their pointers come from: steps 2 and 3.

    After LLVM's optimization once more, for what inlining brought into kernels.
    """
    access_spaces(text, diags)
    globalize_kernel_pointers(text)

"""Merge: each module brings only what the resolution wants of it, and all become one.

LLVM's linker is quadratic when everything is linked into one growing module, so modules are pruned first and merged
as a balanced tree. Modules are taken in the order of `Source.key`, and LLVM numbers colliding local names in the
order it meets them, so the result does not depend on the order of the inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rglink.diagnostics import Diagnostics
from rglink.ir import TRIPLE, Module
from rglink.irtext import ModuleText
from rglink.lto.aliases import replace_aliases
from rglink.lto.driver import DRIVER_FUNCTIONS
from rglink.lto.extract import Extraction
from rglink.lto.resolve import Resolution
from rglink.lto.retouch import needs_retouching, nullify, retouch
from rglink.lto.rust_runtime import define_rust_runtime
from rglink.lto.sources import Inputs, ModulePool

_MERGED = "merged program"


def merge_modules(resolution: Resolution, inputs: Inputs, diags: Diagnostics) -> Module:
    """One module that holds the kernels, the exported variables and what these need; everything else is local.

    Reports `global-constructor`, and what `aliases.replace_aliases` reports.

    Raises:
        InputError: a module is damaged, or LLVM's linker refuses a pair.
    """
    order = sorted(range(len(resolution.sources)), key=lambda index: resolution.sources[index].key)
    parts = [_pruned(resolution, inputs.pool, index) for index in order if resolution.wanted[index]]
    module = merge_tree(parts) if parts else Module.parse_text(f'target triple = "{TRIPLE}"', _MERGED)
    if resolution.absent:
        nullify(module, resolution.absent)
    _replace_aliases(module, resolution, diags)
    module.internalize(preserved_names(resolution))
    module.run("globaldce", "strip-dead-prototypes")
    _finish_roots(module, preserved_names(resolution), diags)
    # No external name is left but the roots after this line.
    return module


def _finish_roots(module: Module, names: Collection[str], diags: Diagnostics) -> None:
    """Drop hidden and protected visibility, so that every tool after us sees kernels and exported statics."""
    found = list(module.globals())
    hidden = sorted(g.name for g in found if g.visibility != "default" and g.name in names)
    if hidden:
        module.set_linkage(hidden, "internal")  # which drops the visibility
        module.set_linkage(hidden, "external")
    if any(g.name in ("llvm.global_ctors", "llvm.global_dtors") for g in found):
        diags.error(
            "global-constructor",
            "the program has functions that must run before its kernels, and nothing on a GPU runs them",
            cure="initialise device statics with constants, or from a kernel",
        )


def _replace_aliases(module: Module, resolution: Resolution, diags: Diagnostics) -> None:
    # llvmlite lists no aliases; the summaries tell whether there can be any.
    if not any(s.kind == "alias" for source in resolution.sources for s in source.summary.symbols):
        return
    text = ModuleText.parse(module.text())
    if replace_aliases(text, preserved_names(resolution), diags):
        module.replace(text.render())


def preserved_names(resolution: Resolution) -> frozenset[str]:
    """The names that stay external: kernels by their export names, and exported variables."""
    return frozenset(kernel.export for kernel in resolution.roots.kernels) | frozenset(resolution.roots.variables)


def merge_tree(modules: Sequence[Module]) -> Module:
    """Link neighbours in pairs until one is left; the order decides how LLVM numbers colliding local names."""
    level = list(modules)
    while len(level) > 1:
        for left, right in zip(level[::2], level[1::2], strict=False):
            left.link_in(right)
        level = level[::2]
    level[0].name = _MERGED
    return level[0]


def pull_in(module: Module, inputs: Inputs, names: Collection[str]) -> list[str]:
    """Define undefined `names` (builtins that lowering asks for) from the lazy archives, and all they need.

    What comes is local, rustc's runtime for it included. Returns, sorted, those of `names` that no archive has and
    whatever else the newcomers leave undefined.

    Raises:
        InputError: a member is damaged.
    """
    before = module.undefined_names()
    extraction = Extraction(inputs.archives, inputs.pool)
    wanted = set(names)
    while extraction.ask(sorted(wanted)):
        wanted |= extraction.undefined()
    parts = extraction.modules()
    if parts:
        pulled = merge_tree(parts)
        brought = sorted(g.name for g in pulled.globals() if not g.is_declaration and g.linkage == "external")
        module.link_in(pulled)
        module.name = _MERGED
        module.set_linkage(brought, "internal")
        module.run("globaldce", "strip-dead-prototypes")
        define_rust_runtime(module)
    after = module.undefined_names() - DRIVER_FUNCTIONS.keys()
    return sorted(after & set(names) | after - before)


def _pruned(resolution: Resolution, pool: ModulePool, index: int) -> Module:
    """A source's module with what is wanted of it; definitions that lost to others are declarations or gone."""
    source = resolution.sources[index]
    module = pool.take(source)
    wanted = resolution.wanted[index]
    lost = {
        symbol.name
        for symbol in source.summary.symbols
        if symbol.binding not in ("internal", "undefined", "extern_weak")
        and (-1, symbol.name) in resolution.live
        and symbol.name not in wanted
    }
    renamed = {
        kernel.symbol: kernel.export
        for kernel in resolution.roots.kernels
        if kernel.symbol != kernel.export and kernel.source in (None, index) and kernel.symbol in wanted
    }
    if needs_retouching(source.summary) or renamed:
        retouch(module, source.summary, wanted, lost, renamed)
    if lost:
        module.set_linkage(sorted(lost), "available_externally")
    kept = {renamed.get(name, name) for name in wanted}
    # A walk over all globals costs as much as parsing them: most modules need only the one of `internalize`.
    other = {renamed.get(s.name, s.name) for s in source.summary.symbols if s.name in wanted and s.binding != "strong"}
    if other:
        module.set_linkage(sorted(other), "external")
    module.internalize(kept)
    module.run("globaldce")
    return module

"""The first half of a link, top to bottom: from files to the final program. Read this first.

`argv -> LinkOptions -> Inputs -> Resolution -> Module -> Program`; the second half is `rglink.images`. The halves run
in two processes and import nothing of each other's, because importing is a good part of a small link.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from rglink.diagnostics import Diagnostics, InputError, UsageError
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.debuginfo import has_line_tables, to_line_directives
from rglink.lto.device_abi import address_program, mark_program
from rglink.lto.finalize import Final, finalize_program
from rglink.lto.gc import check_recursion
from rglink.lto.initializers import check_initializers
from rglink.lto.limits import check_constant_memory, check_shared_memory
from rglink.lto.load import load_sources
from rglink.lto.lower import lower_operations
from rglink.lto.merge import merge_modules, pull_in
from rglink.lto.mismatch import check_mismatches
from rglink.lto.remap import remap_paths
from rglink.lto.resolve import Resolution, resolve_symbols
from rglink.lto.roots import RootRequest, Roots, choose_roots, find_kernels
from rglink.lto.rust_runtime import define_rust_runtime
from rglink.lto.sources import Inputs
from rglink.lto.undefined import check_undefined
from rglink.lto.unprotected import check_protection
from rglink.nvjitlink.job import Debug, Program
from rglink.objfmt.host_object import kernel_names_of
from rglink.objfmt.input_file import InputFile, open_input
from rglink.options import LinkOptions
from rglink.trace import Trace

# Gives the paths of core, alloc and compiler_builtins for the device, by the key of the sysroot that crates were
# compiled against ("" for this machine's own).
Sysroot = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class Built:
    """A program with what reports tell of it. `final.names` maps a global to the name it had to get."""

    resolution: Resolution
    module: Module
    final: Final
    program: Program


def build_program(options: LinkOptions, sysroot: Sysroot, diags: Diagnostics, trace: Trace) -> Built:
    """From files to the final program: the first half of a link. LLVM may crash, so run it in a supervised child.

    Raises:
        LinkFailed: mistakes were found; they are in `diags`.
        InputError, UsageError, ToolError: as their docstrings say.
        Stopped: `--stop-after` was reached.
    """
    inputs, resolution = _read_and_resolve(options, sysroot, diags, trace)
    # No file joins and no name changes its definition after this line, but for builtins that lowering asks for.
    roots = resolution.roots
    with trace.phase("merge"):
        module = merge_modules(resolution, inputs, diags)
    trace.save("merge", module.text)
    with trace.phase("gc"):
        text = _collect_garbage(module, resolution, inputs, diags)
        diags.checkpoint()
    # Everything that is left is live, and nothing is undefined but what the driver resolves.
    trace.save("gc", module.text)
    with trace.phase("abi"):
        debug = _reduce_debug_info(text, options)
        mark_program(text, diags)
        builtins = lower_operations(text)
        module.replace(text.render())
        _bring(module, builtins, inputs, sysroot, diags)
        _check_limits(address_program(module, diags), roots, options, diags)
        diags.checkpoint()
    # Shared memory, barriers and kernel pointers mean what their author wrote, whatever a pass does from here on.
    trace.save("abi", module.text)
    with trace.phase("opt"):
        module.optimize(options.opt_level, options.targets[0].arch.sm)
    trace.save("opt", module.text)
    with trace.phase("final"):
        final = finalize_program(module, _exports(roots), roots.variables, debug, diags)
        diags.checkpoint()
    # The module is final: only copies of it are compiled.
    trace.save("final", module.text)
    return Built(resolution, module, final, _program(roots, module, final, debug))


def _read_and_resolve(
    options: LinkOptions, sysroot: Sysroot, diags: Diagnostics, trace: Trace
) -> tuple[Inputs, Resolution]:
    with trace.phase("load"):
        inputs = load_sources(_open_files(options, diags), diags)
        _refuse_foreign(inputs)
        diags.checkpoint()
        inputs = _with_sysroot(inputs, sysroot, diags)
    with trace.phase("resolve"):
        roots = choose_roots(inputs, _root_request(options, inputs), diags)
        diags.checkpoint()
        resolution = resolve_symbols(inputs, roots, diags)
        check_mismatches(resolution, diags)
        check_protection(resolution, diags)
        diags.checkpoint()
    return inputs, resolution


def _collect_garbage(module: Module, resolution: Resolution, inputs: Inputs, diags: Diagnostics) -> ModuleText:
    """Add rustc's runtime to the merged program, of which only what the roots reach is left, and check the whole."""
    define_rust_runtime(module)
    check_undefined(module, resolution, inputs, diags)
    text = ModuleText.parse(module.text())
    check_recursion(text, resolution, diags)
    check_initializers(text, diags)
    return text


def _open_files(options: LinkOptions, diags: Diagnostics) -> list[InputFile]:
    """Every input and `-l` library, opened; all that cannot be is reported before the link stops."""
    files: list[InputFile] = []
    for path in options.inputs:
        try:
            files.append(open_input(path))
        except InputError as error:
            diags.extend([error.diagnostic])
    for name in options.libraries:
        path = _find_library(name, options.library_dirs)
        if path:
            files.append(open_input(path))
            continue
        diags.error("no-such-library", f"-l {name}: no lib{name}.rlib or lib{name}.a", *_searched(options))
    return files


def _find_library(name: str, folders: Sequence[str]) -> str:
    candidates = (os.path.join(folder, f"lib{name}{end}") for folder in folders for end in (".rlib", ".a"))
    return next((path for path in candidates if os.path.isfile(path)), "")


def _searched(options: LinkOptions) -> list[str]:
    return [f"looked in {folder}" for folder in options.library_dirs] or ["no folder was given with -L"]


def _refuse_foreign(inputs: Inputs) -> None:
    """Inputs that a later version links.

    Raises:
        UsageError: there is one; the message names it.
    """
    for file in inputs.foreign:
        message = f"{file.path}: linking {file.kind.value} inputs is not built in this version"
        raise UsageError(message, slug="not-built")


def _with_sysroot(inputs: Inputs, sysroot: Sysroot, diags: Diagnostics) -> Inputs:
    """The inputs and, where Rust code comes without core (by hand), the device's sysroot."""
    if any(archive.crate == "core" for archive in inputs.archives):
        return inputs
    if not any("rustc version" in source.summary.ident for source in inputs.sources):
        return inputs
    return _join_sysroot(inputs, sysroot, diags)


def _join_sysroot(inputs: Inputs, sysroot: Sysroot, diags: Diagnostics) -> Inputs:
    files = [open_input(path) for path in sysroot(_sysroot_key(inputs))]
    # Reports name these as anybody's: the folder says where this user's cache is.
    more = load_sources([replace(file, path=os.path.basename(file.path)) for file in files], diags)
    return replace(inputs, archives=(*inputs.archives, *more.archives))


def _sysroot_key(inputs: Inputs) -> str:
    """The sysroot that the `.rgo` inputs were compiled against.

    Raises:
        InputError: two were compiled against different ones.
    """
    first: dict[str, str] = {}
    for source in inputs.sources:
        if source.sysroot:
            first.setdefault(source.sysroot, source.file)
    if len(first) > 1:
        files = sorted(first.values())
        raise InputError(
            f"{files[0]}: compiled against another core than {files[1]}",
            slug="other-rustc",
            cure="compile both again with one rustc and one rglink",
        )
    return next(iter(first), "")


def _root_request(options: LinkOptions, inputs: Inputs) -> RootRequest:
    """What was asked about kernels; `--kernels-from` files are read here."""
    names: frozenset[str] | None = None
    if options.kernels_from:
        candidates = {name for kernel in find_kernels(inputs) for name in (kernel.symbol, kernel.export)}
        found = [kernel_names_of(path, candidates) for path in options.kernels_from]
        names = frozenset().union(*(file.matched | set(file.unmatched) for file in found))
    exports = options.exports if options.driven_by_rustc else None
    return RootRequest(exports, options.keep, options.drop, names)


def _exports(roots: Roots) -> tuple[str, ...]:
    return tuple(kernel.export for kernel in roots.kernels)


def _check_limits(text: ModuleText, roots: Roots, options: LinkOptions, diags: Diagnostics) -> None:
    check_shared_memory(text, _exports(roots), options.targets, diags)
    check_constant_memory(text, diags)


def _bring(module: Module, names: Collection[str], inputs: Inputs, sysroot: Sysroot, diags: Diagnostics) -> None:
    """Define what lowered operations call: functions of compiler_builtins."""
    missing = pull_in(module, inputs, names) if names else []
    if missing and not any(archive.crate == "compiler_builtins" for archive in inputs.archives):
        missing = pull_in(module, _join_sysroot(inputs, sysroot, diags), missing)
    for name in missing:
        diags.error("undefined-symbol", f"undefined symbol: {name}, which an operation of the program needs")


def _reduce_debug_info(text: ModuleText, options: LinkOptions) -> Debug:
    """Keep line tables where the inputs have them; all debug info only when asked for, since it costs speed."""
    if not has_line_tables(text):
        return "none"
    remap_paths(text, options.remap_path_prefix)
    if options.debug == "full":
        return "full"
    to_line_directives(text)
    return "lineinfo"


def _program(roots: Roots, module: Module, final: Final, debug: Debug) -> Program:
    kernels = tuple(sorted(final.names.get(name, name) for name in _exports(roots)))
    variables = tuple(sorted(final.names.get(name, name) for name in roots.variables))
    return Program(module.bitcode(), kernels, variables, debug)

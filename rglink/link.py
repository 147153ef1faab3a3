"""One link, top to bottom: `build_program`, then `generate_images`. Read this first; it alone knows every room.

`argv -> LinkOptions -> Inputs -> Resolution -> Module -> list[CodegenJob] -> list[CodegenResult] -> fat binary`
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rglink.arch import Target
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
from rglink.nvjitlink.backends import Backend
from rglink.nvjitlink.job import CodegenJob, CodegenResult, Route
from rglink.nvjitlink.pack import pack_fatbin
from rglink.nvjitlink.prove import prove
from rglink.objfmt.host_object import kernel_names_of
from rglink.objfmt.input_file import InputFile, open_input
from rglink.options import Emit, LinkOptions
from rglink.trace import Trace

# Gives the paths of core, alloc and compiler_builtins for the device, by the key of the sysroot that crates were
# compiled against ("" for this machine's own).
Sysroot = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class Program:
    """The final program as plain data. `bitcode` is all that code generation needs; `kernels` and `variables` are
    the names that every image must show to the host, sorted; `debug` says what line information the IR holds."""

    bitcode: bytes
    kernels: tuple[str, ...]
    variables: tuple[str, ...]
    debug: Literal["none", "lineinfo", "full"]


@dataclass(frozen=True)
class Built:
    """A program with what reports tell of it. `final.names` maps a global to the name it had to get."""

    resolution: Resolution
    module: Module
    final: Final
    program: Program


@dataclass(frozen=True)
class Images:
    """`results` are proven, one for each target that the outputs need; `fatbin` is b"" unless asked for."""

    results: tuple[CodegenResult, ...]
    fatbin: bytes


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


def generate_images(
    program: Program, options: LinkOptions, backend: Backend, diags: Diagnostics, trace: Trace
) -> Images:
    """From the final program to proven images: the second half of a link. The backend runs NVIDIA's tools.

    Raises:
        LinkFailed: an image does not hold what was linked.
        UsageError: a single cubin was asked for and not one architecture.
        ToolError: a tool failed, crashed, or overran its budget.
    """
    with trace.phase("codegen"):
        jobs = plan_codegen(program, options)
        results = backend.run(jobs, options.jobs or len(os.sched_getaffinity(0)))
    with trace.phase("prove"):
        prove(results, program.kernels, program.variables, diags)
        diags.checkpoint()
    with trace.phase("pack"):
        wanted = [result for result in results if result.target in options.targets]
        fatbin = pack_fatbin(wanted, os.path.basename(options.output)) if "fatbin" in options.emit else b""
    return Images(tuple(results), fatbin)


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


def _reduce_debug_info(text: ModuleText, options: LinkOptions) -> Literal["none", "lineinfo", "full"]:
    """Keep line tables where the inputs have them; all debug info only when asked for, since it costs speed."""
    if not has_line_tables(text):
        return "none"
    remap_paths(text, options.remap_path_prefix)
    if options.debug == "full":
        return "full"
    to_line_directives(text)
    return "lineinfo"


def _program(roots: Roots, module: Module, final: Final, debug: Literal["none", "lineinfo", "full"]) -> Program:
    kernels = tuple(sorted(final.names.get(name, name) for name in _exports(roots)))
    variables = tuple(sorted(final.names.get(name, name) for name in roots.variables))
    return Program(module.bitcode(), kernels, variables, debug)


def plan_codegen(program: Program, options: LinkOptions) -> list[CodegenJob]:
    """One job per image that the outputs need.

    Raises:
        UsageError: a single cubin was asked for and not one architecture.
    """
    route: Route = "nvvm" if options.codegen == "nvvm" else "llvm"
    name = os.path.basename(options.output)
    return [
        CodegenJob(
            name, target, route, program.bitcode, program.kernels, program.variables, options.opt_level, program.debug
        )
        for target in needed_targets(options)
    ]


def needed_targets(options: LinkOptions) -> list[Target]:
    """The targets whose images the outputs hold, sorted."""
    needed: set[Target] = set(options.targets) if "fatbin" in options.emit else set()
    for kind in options.emit:
        if kind in ("cubin", "ptx"):
            needed.add(single_target(options, kind))
    return sorted(needed, key=lambda target: target.sort_key)


def single_target(options: LinkOptions, kind: Emit) -> Target:
    """The target of a lone `.cubin`, or of a lone `.ptx`: the lowest `compute_` asked for, else the lowest arch.

    Raises:
        UsageError: a cubin was asked for and there is not exactly one `sm_` target.
    """
    if kind == "ptx":
        asked = [target for target in options.targets if target.kind == "ptx"]
        return asked[0] if asked else Target(options.targets[0].arch, "ptx")
    cubins = [target for target in options.targets if target.kind == "cubin"]
    if len(cubins) != 1:
        names = ", ".join(target.name for target in cubins) or "none"
        raise UsageError(f"a .cubin holds one architecture: {names} were asked for", cure="--arch sm_90, or a .fatbin")
    return cubins[0]

"""The last edits of the whole program's IR, after the optimizer and before any route to machine code."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from rglink import __version__
from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irinst import instructions
from rglink.irtext import Item, ModuleText, global_names, quote, read_variable
from rglink.lto.aliases import replace_aliases
from rglink.lto.barriers import BarrierDecision, align_uniform_barriers, unalign_barriers
from rglink.lto.debuginfo import strip_debug, to_line_directives
from rglink.lto.device_abi import expose_spaces
from rglink.lto.intrinsics import check_operations
from rglink.lto.lower import lower_operations
from rglink.lto.names import legalize_names
from rglink.lto.wording import Wording

DebugLevel = Literal["none", "lineinfo", "full"]

# Flags that code generation for NVPTX reads; the others (PIC level, frame pointers, ...) are about hosts.
_FLAGS_KEPT = ("Debug Info Version", "Dwarf Version", "nvvm-reflect-ftz")
_EXCEPTIONS = frozenset({"invoke", "landingpad", "resume", "catchswitch", "catchpad", "cleanuppad", "callbr"})
_MAY_BE_EXCEPTION = re.compile(r"\b(?:invoke|landingpad|resume|catchswitch|catchpad|cleanuppad|callbr) ")


@dataclass(frozen=True)
class Final:
    """What changed at the end: `names` maps each global that had to be renamed to its name in the output."""

    names: Mapping[str, str]
    barriers: tuple[BarrierDecision, ...]


def finalize_program(
    module: Module, kernels: Collection[str], variables: Collection[str], debug: DebugLevel, diags: Diagnostics
) -> Final:
    """Make the optimized module ready for both code generators, in place.

    Accesses that inlining brought into kernels go to their address space, and barriers get their final form.

    `kernels` and `variables` are what the host may use. Reported: whatever has no form on a GPU (thread-local and
    initialised shared variables, constructors, module asm, exceptions, ifuncs, unsupported operations), kernels
    whose names PTX cannot spell, asm barriers under divergent control.

    Raises:
        LinkFailed: something was reported as an error.
        InputError: LLVM's verifier refuses the result.
    """
    text = ModuleText.parse(module.text())
    exported = frozenset(kernels) | frozenset(variables)
    _refuse_foreign(text, diags)
    expose_spaces(text, diags)
    replace_aliases(text, exported, diags)
    for name in sorted(lower_operations(text)):
        diags.error("undefined-symbol", f"undefined symbol: {name}, which an operation of the program needs")
    check_operations(text, diags)
    diags.checkpoint()
    unalign_barriers(text)
    barriers = align_uniform_barriers(text, kernels, diags)
    if debug == "lineinfo":
        to_line_directives(text)
    elif debug == "none":
        strip_debug(text)
    names = legalize_names(text, exported, diags)
    _set_used(text, [names.get(name, name) for name in exported])
    _drop_host_matters(text)
    diags.checkpoint()
    module.replace(text.render())
    module.verify()
    # Every symbol has its final name, and every barrier its final form, after this line.
    return Final(names, tuple(barriers))


def _refuse_foreign(text: ModuleText, diags: Diagnostics) -> None:
    """Report what LLVM IR can say and a GPU cannot do."""
    wording = Wording(text)
    for item in text.of_kind("asm"):
        diags.error("module-asm", f"assembly at module level cannot be linked into device code: {item.head.strip()}")
    for item in text.of_kind("variable"):
        _check_variable(item, wording, diags)
    for item in text.of_kind("define"):
        if not any(_MAY_BE_EXCEPTION.search(line) for line in item.body):
            continue
        found = sorted({i.opcode for i in instructions(item.body) if i.opcode in _EXCEPTIONS})
        if found:
            message = f"exceptions do not exist on a GPU: {', '.join(found)}"
            cure = "compile with -Cpanic=abort (Rust) or -fno-exceptions (C++)"
            diags.error("exceptions", message, wording.place(item.name), cure=cure)


def _check_variable(item: Item, wording: Wording, diags: Diagnostics) -> None:
    if item.name in ("llvm.global_ctors", "llvm.global_dtors"):
        names = sorted(global_names(item.head.partition(" = ")[2]))
        if names:
            message = f"{item.name}: no code runs before or after a kernel on a GPU"
            diags.error("constructors", message, *(wording.place(name) for name in names))
        return
    variable = read_variable(item.head)
    if "thread_local" in variable.prefix:
        message = f"{item.name}: thread-local variables do not exist on a GPU"
        diags.error("thread-local", message, *wording.static(variable), cure="use a local variable or an array")
    if variable.addrspace == 3 and variable.initializer not in (None, "undef", "poison"):
        message = f"{item.name}: shared memory cannot be initialised: it has no content before a block writes it"
        diags.error("initialised-shared", message, *wording.static(variable))


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


_STRING_OR_HOST_WORD = re.compile(
    r'"[^"]*"|\bdso_(?:local|preemptable) |,? comdat(?:\(\$(?:"[^"]*"|[-\w.$]+)\))?(?![\w.$"(])'
)


def _drop_host_matters(text: ModuleText) -> None:
    """Remove what says something about host linkers only, and differs between crates for no reason on a GPU."""
    text.items = [item for item in text.items if item.kind != "comdat"]
    for item in text.of_kind("variable", "define", "declare"):
        if "dso_" in item.head or "comdat" in item.head:
            item.head = _STRING_OR_HOST_WORD.sub(lambda m: m[0] if m[0].startswith('"') else "", item.head)
    nodes = {item.head.partition(" = ")[0]: item.head for item in text.of_kind("metadata")}
    for item in text.of_kind("metadata"):
        if item.head.startswith("!llvm.module.flags = "):
            kept = [n for n in _operands(item.head) if any(f'!"{flag}"' in nodes.get(n, "") for flag in _FLAGS_KEPT)]
            item.head = f"!llvm.module.flags = !{{{', '.join(kept)}}}"
    # The program is ours from here on: linked again, it must not be taken for a crate that rustc optimized.
    gone = ("!llvm.ident = ", "!llvm.module.flags = !{}")
    text.items = [item for item in text.items if not item.head.startswith(gone)]
    node = text.fresh_metadata()
    text.add(f"!llvm.ident = !{{!{node}}}", f'!{node} = !{{!"rglink version {__version__}"}}')


def _operands(line: str) -> list[str]:
    return re.findall(r"!\d+", line.partition("!{")[2])

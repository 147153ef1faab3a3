"""The module as libNVVM wants it: NVVM's data layout and version, and what must stay visible in `@llvm.used`.

Source: NVVM IR specification 2.0, "Data Layout", "Global Property Annotation"; what libNVVM 13.5 really needs was
found by trying: a kernel outside `@llvm.used` is dropped without a word.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from rglink.arch import Arch
from rglink.diagnostics import InputError
from rglink.irtext import Item, ModuleText, Variable, expect_equal, quote, read_function, read_variable, split_commas
from rglink.nvjitlink.atomics import widen_scopes
from rglink.nvjitlink.float_signs import make_float_signs_exact
from rglink.nvjitlink.local_atomics import make_local_atomics_plain
from rglink.nvjitlink.overflow import widen_overflow

DATA_LAYOUT = (
    "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64"
    "-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
)
_VERSION = (2, 0, 3, 2)  # NVVM IR, then its debug metadata
_USED = "llvm.used"


def prepare(module: ModuleText, kernels: Collection[str], variables: Collection[str], arch: Arch) -> None:
    """Edit `module` for libNVVM: layout, version, and `kernels` and `variables` in `@llvm.used`.

    Raises:
        InputError: a kernel or variable is not defined, or not visible.
    """
    _set_layout(module)
    _set_version(module)
    _set_used(module, sorted({*kernels, *variables}))
    widen_scopes(module, arch)
    make_local_atomics_plain(module)
    make_float_signs_exact(module)
    widen_overflow(module)


def _set_layout(module: ModuleText) -> None:
    module.items = [item for item in module.items if not item.head.startswith("target datalayout")]
    # LLVM's reader wants it before everything else.
    module.items.insert(0, Item("target", "", f'target datalayout = "{DATA_LAYOUT}"'))


def _set_version(module: ModuleText) -> None:
    numbers = [0]
    for item in module.of_kind("metadata"):
        if item.head.startswith("!nvvmir.version"):
            item.head = ""
        match = re.match(r"!(\d+) = ", item.head)
        if match:
            numbers.append(int(match[1]) + 1)
    node = max(numbers)
    values = ", ".join(f"i32 {part}" for part in _VERSION)
    module.add(f"!nvvmir.version = !{{!{node}}}", f"!{node} = !{{{values}}}")


def _set_used(module: ModuleText, names: list[str]) -> None:
    entries: dict[str, str] = {}
    seen = 0
    for item in module.of_kind("variable"):
        if item.name == _USED:
            entries |= _entries(read_variable(item.head))
    for item in module.of_kind("variable", "define"):
        if item.name not in names:
            continue
        seen += 1
        if item.kind == "define":
            linkage, space = read_function(item.head).linkage, 0
        else:
            variable = read_variable(item.head)
            linkage, space = variable.linkage, variable.addrspace
        if linkage == "internal":
            raise InputError(f"{item.name}: is internal, wanted a name that the host can see", slug="hidden-symbol")
        entries[item.name] = _entry(item.name, space)
    expect_equal("names for @llvm.used", len(names), seen)
    module.items = [item for item in module.items if item.name != _USED]
    if entries:
        list_text = ", ".join(entries[name] for name in sorted(entries))
        module.add(f'@{_USED} = appending global [{len(entries)} x ptr] [{list_text}], section "llvm.metadata"')


def _entries(variable: Variable) -> dict[str, str]:
    found: dict[str, str] = {}
    text = (variable.initializer or "").strip()
    for entry in split_commas(text.removeprefix("[").removesuffix("]")):
        match = re.search(r'@(?:"[^"]*"|[-a-zA-Z$._0-9]+)', entry)
        if match:
            found[match[0][1:].strip('"')] = entry
    return found


def _entry(name: str, space: int) -> str:
    if space == 0:
        return f"ptr {quote(name)}"
    return f"ptr addrspacecast (ptr addrspace({space}) {quote(name)} to ptr)"

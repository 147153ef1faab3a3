"""Symbols of one module: what a linker needs to resolve names without parsing bitcode.

Plain data only; `lto.summary` makes it from IR, `objfmt.rgo` stores it, `lto.resolve` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["function", "kernel", "variable", "alias"]
# LLVM LangRef, "Linkage Types"; `strong` is `external` with a body, `internal` includes `private`.
Binding = Literal[
    "strong", "weak", "linkonce", "common", "available_externally", "internal", "undefined", "extern_weak"
]


@dataclass(frozen=True)
class Symbol:
    """One global of a module. `refs` are the names of the globals that its definition refers to, sorted."""

    name: str
    kind: Kind
    binding: Binding
    type: str  # LLVM text: "i32 (i32, ptr)" for functions, "[4 x i32]" for variables
    addrspace: int = 0
    constant: bool = False
    section: str = ""
    align: int = 0  # bytes, 0 when not given
    refs: tuple[str, ...] = ()

    @property
    def is_definition(self) -> bool:
        return self.binding not in ("undefined", "extern_weak")


@dataclass(frozen=True)
class ModuleSummary:
    """All globals of one module (LLVM's own intrinsics left out), sorted by name.

    `ident` is `!llvm.ident` joined by "; ", "" when absent. `protected` says whether the module was compiled so
    that barriers and shared memory are intact (None: it has no definition to tell by). `used` are the names in
    `@llvm.used` and `@llvm.compiler.used`.
    """

    triple: str
    ident: str
    protected: bool | None
    symbols: tuple[Symbol, ...]
    used: tuple[str, ...] = ()

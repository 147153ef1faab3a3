"""GPU architectures: names, what PTX version each needs, and the limits that a link checks."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

from rglink.diagnostics import UsageError

Suffix = Literal["", "a", "f"]

# Lowest PTX ISA version (times 10) per target: LLVM 22, `NVPTX.td` and the PTX ISA manual, "Target ISA Notes".
# `a` is architecture-specific (sm_90a on), `f` family-specific (sm_100f on).
_LOWEST_PTX: dict[str, int] = {
    "75": 63, "80": 70, "86": 71, "87": 74, "88": 90, "89": 78, "90": 78, "90a": 80,
    "100": 86, "100a": 86, "100f": 88, "103": 88, "103a": 88, "103f": 88,
    "110": 90, "110a": 90, "110f": 90, "120": 87, "120a": 87, "120f": 88, "121": 88, "121a": 88, "121f": 88,
}  # fmt: skip
# `all-major`: each generation's first member, as nvcc means it.
_MAJOR = ("75", "80", "90", "100", "110", "120")
# Last toolkit that compiled for an architecture which libNVVM 13 no longer knows.
_LAST_TOOLKIT = {"2": "8.0", "3": "11.8", "5": "12.9", "6": "12.9", "7": "12.9"}

STATIC_SHARED_LIMIT = 48 * 1024  # bytes per block, every target (CUDA programming guide, "Technical Specifications")
CONSTANT_LIMIT = 64 * 1024  # bytes per module


@dataclass(frozen=True)
class Arch:
    """One real architecture. `number` is 90 for sm_90a."""

    number: int
    suffix: Suffix = ""

    @property
    def label(self) -> str:
        """The bare name that fat binaries use: "90a"."""
        return f"{self.number}{self.suffix}"

    @property
    def sm(self) -> str:
        return f"sm_{self.label}"

    @property
    def compute(self) -> str:
        return f"compute_{self.label}"

    @property
    def lowest_ptx(self) -> int:
        """Lowest PTX ISA version that knows this target, times 10."""
        return _LOWEST_PTX[self.label]

    @property
    def sort_key(self) -> tuple[int, str]:
        return self.number, self.suffix


@dataclass(frozen=True)
class Target:
    """One entry of the fat binary that was asked for: machine code, or PTX."""

    arch: Arch
    kind: Literal["cubin", "ptx"]

    @property
    def name(self) -> str:
        return self.arch.sm if self.kind == "cubin" else self.arch.compute

    @property
    def sort_key(self) -> tuple[int, str, str]:
        return self.arch.number, self.arch.suffix, self.kind


def parse_arch_list(text: str, native: tuple[Arch, ...] = ()) -> tuple[Target, ...]:
    """Read `--arch`'s value: names by commas, `all`, `all-major`, `native`; sorted, each once.

    Raises:
        UsageError: a name is unknown, too old, or `native` is asked for and no GPU was found.
    """
    targets: set[Target] = set()
    for name in filter(None, (part.strip() for part in text.split(","))):
        targets |= _expand(name, native)
    if not targets:
        raise UsageError("--arch: empty list, wanted names such as sm_90,compute_90", slug="unknown-arch")
    return tuple(sorted(targets, key=lambda target: target.sort_key))


def _expand(name: str, native: tuple[Arch, ...]) -> set[Target]:
    if name == "native":
        if not native:
            raise UsageError("--arch native: no GPU was found on this machine", slug="unknown-arch")
        return {Target(arch, "cubin") for arch in native}
    if name in ("all", "all-major"):
        labels = [label for label in _LOWEST_PTX if label.isdigit()] if name == "all" else list(_MAJOR)
        newest = max(labels, key=int)
        return {Target(parse_arch(f"sm_{label}"), "cubin") for label in labels} | {
            Target(parse_arch(f"sm_{newest}"), "ptx")
        }
    kind: Literal["cubin", "ptx"] = "ptx" if name.startswith("compute_") else "cubin"
    return {Target(parse_arch(name), kind)}


def parse_arch(name: str) -> Arch:
    """Read "sm_90a" or "compute_90a".

    Raises:
        UsageError: the name is malformed, unknown, or older than sm_75.
    """
    match = re.fullmatch(r"(?:sm|compute)_(\d+)([af]?)", name)
    if match and match[1] + match[2] in _LOWEST_PTX:
        suffix: Suffix = "a" if match[2] == "a" else "f" if match[2] == "f" else ""
        return Arch(int(match[1]), suffix)
    if match and int(match[1]) < 75:
        last = _LAST_TOOLKIT.get(match[1][0], "12.9")
        message = f"{name}: CUDA {last} was the last toolkit that knew it; supported: {_supported()}"
        raise UsageError(message, slug="unknown-arch")
    known = [f"{prefix}_{label}" for label in _LOWEST_PTX for prefix in ("sm", "compute")]
    near = difflib.get_close_matches(name, known, 2)
    hint = f"did you mean {' or '.join(near)}?" if near else None
    raise UsageError(f"{name}: unknown architecture; supported: {_supported()}", slug="unknown-arch", cure=hint)


def _supported() -> str:
    return ", ".join(f"sm_{label}" for label in _LOWEST_PTX)

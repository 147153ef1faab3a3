"""What one code generation is asked for and what it gives: plain data, so that any backend can run it anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rglink.arch import Target

Route = Literal["llvm", "nvvm"]
Debug = Literal["none", "lineinfo", "full"]


@dataclass(frozen=True)
class Program:
    """The final program as plain data. `bitcode` is all that code generation needs; `kernels` and `variables` are
    the names that every image must show to the host, sorted; `debug` says what line information the IR holds."""

    bitcode: bytes
    kernels: tuple[str, ...]
    variables: tuple[str, ...]
    debug: Debug


@dataclass(frozen=True)
class CodegenJob:
    """The final program for one target.

    `bitcode` is LLVM bitcode: optimized, lowered, one definition for every symbol, and the same for all targets or
    made for this one. `kernels` and `variables` are the names that the image must show to the host.
    `debug` says what line information the IR holds: "none", line directives ("lineinfo") or all of it ("full").
    """

    name: str  # what messages call the program: "app.fatbin", or a partition of it
    target: Target
    route: Route
    bitcode: bytes
    kernels: tuple[str, ...]
    variables: tuple[str, ...]
    opt_level: int = 3  # 0 to 3
    debug: Debug = "none"
    fast_math: bool = False

    @property
    def label(self) -> str:
        """What errors call this job: "app.fatbin for sm_90"."""
        return f"{self.name} for {self.target.name}"


@dataclass(frozen=True)
class CodegenResult:
    """One entry of a fat binary: `image` is a cubin, or PTX text (UTF-8, no NUL at the end), by `target.kind`.

    `ptx` is the PTX that a cubin was assembled from (None where the route made none), `log` what the tools said.
    """

    target: Target
    image: bytes
    ptx: bytes | None
    log: str

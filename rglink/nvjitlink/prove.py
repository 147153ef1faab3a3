"""The proof of contents: what came out of code generation against what was asked for.

nvJitLink reports success for a kernel that it dropped, so every image is read back, for every architecture.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rglink.arch import Target
from rglink.diagnostics import Diagnostics, InputError
from rglink.nvjitlink.job import CodegenResult
from rglink.objfmt.cubin import read_cubin
from rglink.objfmt.ptx import SKIPPED, read_ptx

# NVIDIA's own: ptxas adds helpers such as `__cuda_sm70_barrier_sync_0`, weak, on some architectures.
_TOOLS_OWN = ("__cuda_", "__nv_", ".nv.", "$")
# The driver resolves these when it loads the cubin.
_DRIVER_FUNCTIONS = frozenset({"vprintf", "malloc", "free", "__assertfail"})
_PTX_VARIABLE = re.compile(r"\.visible\s+\.(?:global|const)\b[^;{=]*?([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\]\s*)*[;=]")


@dataclass(frozen=True)
class Contents:
    """What an image shows to the host."""

    kernels: frozenset[str]
    variables: frozenset[str]


def prove(
    results: Sequence[CodegenResult], kernels: Collection[str], variables: Collection[str], diags: Diagnostics
) -> None:
    """Read every image back and report as `proof-failed` what differs from `kernels` and `variables`.

    A variable counts when the host can find it: global or constant memory, visible outside its module.
    """
    for result in results:
        name = result.target.name
        try:
            found = read_contents(result)
        except InputError as error:
            diags.error("proof-failed", f"{name}: the link made an image that cannot be read: {error}")
            continue
        _compare(name, "kernel", set(kernels), found.kernels, diags)
        _compare(name, "variable", set(variables), found.variables, diags)


def _compare(name: str, kind: str, wanted: set[str], found: frozenset[str], diags: Diagnostics) -> None:
    missing = sorted(wanted - found)
    extra = sorted(found - wanted)
    if not missing and not extra:
        return
    places = [f"missing: {symbol}" for symbol in missing] + [f"not asked for: {symbol}" for symbol in extra]
    diags.error("proof-failed", f"{name}: the image's {kind}s are not those that were linked", *places)


def read_contents(result: CodegenResult) -> Contents:
    """The kernels and variables of an image.

    Raises:
        InputError: it is damaged, or made for another architecture than its target's.
    """
    if result.target.kind == "ptx":
        return _ptx_contents(result)
    cubin = read_cubin("cubin", result.image)
    _check_arch(result.target, cubin.sm, cubin.suffix)
    if cubin.relocatable:
        raise InputError("cubin: is relocatable, wanted a final one")
    undefined = sorted(set(cubin.undefined) - _DRIVER_FUNCTIONS)
    if undefined:
        raise InputError(f"cubin: has undefined names: {', '.join(undefined)}")
    return Contents(
        frozenset(kernel.name for kernel in cubin.kernels),
        frozenset(
            variable.name
            for variable in cubin.variables
            if variable.binding == "global"
            and variable.space in ("global", "constant")
            and not variable.name.startswith(_TOOLS_OWN)
        ),
    )


def _ptx_contents(result: CodegenResult) -> Contents:
    ptx = read_ptx("PTX", result.image)
    _check_arch(result.target, ptx.sm, ptx.suffix)
    if result.image.endswith(b"\0"):
        raise InputError("PTX: ends in a NUL byte")
    code = SKIPPED.sub(" ", result.image.decode())
    return Contents(frozenset(ptx.kernels), frozenset(_PTX_VARIABLE.findall(code)))


def _check_arch(target: Target, number: int, suffix: str) -> None:
    # A cubin for sm_100f is bytewise one for sm_100.
    expected = "" if target.kind == "cubin" and target.arch.suffix == "f" else target.arch.suffix
    if (number, suffix) != (target.arch.number, expected):
        raise InputError(f"image: is for {number}{suffix}, wanted {target.arch.label}")

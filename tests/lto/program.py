"""The device ABI on a merged program, in the order in which `link` does it."""

from __future__ import annotations

from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.device_abi import address_program, expose_spaces, mark_program


def apply_device_abi(module: Module, diags: Diagnostics) -> None:
    """All four steps, before any optimization."""
    text = ModuleText.parse(module.text())
    mark_program(text, diags)
    module.replace(text.render())
    address_program(module, diags)


def expose(module: Module, diags: Diagnostics) -> None:
    """Steps 2 and 3 once more, after the optimization."""
    text = ModuleText.parse(module.text())
    expose_spaces(text, diags)
    module.replace(text.render())

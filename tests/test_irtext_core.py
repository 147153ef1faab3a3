"""The readers of printed IR on the whole of core, alloc and compiler_builtins, as rustc compiled them."""

from __future__ import annotations

import pytest

from rglink.ir import Module
from rglink.irinst import phi_incoming, read_access, read_blocks, read_call
from rglink.irtext import ModuleText, code_of, read_function, read_variable
from rglink.irtypes import layout_of, named_types
from rglink.objfmt.archive import read_archive
from tests.lto.rustc_output import toolchain

pytestmark = pytest.mark.rust
_MEMBERS = 6  # of each library: about 45,000 instructions in all


@pytest.mark.parametrize("library", ["core", "alloc", "compiler_builtins"])
def test_every_line_of_the_sysroot_is_understood(library: str) -> None:
    _, sysroot = toolchain()
    path = getattr(sysroot, library)
    archive = read_archive(str(path), path.read_bytes())
    for member in archive.members[:_MEMBERS]:
        text = Module.parse_bitcode(member.data, member.name).text()
        module = ModuleText.parse(text)
        assert module.render() == text.rstrip("\n") + "\n"
        types = named_types(module)
        for item in module.of_kind("variable"):
            variable = read_variable(item.head)
            assert variable.render() == item.head
            assert layout_of(variable.type, types).size >= 0
        for item in module.of_kind("declare"):
            assert read_function(item.head).render() == code_of(item.head).rstrip()
        for item in module.of_kind("define"):
            function = read_function(item.head)
            assert function.render() == code_of(item.head).rstrip()
            check_body(item.body, [parameter.name for parameter in function.parameters])


def check_body(body: list[str], parameters: list[str]) -> None:
    blocks = read_blocks(body, parameters)
    labels = {block.label for block in blocks}
    for block in blocks:
        assert [i.is_terminator for i in block.instructions].index(True) == len(block.instructions) - 1
        assert labels >= set(block.terminator.targets())
        for instruction in block.instructions:
            access = read_access(instruction)
            if access:
                place = instruction.rest[access.pointer_position :]
                assert place.startswith(f"{access.pointer_type} {access.pointer}")
            if instruction.opcode == "phi":
                assert labels >= {label for _, label in phi_incoming(instruction)[1]}
            if instruction.opcode == "call":
                call = read_call(instruction)
                assert call.callee or call.is_asm

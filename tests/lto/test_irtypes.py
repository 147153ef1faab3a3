"""Sizes of types, against LLVM's own."""

from __future__ import annotations

import pytest
from llvmlite import binding

from rglink.ir import TRIPLE, Module
from rglink.irtext import ModuleText
from rglink.irtypes import Layout, layout_of, named_types

TYPES = [
    "i1",
    "i8",
    "i9",
    "i16",
    "i24",
    "i32",
    "i48",
    "i64",
    "i65",
    "i128",
    "i129",
    "i256",
    "i300",
    "half",
    "bfloat",
    "float",
    "double",
    "ptr",
    "ptr addrspace(3)",
    "[0 x i64]",
    "[3 x { i8, i32 }]",
    "{ i8, i64, i8 }",
    "<{ i8, i64, i8 }>",
    "{}",
    "<{}>",
    "<4 x i32>",
    "<3 x float>",
    "<3 x i8>",
    "<17 x i1>",
    "{ i8, <3 x i32>, i16 }",
    "[2 x [3 x i128]]",
    "<{ ptr, [7 x i8] }>",
    "{ { i8, i16 }, { i64 } }",
    "[5 x i24]",
    "<2 x half>",
    "<2 x ptr>",
]


def laid_out_by_llvm(type_: str) -> Layout:
    """What the NVPTX target machine says: the size of an array's element, and the offset after one byte."""
    Module.parse_text("", "registers the target")
    machine = binding.Target.from_triple(TRIPLE).create_target_machine(cpu="sm_75")
    text = f'target datalayout = "{machine.target_data}"\n@a = global [1 x {type_}] zeroinitializer\n'
    text += f"@s = global {{ i8, {type_} }} zeroinitializer\n"
    module = binding.parse_assembly(text)
    array = module.get_global_variable("a").global_value_type
    struct = module.get_global_variable("s").global_value_type
    data = machine.target_data
    return Layout(data.get_abi_size(array), data.get_element_offset(struct, 1))


@pytest.mark.parametrize("type_", TYPES)
def test_layout_is_llvms(type_: str) -> None:
    assert layout_of(type_, {}) == laid_out_by_llvm(type_)


def test_named_types_are_followed() -> None:
    text = ModuleText.parse('%a = type { i8, %"b c" }\n%"b c" = type [3 x i32]\n%opaque_one = type opaque\n')
    types = named_types(text)
    assert layout_of("%a", types) == Layout(16, 4)
    assert layout_of('%"b c"', types) == Layout(12, 4)


@pytest.mark.parametrize("type_", ["void", "%unknown", "label", "opaque"])
def test_types_without_a_size_are_refused(type_: str) -> None:
    with pytest.raises(ValueError, match="has no size"):
        layout_of(type_, {})

"""Every global gets a name that PTX can spell, the same in every order."""

from __future__ import annotations

import pytest

from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import ModuleText, quote
from rglink.lto.names import is_legal, legal_name, legalize_names
from tests.lto.ptx import assemble

HEAD = 'target triple = "nvptx64-nvidia-cuda"\n'
ODD = (
    "anon.0123abcd.0",
    "switch.table.f",
    "a-b",
    "é",
    "1a",
    "_",
    "$",
    "a b",
    'q"x',
    "_ZN4core3fmt17h0E..llvm.12",
    "%foo",
)
HIDDEN = ("param0", "retval0", "k_param_0", "__local_depot0", "$L__BB0_1", "WARP_SZ", "func_retval0", "temp_param_reg")
FINE = ("add", "mov", "tid", "entry", "reg", "_a", "$a", "a$1", "x" * 3000, "other_param_0", "SP")


def program(name: str) -> str:
    """A kernel `k` that calls a local function of this name and uses a local variable called alike."""
    function, variable = quote(name), quote(f"{name}.v")
    return f"""{HEAD}
{variable} = internal addrspace(1) global i32 3
define internal i32 {function}(i32 %x) noinline {{
  %frame = alloca [4 x i32]
  %q = getelementptr i32, ptr %frame, i32 %x
  store volatile i32 %x, ptr %q
  %r = load volatile i32, ptr %q
  ret i32 %r
}}
define ptx_kernel void @k(ptr %p, i32 %n) {{
  %v = load volatile i32, ptr addrspace(1) {variable}
  %r = call i32 {function}(i32 %v)
  store i32 %r, ptr addrspace(1) {variable}
  store i32 %r, ptr %p
  ret void
}}
"""


def legalized(ir: str, *exported: str) -> tuple[Module, dict[str, str], list[str]]:
    module = Module.parse_text(ir, "test")
    text, diags = ModuleText.parse(module.text()), Diagnostics()
    names = legalize_names(text, exported, diags)
    module.replace(text.render())
    module.verify()
    return module, names, [item.render() for item in diags.items]


@pytest.mark.parametrize("name", [*ODD, *HIDDEN, *FINE], ids=lambda name: name[:20])
def test_ptxas_takes_every_name(name: str) -> None:
    module, names, said = legalized(program(name), "k")
    assert (name in names) == (name not in FINE)
    assert said == []
    ptx = assemble(module.text(), "sm_75")
    assert f" {names.get(name, name)}(" in ptx
    assert f" {names.get(f'{name}.v', '')}" in ptx


def test_names_come_from_themselves_alone() -> None:
    _, forward, _ = legalized(HEAD + "@a.b = global i32 1\n@c.d = global i32 1\n")
    _, backward, _ = legalized(HEAD + "@c.d = global i32 1\n@z.z = global i32 1\n@a.b = global i32 1\n")
    assert forward == {name: backward[name] for name in forward}


def test_a_name_that_is_taken_is_made_longer() -> None:
    taken = legal_name("a.b")
    _, names, _ = legalized(f"{HEAD}@a.b = global i32 1\n@{taken} = global i32 2\n@a_b = global i32 3\n")
    assert names == {"a.b": legal_name("a.b", 9)}


def test_an_exported_name_that_has_to_change_is_reported() -> None:
    kernel = "_ZN3dep5scale17h0123456789abcdefE.exit"
    module, names, said = legalized(f"{HEAD}define ptx_kernel void @{kernel}() {{\n  ret void\n}}\n", kernel)
    assert names == {kernel: legal_name(kernel)}
    assert said == [
        f"rglink: warning: dep::scale: its symbol {kernel} is no PTX identifier: "
        f"the output calls it {legal_name(kernel)} [renamed-kernel]"
    ]
    assert f".visible .entry {legal_name(kernel)}(" in assemble(module.text(), "sm_75")


def test_declarations_keep_their_names() -> None:
    _, names, _ = legalized(HEAD + "declare void @a.b()\n@c.d = external global i32\n")
    assert "a.b" not in names


def test_a_parameter_of_another_function_hides_nothing() -> None:
    assert is_legal("k_param_0", {"f"})
    assert not is_legal("k_param_0", {"k"})

"""The reader of instructions, on what LLVM itself prints."""

from __future__ import annotations

import pytest

from rglink.ir import Module
from rglink.irinst import (
    Access,
    Block,
    Instruction,
    instructions,
    phi_incoming,
    read_access,
    read_blocks,
    read_call,
    value_end,
)
from rglink.irtext import ModuleText, read_function

BODY = r"""
target triple = "nvptx64-nvidia-cuda"
@g = global [4 x i32] zeroinitializer
@"odd (" = addrspace(3) global [4 x i32] undef
declare i32 @callee(ptr, { i32, i32 }, ...)
declare void @"odd call ("(ptr)
define i32 @f(i32 %0, ptr %p, ptr %fp, i1 %c) {
  %2 = add i32 %0, 1
  switch i32 %2, label %rest [
    i32 0, label %zero
    i32 -5, label %"odd ; one"
  ], !prof !0

zero:
  %a = load atomic volatile i32, ptr %p syncscope("block") acquire, align 4, !noundef !1
  store atomic i32 %a, ptr getelementptr inbounds (i8, ptr @g, i64 4) release, align 4
  %old = atomicrmw volatile add ptr addrspacecast (ptr addrspace(3) @"odd (" to ptr), i32 %a syncscope("device") acq_rel, align 4
  %pair = cmpxchg weak volatile ptr %p, i32 0, i32 %old acq_rel monotonic, align 4
  br i1 %c, label %rest, label %"odd ; one"

"odd ; one":
  %x = load <2 x float>, ptr addrspace(3) @"odd (", align 8
  store { i32, i32 } { i32 1, i32 2 }, ptr %p, align 4
  store ptr @g, ptr %p, align 8
  %r = call i32 (ptr, { i32, i32 }, ...) @callee(ptr noundef nonnull align 4 @g, { i32, i32 } { i32 1, i32 2 }, i32 %2) #1, !srcloc !1
  call void @"odd call ("(ptr %p)
  %i = tail call noundef range(i32 0, 9) i32 %fp(ptr %p)
  %s = call { i32, i32 } asm sideeffect alignstack "add.s32 $0, $2, 1; // (\22, @g", "=r,=r,r,~{memory}"(i32 %i) #1, !srcloc !1
  br label %rest

rest:
  %phi = phi ptr [ %p, %1 ], [ getelementptr inbounds (i8, ptr @g, i64 8), %zero ], [ null, %"odd ; one" ]
  %sel = select i1 %c, ptr %phi, ptr @g
  %fl = phi nnan ninf float [ 0.000000e+00, %1 ], [ 1.000000e+00, %zero ], [ 2.000000e+00, %"odd ; one" ]
  ret i32 %2
}
attributes #1 = { nounwind }
!0 = !{!"branch_weights", i32 1, i32 2, i32 3}
!1 = !{}
"""  # noqa: E501


@pytest.fixture(scope="module")
def blocks() -> list[Block]:
    item = ModuleText.parse(Module.parse_text(BODY, "test").text()).named()["f"]
    return read_blocks(item.body, [p.name for p in read_function(item.head).parameters])


def by_result(blocks: list[Block]) -> dict[str, Instruction]:
    return {i.result: i for block in blocks for i in block.instructions if i.result}


def accesses(blocks: list[Block]) -> list[Access]:
    return [a for block in blocks for i in block.instructions if (a := read_access(i)) is not None]


def test_blocks_have_labels_and_one_terminator(blocks: list[Block]) -> None:
    assert [block.label for block in blocks] == ["%1", "%zero", '%"odd ; one"', "%rest"]
    for block in blocks:
        assert [i.is_terminator for i in block.instructions].count(True) == 1
        assert block.terminator.is_terminator
    assert blocks[0].terminator.targets() == ["%rest", "%zero", '%"odd ; one"']
    assert blocks[1].terminator.targets() == ["%rest", '%"odd ; one"']
    assert blocks[3].terminator.targets() == []


def test_every_instruction_is_seen_once(blocks: list[Block]) -> None:
    item = ModuleText.parse(Module.parse_text(BODY, "test").text()).named()["f"]
    listed = [i for block in blocks for i in block.instructions]
    assert listed == list(instructions(item.body))
    assert len(listed) == 19
    for instruction in listed:
        line = item.body[instruction.index]
        assert instruction.opcode in line
        assert instruction.opcode == "switch" or line.rstrip().endswith(instruction.rest.rstrip())


def test_accesses_end_the_pointer_before_the_ordering(blocks: list[Block]) -> None:
    found = [(a.opcode, a.value_type, a.pointer_type, a.pointer) for a in accesses(blocks)]
    assert found == [
        ("load", "i32", "ptr", "%p"),
        ("store", "i32", "ptr", "getelementptr inbounds (i8, ptr @g, i64 4)"),
        ("atomicrmw", "i32", "ptr", 'addrspacecast (ptr addrspace(3) @"odd (" to ptr)'),
        ("cmpxchg", "i32", "ptr", "%p"),
        ("load", "<2 x float>", "ptr addrspace(3)", '@"odd ("'),
        ("store", "{ i32, i32 }", "ptr", "%p"),
        ("store", "ptr", "ptr", "%p"),
    ]


def test_the_position_of_an_access_is_that_of_its_pointer(blocks: list[Block]) -> None:
    for block in blocks:
        for instruction in block.instructions:
            access = read_access(instruction)
            if access:
                assert instruction.rest.startswith(f"{access.pointer_type} {access.pointer}", access.pointer_position)


def test_calls_are_taken_apart(blocks: list[Block]) -> None:
    calls = [read_call(i) for block in blocks for i in block.instructions if i.opcode == "call"]
    assert [call.callee for call in calls] == ["callee", "odd call (", "%fp", ""]
    assert calls[0].arguments == ("ptr noundef nonnull align 4 @g", "{ i32, i32 } { i32 1, i32 2 }", "i32 %2")
    assert calls[0].return_type == "i32 (ptr, { i32, i32 }, ...)"
    assert calls[0].suffix.endswith(", !srcloc !0") or ", !srcloc !" in calls[0].suffix
    assert calls[2].return_type == "i32"
    asm = calls[3]
    assert asm.is_asm
    assert asm.asm_flags == ("sideeffect", "alignstack")
    assert asm.asm_text == r"add.s32 $0, $2, 1; // (\22, @g"
    assert asm.asm_constraints == "=r,=r,r,~{memory}"
    assert asm.arguments == ("i32 %i",)
    assert asm.return_type == "{ i32, i32 }"


def test_calls_of_other_forms_are_refused() -> None:
    with pytest.raises(ValueError, match="not a call"):
        read_call(Instruction(0, "", "call", "void"))


def test_phis_keep_constant_expressions_whole(blocks: list[Block]) -> None:
    found = by_result(blocks)
    assert phi_incoming(found["%phi"]) == (
        "ptr",
        [
            ("%p", "%1"),
            ("getelementptr inbounds (i8, ptr @g, i64 8)", "%zero"),
            ("null", '%"odd ; one"'),
        ],
    )
    assert phi_incoming(found["%fl"])[0] == "float"


def test_locals_do_not_come_from_strings_or_globals(blocks: list[Block]) -> None:
    found = by_result(blocks)
    assert found["%s"].locals() == ["%i"]
    assert found["%sel"].locals() == ["%c", "%phi"]


@pytest.mark.parametrize(
    "value",
    ["%p", '@"a (b"', "null", "poison", "getelementptr inbounds nuw (i8, ptr @g, i64 4)",
     "getelementptr inbounds inrange(-16, 8) ({ [3 x ptr] }, ptr @vt, i32 0, i32 0, i32 2)",
     "inttoptr (i64 16 to ptr)", 'addrspacecast (ptr addrspace(3) @"odd )" to ptr)'],
)  # fmt: skip
def test_a_pointer_value_ends_where_it_ends(value: str) -> None:
    assert value_end(f"ptr {value} monotonic, align 4", 4) == 4 + len(value)


def test_what_is_no_pointer_value_is_refused() -> None:
    with pytest.raises(ValueError, match="no pointer value"):
        value_end("ptr , align 4", 4)

"""PTX text to data: declarations, scopes, initialisers, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from rglink.diagnostics import InputError
from rglink.emulate.parser import parse_ptx
from rglink.emulate.ptx import Address, Immediate, Label, Register, Relocation, Vector
from tests.emulate.support import kernel, loaded, module

EVERYTHING = module(
    """
.file 1 "src/lib.rs"
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.visible .global .align 8 .u64 table[3] = {helper, generic(data)+4, 7};
.global .align 4 .b8 data[8] = {1, 2, 0xFF};
.global .f32 scales[2] = {1.5, 0f40000000};
.const .align 4 .s32 grid[2][2] = {{1, -2}, {3}};
.global .align 1 .b8 packed[8] = {0xFF(data), 0xFF00(data), 0xFF0000(data), 0xFF000000(data), 0, 0, 0, 0};
.extern .shared .align 16 .b8 pool[];
.func (.param .b32 out) helper(.param .align 8 .b8 in[16]) { .reg .b32 %r<2>; ld.param.b32 %r1, [in+4];
 st.param.b32 [out], %r1; ret; }
.visible .entry k(.param .u64 .ptr .global .align 4 p, .param .f32 x) .maxntid 128, 1, 1 .minnctapersm 2
{ .reg .b32 %r<3>; .reg .pred p, q; .reg .b64 %rd<3>;
 .loc 1 12 4
 ld.param.u64 %rd1, [p];
 mov.u32 %r1, 0x10; mov.u32 %r2, 017;
 { .reg .pred p; .reg .b32 t; setp.eq.u32 p, %r1, (1 << 4); @p bra DONE; mov.u32 t, %r1; DONE: }
 { .reg .pred p; setp.ne.u32 p, %r1, 3; @!p bra DONE; DONE: }
 .loc 1 14 1, function_name $L__info, inlined_at 1 3 2
 ld.global.v2.u32 {%r1, _}, [%rd1+-8];
 @!q st.global.u32 [%rd1+8], %r1;
 ret; }
.section .debug_str { $L__info: .b8 65, 0 }
""".replace("@!q st", "@q st")
)


def test_a_module_is_read_whole() -> None:
    program = parse_ptx("a.ptx", EVERYTHING)
    assert (program.version, program.target) == ((8, 6), "sm_90")
    kernel_function, helper = program.functions["k"], program.functions["helper"]
    assert kernel_function.is_kernel
    assert kernel_function.directives == {"maxntid": (128, 1, 1), "minnctapersm": (2,)}
    assert not program.functions["vprintf"].defined
    assert [(p.size, p.align) for p in helper.parameters] == [(16, 8)]
    assert program.variables["table"].relocations == (Relocation(0, 8, "helper", 0), Relocation(8, 8, "data", 4))
    assert program.variables["data"].initial == bytes([1, 2, 255])
    assert program.variables["data"].size == 8
    assert np.frombuffer(program.variables["scales"].initial, np.float32).tolist() == [1.5, 2.0]
    assert np.frombuffer(program.variables["grid"].initial, np.int32).tolist() == [1, -2, 3]
    assert [r.shift for r in program.variables["packed"].relocations] == [0, 8, 16, 24]
    assert program.variables["pool"].external
    assert program.variables["pool"].size == 0


def test_inner_blocks_have_names_of_their_own() -> None:
    function = parse_ptx("a.ptx", EVERYTHING).functions["k"]
    setps = [i for i in function.instructions if i.opcode[0] == "setp"]
    assert [i.operands[0] for i in setps] == [Register("p@1", "pred"), Register("p@2", "pred")]
    assert setps[0].operands[2] == Immediate(16)
    branches = [i.operands[0] for i in function.instructions if i.opcode[0] == "bra"]
    assert branches == [Label("DONE@1"), Label("DONE@2")]
    assert function.instructions[2].operands[1] == Immediate(15), "octal"


def test_operands_and_lines() -> None:
    function = parse_ptx("a.ptx", EVERYTHING).functions["k"]
    load_vector, store = function.instructions[-3], function.instructions[-2]
    assert isinstance(load_vector.operands[0], Vector)
    assert load_vector.operands[1] == Address(Register("%rd1", "b64"), -8)
    assert store.guard == (Register("q", "pred"), False)
    assert (function.instructions[0].loc, store.loc) == (("src/lib.rs", 12), ("src/lib.rs", 14))


def test_initialisers_reach_memory() -> None:
    program = loaded(
        kernel(
            "ld.param.u64 %rd0, [out]; ld.global.u64 %rd1, [where]; ld.u32 %r0, [%rd1]; st.global.u32 [%rd0], %r0;",
            before=".global .align 4 .u32 values[3] = {5, 6, 7};\n.global .u64 where = generic(values)+8;",
        )
    )
    out = np.zeros(1, np.uint32)
    program["k"][1, 1](out)
    assert out[0] == 7
    program.variables["values"].write(np.array([0, 0, 99], np.uint32))
    program["k"][1, 1](out)
    assert out[0] == 99
    assert program.variables["values"].read(np.uint32).tolist() == [0, 0, 99]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.ptx: is not PTX: no .version directive"),
        (".version 8.0\n", "a.ptx: is not PTX: no .target directive"),
        (".version 12.0\n.target sm_90", "a.ptx: PTX version is 12.0, the machine reads up to 9.9"),
        (module(".visible .entry k() { ret;"), "the text ends in function k"),
        (module(".visible .entry k() { bra NOWHERE; }"), "function k has no label NOWHERE"),
        (module(".visible .entry k() { § }"), "line 4: '§' is no PTX"),
        (module(".surfref s;"), "line 4: '.surfref' is not supported at module scope"),
        (module(".visible .entry k() { L: L: ret; }"), "label L is defined twice"),
        (module(".global .b8 x[2] = {1, 2, 3};"), "the initialiser of x has 3 bytes, the variable 2"),
        (".version 8.0\n.target sm_90\n.address_size 32\n", "only 64-bit addresses"),
    ],
)
def test_what_is_no_ptx_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_ptx("a.ptx", text)
    assert message in str(caught.value)


def test_every_truncation_is_an_error_or_a_shorter_module() -> None:
    for end in range(0, len(EVERYTHING), 7):
        try:
            parse_ptx("a.ptx", EVERYTHING[:end])
        except InputError as error:
            assert str(error).startswith("a.ptx: "), error  # noqa: PT017

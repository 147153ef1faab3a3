"""Branches, calls and ends: divergent lanes, recursion, indirect calls, and random programs against plain Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pytest

from rglink.emulate import KernelFault, frames
from tests.emulate.support import PLACE, kernel, loaded, module

LANES = np.arange(96, dtype=np.uint32)


def run(body: str, before: str = "", grid: int = 1, block: int = 96, seed: int | None = None) -> np.ndarray:
    """The words that the threads wrote to `out`."""
    out = np.zeros(grid * block, np.uint32)
    loaded(kernel(PLACE + body, before=before))["k"].launch(grid, block, (out,), seed=seed)
    return out


def test_lanes_part_and_meet() -> None:
    body = """
    and.b32 %r3, %r0, 1; setp.eq.u32 %p0, %r3, 0; mov.u32 %r4, 100;
    @%p0 bra EVEN; add.u32 %r4, %r4, %r0; bra JOIN;
    EVEN: mul.lo.u32 %r4, %r4, %r0;
    JOIN: activemask.b32 %r5; popc.b32 %r5, %r5; mad.lo.u32 %r4, %r5, 100000, %r4; st.global.u32 [%rd0], %r4;
    """
    expected = np.where(LANES % 2 == 0, 100 * LANES, 100 + LANES) + 32 * 100000
    assert (run(body) == expected).all()


def test_loops_of_different_lengths() -> None:
    body = """
    mov.u32 %r3, 0; mov.u32 %r4, 0;
    L: setp.ge.u32 %p0, %r3, %r0; @%p0 bra END; add.u32 %r3, %r3, 1; add.u32 %r4, %r4, %r3; bra L;
    END: st.global.u32 [%rd0], %r4;
    """
    assert (run(body, grid=3, block=64) == np.arange(192) * np.arange(1, 193) // 2).all()


def test_early_exit_under_a_guard() -> None:
    body = "setp.gt.u32 %p0, %r0, 40; @%p0 exit; st.global.u32 [%rd0], 7;"
    assert (run(body) == np.where(LANES > 40, 0, 7)).all()


def test_guards_keep_what_was_there() -> None:
    body = """
    setp.lt.u32 %p0, %r0, 50; mov.u32 %r4, 1; @%p0 mov.u32 %r4, %r0; @!%p0 add.u32 %r4, %r4, 5;
    mov.u32 %r5, 9; @%p0 ld.global.u32 %r5, [%rd0]; add.u32 %r4, %r4, %r5; st.global.u32 [%rd0], %r4;
    """
    assert (run(body) == np.where(LANES < 50, LANES, 6 + 9)).all()


def test_indexed_branch() -> None:
    body = """
    rem.u32 %r3, %r0, 3; T: .branchtargets A, B, C; brx.idx %r3, T;
    A: mov.u32 %r4, 10; bra END; B: mov.u32 %r4, 20; bra END; C: mov.u32 %r4, 30;
    END: st.global.u32 [%rd0], %r4;
    """
    assert (run(body) == 10 * (LANES % 3 + 1)).all()


FIBONACCI = """
.func (.param .b32 result) fib(.param .b32 n)
{ .reg .pred %p; .reg .b32 %r<6>;
 ld.param.b32 %r0, [n]; setp.lt.u32 %p, %r0, 2; @%p bra SMALL;
 sub.u32 %r1, %r0, 1; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), fib, (a);
 ld.param.b32 %r2, [b]; }
 sub.u32 %r1, %r0, 2; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), fib, (a);
 ld.param.b32 %r3, [b]; }
 add.u32 %r0, %r2, %r3;
 SMALL: st.param.b32 [result], %r0; ret; }
"""


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_recursion_of_different_depths(seed: int | None) -> None:
    body = """
    rem.u32 %r3, %r0, 11; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3; call.uni (b), fib, (a);
    ld.param.b32 %r4, [b]; } st.global.u32 [%rd0], %r4;
    """
    numbers = np.array([0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55])
    assert (run(body, FIBONACCI, seed=seed) == numbers[LANES % 11]).all()


INNER_LOOP = """
.func (.param .b32 res) inner(.param .b32 n) {
.reg .pred %p; .reg .b32 %a<4>; ld.param.b32 %a0, [n]; mov.u32 %a1, 0; and.b32 %a2, %a0, 3;
L: setp.eq.u32 %p, %a2, 0; @%p bra END; sub.u32 %a2, %a2, 1; add.u32 %a1, %a1, %a0; bra L;
END: st.param.b32 [res], %a1; ret; }
.func (.param .b32 res) outer(.param .b32 n) {
.reg .pred %p; .reg .b32 %a<6>; .param .b32 given; .param .b32 taken; ld.param.b32 %a0, [n]; mov.u32 %a1, 0;
and.b32 %a2, %a0, 15;
L: setp.eq.u32 %p, %a2, 0; @%p bra END; sub.u32 %a2, %a2, 1; st.param.b32 [given], %a2;
call (taken), inner, (given); ld.param.b32 %a3, [taken]; add.u32 %a1, %a1, %a3; bra L;
END: st.param.b32 [res], %a1; ret; }
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_callers_keep_no_lanes_of_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that part and meet again in a callee: without care the callers' registers double at every meeting."""
    join, most = frames._joined_frames, [0]

    def watched(parts: Sequence[frames.Frame], sizes: Sequence[int], order: frames.Lanes) -> frames.Frame:
        found = join(parts, sizes, order)
        most[0] = max(most[0], found.lanes)
        assert found.lanes <= len(LANES)
        return found

    monkeypatch.setattr(frames, "_joined_frames", watched)
    body = """
    .param .b32 given; .param .b32 taken; st.param.b32 [given], %r0; call (taken), outer, (given);
    ld.param.b32 %r3, [taken]; st.global.u32 [%rd0], %r3;
    """
    expected = [sum((k % 4) * k for k in range(lane % 16)) for lane in LANES.tolist()]
    assert run(body, before=INNER_LOOP, seed=seed).tolist() == expected
    assert most[0] > 1


def test_calls_through_pointers() -> None:
    before = """
    .func (.param .b32 y) twice(.param .b32 x) { .reg .b32 %r; ld.param.b32 %r, [x]; shl.b32 %r, %r, 1;
     st.param.b32 [y], %r; ret; }
    .func (.param .b32 y) next(.param .b32 x) { .reg .b32 %r; ld.param.b32 %r, [x]; add.u32 %r, %r, 1;
     st.param.b32 [y], %r; ret; }
    .global .align 8 .u64 table[2] = {twice, next};
    """
    body = """
    and.b32 %r3, %r0, 1; mul.wide.u32 %rd2, %r3, 8; mov.u64 %rd3, table; add.u64 %rd3, %rd3, %rd2;
    ld.global.u64 %rd4, [%rd3];
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r0; proto: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (b), %rd4, (a), proto; ld.param.b32 %r4, [b]; } st.global.u32 [%rd0], %r4;
    """
    assert (run(body, before) == np.where(LANES & 1, LANES + 1, 2 * LANES)).all()


def test_aggregates_pass_by_value_whatever_the_pieces() -> None:
    before = """
    .func (.param .align 8 .b8 y[16]) mix(.param .align 8 .b8 x[16])
    { .reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.b64 %rd1, [x]; ld.param.v2.b32 {%r1, %r2}, [x+8];
      add.u32 %r1, %r1, %r2; st.param.b64 [y+8], %rd1; st.param.b32 [y], %r1; st.param.b8 [y+4], 3; ret; }
    """
    body = """
    { .param .align 8 .b8 a[16]; .param .align 8 .b8 b[16]; st.param.b32 [a], %r0; st.param.b16 [a+4], 1;
    st.param.b16 [a+6], 0; mov.b64 %rd2, 0x500000007; st.param.b64 [a+8], %rd2;
    call.uni (b), mix, (a); ld.param.b32 %r3, [b]; ld.param.b8 %r4, [b+4]; ld.param.b32 %r5, [b+8];
    ld.param.b32 %r6, [b+12]; }
    mad.lo.u32 %r3, %r3, 1000, %r4; add.u32 %r3, %r3, %r5; mad.lo.u32 %r3, %r6, 50000, %r3;
    st.global.u32 [%rd0], %r3;
    """
    assert (run(body, before) == 12 * 1000 + 3 + LANES + 50000).all()


def test_parameters_whose_address_is_taken_live_in_local_memory() -> None:
    """What LLVM makes of a byval argument that is indexed and changed."""
    before = """
    .func (.param .b32 y) pick(.param .align 8 .b8 x[20], .param .b32 i)
    { .reg .b64 %rd<6>; .reg .b32 %r<6>; mov.b64 %rd2, x; cvta.local.u64 %rd1, %rd2; ld.param.b32 %r1, [i];
      mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3; ld.b32 %r2, [%rd4+4];
      st.local.b32 [%rd5+4], 7; ld.param.b32 %r3, [x+16]; add.u32 %r2, %r2, %r3; ld.b32 %r3, [%rd1];
      mad.lo.u32 %r2, %r3, 10000, %r2; st.param.b32 [y], %r2; ret; }
    """
    body = """
    and.b32 %r3, %r0, 3; { .param .align 8 .b8 a[20]; .param .b32 b; .param .b32 c; st.param.b32 [a], %r0;
    st.param.b32 [a+4], 10; st.param.v2.b32 [a+8], {20, 30}; st.param.b32 [a+16], 400; st.param.b32 [b], %r3;
    call.uni (c), pick, (a, b); ld.param.b32 %r4, [c]; } st.global.u32 [%rd0], %r4;
    """
    picked = np.array([10 + 400, 20 + 400, 30 + 400, 400 + 7])[LANES % 4]
    assert (run(body, before) == 10000 * LANES + picked).all()


def test_arguments_in_registers() -> None:
    before = ".func (.reg .b32 y) sum(.reg .b32 a, .reg .b32 b) { add.u32 y, a, b; ret; }"
    assert (run("call.uni (%r4), sum, (%r0, 5); st.global.u32 [%rd0], %r4;", before) == LANES + 5).all()


def test_a_function_that_does_not_return_ends_the_thread() -> None:
    before = ".func stop() .noreturn { exit; }"
    body = "setp.lt.u32 %p0, %r0, 9; @%p0 call stop; st.global.u32 [%rd0], 1;"
    assert (run(body, before) == (LANES >= 9)).all()


def test_trap_names_the_place() -> None:
    text = module(
        '.file 1 "src/a.rs"\n.visible .entry k() { .reg .pred %p; .reg .b32 %r<3>; .loc 1 7 3\n'
        "mov.u32 %r1, %tid.y; mov.u32 %r2, %ctaid.x; add.u32 %r1, %r1, %r2; setp.eq.u32 %p, %r1, 3; @%p trap; ret; }",
    )
    with pytest.raises(KernelFault) as caught:
        loaded(text)["k"][3, (4, 4)]()
    fault = caught.value
    assert (fault.kernel, fault.source, fault.block, fault.thread) == ("k", ("src/a.rs", 7), (0, 0, 0), (0, 3, 0))
    assert fault.line == 6
    assert "src/a.rs:7" in fault.diagnostic.render()


def test_a_loop_without_end_is_given_up() -> None:
    program = loaded(module(".visible .entry k() {\nL:\nbra L; }"))
    with pytest.raises(
        KernelFault, match=r"no end after 1001 instructions of one thread \(the step budget is 1000\)"
    ) as caught:
        program["k"].launch(1, 32, (), steps=1000)
    assert (caught.value.diagnostic.slug, caught.value.line) == ("endless-loop", 6)


def test_a_call_of_no_function() -> None:
    body = "mov.u64 %rd2, 64; p: .callprototype _ (); call %rd2, (), p;"
    with pytest.raises(KernelFault, match="call of 0x40, which is no function"):
        run(body)


def test_recursion_without_end_overflows_the_stack() -> None:
    before = """
    .func deep(.param .b64 p) { .local .align 8 .b8 depot[4096]; .reg .b64 %rd<2>; mov.b64 %rd1, depot;
     st.local.b64 [%rd1], 1; { .param .b64 a; st.param.b64 [a], %rd1; call.uni deep, (a); } ret; }
    """
    with pytest.raises(KernelFault, match="local memory overflow") as caught:
        run("{ .param .b64 a; st.param.b64 [a], 0; call.uni deep, (a); }", before)
    assert caught.value.diagnostic.slug == "stack-overflow"


@dataclass(frozen=True)
class Assign:
    """variable = left OP right, an index of variables or a constant from 100 on."""

    target: int
    operator: str
    left: int
    right: int


@dataclass(frozen=True)
class Choose:
    """if bit `bit` of a variable is set."""

    variable: int
    bit: int
    yes: tuple[Statement, ...]
    no: tuple[Statement, ...]


@dataclass(frozen=True)
class Repeat:
    """(variable & 7) times, or until bit `bit` of `leaves` is set after the body."""

    variable: int
    leaves: int
    bit: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Return:
    """Leave the function if a variable's low 3 bits are `value`."""

    variable: int
    value: int


Statement: TypeAlias = Assign | Choose | Repeat | Return
VARIABLES = 5
OPERATORS = {
    "add.u32": lambda a, b: a + b & 0xFFFFFFFF,
    "xor.b32": lambda a, b: a ^ b,
    "mul.lo.u32": lambda a, b: a * b & 0xFFFFFFFF,
    "sub.u32": lambda a, b: a - b & 0xFFFFFFFF,
    "or.b32": lambda a, b: a | b,
}


def random_body(source: random.Random, depth: int) -> tuple[Statement, ...]:
    found: list[Statement] = []
    for _ in range(source.randint(1, 4)):
        kind = source.random()

        def pick() -> int:
            return source.randrange(VARIABLES)

        if depth == 0 or kind < 0.5:
            right = pick() if source.random() < 0.5 else 100 + source.randrange(50)
            found.append(Assign(pick(), source.choice(sorted(OPERATORS)), pick(), right))
        elif kind < 0.7:
            found.append(
                Choose(pick(), source.randrange(5), random_body(source, depth - 1), random_body(source, depth - 1))
            )
        elif kind < 0.95:
            found.append(Repeat(pick(), pick(), source.randrange(5), random_body(source, depth - 1)))
        else:
            found.append(Return(pick(), source.randrange(8)))
    return tuple(found)


def emitted(body: tuple[Statement, ...], labels: list[int], level: int = 0) -> str:
    """The statements as PTX; %r10 on are the variables, %r20 on the loops' counters."""
    text = ""
    for statement in body:
        labels[0] += 1
        here = labels[0]
        if isinstance(statement, Assign):
            right = f"%r{10 + statement.right}" if statement.right < 100 else str(statement.right - 100)
            text += f"{statement.operator} %r{10 + statement.target}, %r{10 + statement.left}, {right};\n"
        elif isinstance(statement, Choose):
            text += f"and.b32 %r3, %r{10 + statement.variable}, {1 << statement.bit}; setp.eq.u32 %p0, %r3, 0;\n"
            text += f"@%p0 bra NO{here};\n{emitted(statement.yes, labels, level)}bra JOIN{here};\n"
            text += f"NO{here}:\n{emitted(statement.no, labels, level)}JOIN{here}:\n"
        elif isinstance(statement, Repeat):
            counter = f"%r{20 + level}"
            text += f"and.b32 {counter}, %r{10 + statement.variable}, 7;\nTOP{here}: setp.eq.u32 %p0, {counter}, 0;\n"
            text += f"@%p0 bra OUT{here};\n{emitted(statement.body, labels, level + 1)}"
            text += f"sub.u32 {counter}, {counter}, 1; and.b32 %r3, %r{10 + statement.leaves}, {1 << statement.bit};\n"
            text += f"setp.eq.u32 %p0, %r3, 0; @%p0 bra TOP{here};\nOUT{here}:\n"
        else:
            text += f"and.b32 %r3, %r{10 + statement.variable}, 7; setp.eq.u32 %p0, %r3, {statement.value};\n"
            text += "@%p0 bra END;\n"
    return text


def interpreted(body: tuple[Statement, ...], state: list[int]) -> bool:
    """Run the statements on one thread's variables; whether it goes on after them."""
    for statement in body:
        if isinstance(statement, Assign):
            right = state[statement.right] if statement.right < 100 else statement.right - 100
            state[statement.target] = OPERATORS[statement.operator](state[statement.left], right)
        elif isinstance(statement, Choose):
            if not interpreted(
                statement.yes if state[statement.variable] >> statement.bit & 1 else statement.no, state
            ):
                return False
        elif isinstance(statement, Repeat):
            for _ in range(state[statement.variable] & 7):
                if not interpreted(statement.body, state):
                    return False
                if state[statement.leaves] >> statement.bit & 1:
                    break
        elif state[statement.variable] & 7 == statement.value:
            return False
    return True


@pytest.mark.parametrize("number", range(12))
def test_random_programs(number: int) -> None:
    """Divergence, loops and early returns in random nests: what each thread computes, it computes alone."""
    source = random.Random(number)
    body = random_body(source, 4)
    start = "".join(f"mad.lo.u32 %r{10 + i}, %r0, {source.randrange(1000) * 2 + 1}, {i};\n" for i in range(VARIABLES))
    factors = [int(line.split(",")[2]) for line in start.splitlines()]
    end = "END: mov.u32 %r4, %r10;\n" + "".join(f"xor.b32 %r4, %r4, %r{11 + i};\n" for i in range(VARIABLES - 1))
    text = kernel(PLACE + start + emitted(body, [0]) + end + "st.global.u32 [%rd0], %r4;")
    expected = []
    for lane in range(96):
        state = [lane * factors[i] + i & 0xFFFFFFFF for i in range(VARIABLES)]
        interpreted(body, state)
        expected.append(state[0] ^ state[1] ^ state[2] ^ state[3] ^ state[4])
    program = loaded(text)
    for seed in (None, number):
        out = np.zeros(96, np.uint32)
        program["k"].launch(1, 96, (out,), seed=seed)
        assert (out == np.array(expected, np.uint32)).all()

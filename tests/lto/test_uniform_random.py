"""The proof of uniform barriers against brute force: random control flow, run thread by thread."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from rglink.ir import Module
from rglink.irinst import Block, Instruction, phi_incoming, read_blocks, read_call
from rglink.irtext import ModuleText, read_function, skip_type, split_commas
from rglink.lto import uniform
from rglink.lto.uniform import Site, analyse_barriers

THREADS = range(6)
SIZES = (0, 2, 5)
STEPS = 400
DECLARATIONS = """target triple = "nvptx64-nvidia-cuda"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare void @llvm.nvvm.barrier.cta.sync.all(i32)
declare void @llvm.trap()
"""


class _Trap(Exception):
    """The thread ended the grid."""


class _Endless(Exception):
    """The thread ran out of steps."""


def program(rng: random.Random) -> str:
    """A kernel `k(i32 n)` and a local function `f(i32 x)`, both with random control flow and barriers."""
    return f"{DECLARATIONS}{_function(rng, 'f', 4)}{_function(rng, 'k', rng.randint(4, 9))}"


def _function(rng: random.Random, name: str, count: int) -> str:
    kernel = name == "k"
    lines = [f"define {'ptx_kernel' if kernel else 'internal'} void @{name}(i32 %n) {'' if kernel else 'noinline '}{{"]
    lines += ["start:", *(f"  %v{i} = alloca i32" for i in range(5))]
    lines += [
        "  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
        "  %ntid = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()",
    ]
    for i in range(4):
        lines.append(f"  store i32 {rng.choice(['%tid', '%tid', '%n', '%ntid', '1', '3', '2'])}, ptr %v{i}")
    lines += [f"  store i32 {rng.choice(['3', '%n', '4', '%tid'])}, ptr %v4", "  br label %b0"]
    for index in range(count):
        lines += [f"b{index}:", *_block(rng, index, count, kernel)]
    return "\n".join([*lines, "}\n"])


def _block(rng: random.Random, index: int, count: int, kernel: bool) -> Iterator[str]:
    for number in range(rng.randint(0, 2)):
        a, b, c = rng.randrange(4), rng.randrange(4), rng.randrange(4)
        tag = f"{index}.{number}"
        yield f"  %x{tag} = load i32, ptr %v{a}"
        yield f"  %y{tag} = load i32, ptr %v{b}"
        yield f"  %z{tag} = {rng.choice(['add', 'sub', 'xor'])} i32 %x{tag}, %y{tag}"
        yield f"  %w{tag} = and i32 %z{tag}, 7"
        yield f"  store i32 %w{tag}, ptr %v{c}"
    if rng.random() < 0.5:
        yield "  call void @llvm.nvvm.barrier.cta.sync.all(i32 0)"
    if kernel and rng.random() < 0.25:
        yield f"  %a{index} = load i32, ptr %v{rng.randrange(4)}"
        yield f"  call void @f(i32 %a{index})"
    yield from _terminator(rng, index, count)


def _terminator(rng: random.Random, index: int, count: int) -> Iterator[str]:
    choice = rng.random()
    if index == count - 1 or choice < 0.05:
        yield "  ret void"
    elif choice < 0.12:
        yield "  call void @llvm.trap()"
        yield "  unreachable"
    elif choice < 0.35:  # a loop that a counter ends
        yield f"  %c{index} = load i32, ptr %v4"
        yield f"  %d{index} = sub i32 %c{index}, 1"
        yield f"  store i32 %d{index}, ptr %v4"
        yield f"  %e{index} = icmp sgt i32 %d{index}, 0"
        yield f"  br i1 %e{index}, label %b{rng.randrange(count)}, label %b{index + 1}"
    elif choice < 0.85:
        yield f"  %p{index} = load i32, ptr %v{rng.randrange(4)}"
        yield f"  %q{index} = icmp {rng.choice(['slt', 'eq', 'sgt'])} i32 %p{index}, {rng.randrange(4)}"
        targets = rng.sample(range(index + 1, count), 2) if count - index > 2 else [index + 1, index + 1]
        yield f"  br i1 %q{index}, label %b{targets[0]}, label %b{targets[1]}"
    else:
        yield f"  br label %b{rng.randrange(index + 1, count)}"


class _Machine:
    """Runs one thread at a time and notes the barriers it comes to."""

    def __init__(self, text: ModuleText) -> None:
        self.bodies: dict[str, tuple[list[str], list[Block]]] = {}
        for item in text.of_kind("define"):
            parameters = [parameter.name for parameter in read_function(item.head).parameters]
            self.bodies[item.name] = (parameters, read_blocks(item.body, parameters))

    def run(self, tid: int, n: int) -> list[tuple[str, int]]:
        self.tid, self.steps, self.trace = tid, 0, list[tuple[str, int]]()
        self._call("k", [n])
        return self.trace

    def _call(self, name: str, arguments: list[int]) -> None:
        parameters, blocks = self.bodies[name]
        by_label = {block.label: block for block in blocks}
        values = dict(zip(parameters, arguments, strict=True))
        block, before = blocks[0], ""
        while True:
            self.steps += 1
            if self.steps > STEPS:
                raise _Endless
            phis = {i.result: self._phi(i, before, values) for i in block.instructions if i.opcode == "phi"}
            values.update(phis)
            for instruction in block.instructions:
                if instruction.opcode != "phi" and not instruction.is_terminator:
                    self._step(name, instruction, values)
            target = self._target(block.terminator, values)
            if target == "":
                return
            block, before = by_label[target], block.label

    def _phi(self, instruction: Instruction, before: str, values: dict[str, int]) -> int:
        _, pairs = phi_incoming(instruction)
        return next(self._value(value, values) for value, label in pairs if label == before)

    @staticmethod
    def _value(operand: str, values: dict[str, int]) -> int:
        if operand.startswith("%"):
            return values[operand]
        return {"true": 1, "false": 0}.get(operand, 0) if operand.isalpha() else int(operand)

    def _operands(self, rest: str, values: dict[str, int]) -> list[int]:
        words = [part.rpartition(" ")[2] for part in split_commas(rest)]
        return [self._value(word, values) for word in words if not word.startswith("!")]

    def _step(self, name: str, instruction: Instruction, values: dict[str, int]) -> None:
        opcode, rest = instruction.opcode, instruction.rest
        if opcode == "call":
            self._step_call(name, instruction, values)
        elif opcode == "icmp":
            a, b = self._operands(rest, values)
            word = re.sub(r"samesign ", "", rest).split()[0]
            unsigned = (a & 0xFFFFFFFF, b & 0xFFFFFFFF)
            left, right = unsigned if word[0] == "u" else (a, b)
            result = {
                "eq": a == b,
                "ne": a != b,
                "gt": left > right,
                "lt": left < right,
                "ge": left >= right,
                "le": left <= right,
            }
            values[instruction.result] = int(result[word if word in ("eq", "ne") else word[1:]])
        elif opcode == "select":
            condition, yes, no = self._operands(rest, values)
            values[instruction.result] = yes if condition else no
        else:
            a, b = self._operands(rest, values)
            wide = {"add": a + b, "sub": a - b, "xor": a ^ b, "and": a & b, "or": a | b}[opcode]
            values[instruction.result] = wide if rest.startswith("i1 ") else (wide + 2**31) % 2**32 - 2**31

    def _step_call(self, name: str, instruction: Instruction, values: dict[str, int]) -> None:
        call = read_call(instruction)
        if call.callee.endswith(".tid.x"):
            values[instruction.result] = self.tid
        elif call.callee.endswith(".ntid.x"):
            values[instruction.result] = len(THREADS)
        elif "barrier" in call.callee:
            self.trace.append((name, instruction.index))
        elif call.callee == "llvm.trap":
            raise _Trap
        else:
            arguments = [argument[skip_type(argument, 0) :].split()[-1] for argument in call.arguments]
            self._call(call.callee, [self._value(argument, values) for argument in arguments])

    def _target(self, terminator: Instruction, values: dict[str, int]) -> str:
        if terminator.opcode == "ret":
            return ""
        if terminator.opcode == "unreachable":
            raise _Trap
        targets = terminator.targets()
        if terminator.opcode == "switch":
            condition = self._value(split_commas(terminator.rest)[0].rpartition(" ")[2], values)
            cases = re.findall(r"i\d+ (-?\d+), label", terminator.rest)
            hits = [target for case, target in zip(cases, targets[1:], strict=True) if int(case) == condition]
            return hits[0] if hits else targets[0]
        if len(targets) == 1:
            return targets[0]
        condition = self._value(split_commas(terminator.rest)[0].rpartition(" ")[2], values)
        return targets[0] if condition else targets[1]


def violations(text: ModuleText, sites: list[Site]) -> list[str]:
    """Runs in which two threads came to the barriers called uniform in different orders."""
    proven = {(site.function, site.index) for site in sites if site.uniform}
    found: list[str] = []
    for n in SIZES:
        traces: list[list[tuple[str, int]]] = []
        for tid in THREADS:
            try:
                traces.append([site for site in _Machine(text).run(tid, n) if site in proven])
            except _Trap:
                continue  # the grid ends: nothing is asked of the other threads
            except _Endless:
                return []  # a grid that never ends proves nothing
        found += [f"n={n}: {trace} against {traces[0]}" for trace in traces if trace != traces[0]]
    return found


def _build(seed: int) -> ModuleText:
    module = Module.parse_text(program(random.Random(seed)), f"seed {seed}")
    module.run("sroa", "simplifycfg", "verify")
    return ModuleText.parse(module.text())


def test_barriers_called_uniform_are_reached_by_all_threads_in_one_order() -> None:
    proven = refused = 0
    for seed in range(400):
        text = _build(seed)
        sites = analyse_barriers(text, [])
        assert violations(text, sites) == [], f"seed {seed}"
        proven += sum(site.uniform for site in sites)
        refused += sum(not site.uniform for site in sites)
    # Both answers occur often, so the comparison above had something to compare.
    assert proven > 100
    assert refused > 100


@pytest.mark.parametrize("rule", ["_add_region", "_phi_diverges", "_mentions"])
def test_brute_force_sees_a_proof_without_one_of_its_rules(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the test above: each rule left out leads to a claim that the runs contradict."""
    monkeypatch.setattr(uniform, rule, lambda *arguments: False)
    assert any(violations(text, analyse_barriers(text, [])) for text in map(_build, range(400)))

"""Step 1 of the device ABI: what threads do together is marked, so that no pass copies or moves it.

LLVM leaves a call where control is the same for the same threads only if it is `convergent`. rustc never says so
of `asm!`, LLVM 22 not of the `mma` and `wmma` intrinsics, and a parse resets an intrinsic declaration's
attributes: the mark goes on functions and on calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from rglink.diagnostics import Diagnostics
from rglink.irinst import Call, Instruction, instructions, read_call
from rglink.irtext import Item, ModuleText, code_of, expect_equal, read_function
from rglink.lto.attributes import AttributeEditor
from rglink.lto.collectives import collective_in_asm, is_collective_intrinsic
from rglink.lto.wording import Wording

COLLECTIVE_SECTION = ".rglink.collective"
# A line worth taking apart: inline assembly, or a call of an intrinsic.
_CANDIDATE = re.compile(r"\bcall\b.*(?:\basm\b|@llvm\.nvvm\.)")


@dataclass(frozen=True)
class ConvergentCounts:
    """Functions, asm calls and calls of collective intrinsics that were marked; functions to be always inlined."""

    functions: int = 0
    asm_calls: int = 0
    intrinsic_calls: int = 0
    collective_functions: int = 0

    @property
    def changed(self) -> bool:
        return self != ConvergentCounts()


def mark_convergent(text: ModuleText, diags: Diagnostics) -> ConvergentCounts:
    """Put `convergent` on functions, asm calls and calls of collectives; make asm collectives inline.

    Reports `pure-collective` for a collective in an asm without side effects, which LLVM may move or drop.
    """
    editor = AttributeEditor(text)
    collective = _inline_collectives(text, editor)
    functions = 0
    for item in text.of_kind("define", "declare"):
        if item.name.startswith("llvm."):
            continue
        function = read_function(item.head)
        if not editor.has(function.suffix, "convergent"):
            item.head = replace(function, suffix=editor.change(function.suffix, add=["convergent"])).render()
            functions += 1
    # What LLVM's own tables say of each intrinsic stands on its declaration.
    known = {
        item.name
        for item in text.of_kind("declare")
        if item.name.startswith("llvm.nvvm.") and editor.has(read_function(item.head).suffix, "convergent")
    }
    asm_calls = intrinsic_calls = 0
    wording = Wording(text)
    for item in text.of_kind("define"):
        asm, intrinsic = _mark_calls(item, editor, known, wording, diags)
        asm_calls += asm
        intrinsic_calls += intrinsic
    return ConvergentCounts(functions, asm_calls, intrinsic_calls, collective)


def _mark_calls(
    item: Item, editor: AttributeEditor, known: set[str], wording: Wording, diags: Diagnostics
) -> tuple[int, int]:
    if not any(_CANDIDATE.search(line) for line in item.body):
        return 0, 0
    counts = {True: 0, False: 0}
    seen = 0
    for instruction in instructions(item.body):
        if instruction.opcode != "call" or not _CANDIDATE.search(item.body[instruction.index]):
            continue
        call = read_call(instruction)
        if not _needs_mark(call, known):
            if call.is_asm and collective_in_asm(call.asm_text):
                _report_pure(item, instruction, call, wording, diags)
            continue
        if editor.has(call.suffix, "convergent"):
            continue
        seen += 1
        item.body[instruction.index] = _with_suffix(
            item.body[instruction.index], call.suffix, editor.change(call.suffix, add=["convergent"])
        )
        counts[call.is_asm] += 1
    expect_equal(f"{item.name}: calls to mark convergent", seen, sum(counts.values()))
    return counts[True], counts[False]


def _needs_mark(call: Call, known: set[str]) -> bool:
    if call.is_asm:
        return "sideeffect" in call.asm_flags
    return is_collective_intrinsic(call.callee) and call.callee not in known


def _with_suffix(line: str, old: str, new: str) -> str:
    """A call's line with another text after its argument list."""
    code = code_of(line).rstrip()
    if old and not code.endswith(old):
        raise ValueError(f"call does not end in {old!r}: {line!r}")
    return f"{code[: len(code) - len(old)].rstrip()}{'' if new.startswith(',') else ' '}{new}"


def _report_pure(item: Item, instruction: Instruction, call: Call, wording: Wording, diags: Diagnostics) -> None:
    name = collective_in_asm(call.asm_text)
    diags.error(
        "pure-collective",
        f"`{name}` in an asm without side effects: it may be moved to where other threads do not take part",
        wording.place(item.name, call.suffix),
        cure="leave options(pure) out",
    )


def _inline_collectives(text: ModuleText, editor: AttributeEditor) -> int:
    """Make the functions of section `.rglink.collective` inline everywhere, calls of them included."""
    names: set[str] = set()
    for item in text.of_kind("define"):
        if COLLECTIVE_SECTION not in item.head:
            continue
        function = read_function(item.head)
        if function.section != COLLECTIVE_SECTION:
            continue
        suffix = function.suffix.replace(f' section "{COLLECTIVE_SECTION}"', "")
        suffix = suffix.removeprefix(f'section "{COLLECTIVE_SECTION}"').strip()
        suffix = editor.change(suffix, add=["alwaysinline"], remove=["noinline", "optnone"])
        item.head = replace(function, suffix=suffix).render()
        names.add(item.name)
    if names:
        for item in text.of_kind("define"):
            _drop_noinline(item, names, editor)
    return len(names)


def _drop_noinline(item: Item, callees: set[str], editor: AttributeEditor) -> None:
    for instruction in instructions(item.body):
        line = item.body[instruction.index]
        if instruction.opcode != "call" or not any(name in line for name in callees):
            continue
        call = read_call(instruction)
        if call.callee in callees and editor.has(call.suffix, "noinline"):
            new = editor.change(call.suffix, remove=["noinline"])
            item.body[instruction.index] = _with_suffix(line, call.suffix, new)

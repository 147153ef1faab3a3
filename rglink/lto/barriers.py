"""Block barriers: the unaligned form before any optimization, the aligned one where control is proven uniform.

ptxas trusts the aligned form: under a branch that the threads of a warp take differently it emits code that is
undefined. The unaligned form counts by barrier number wherever it stands, so every barrier takes it first, and gets
the cheaper aligned form back at the end of the link where `uniform` proves that all threads of the block arrive
together. In asm text the same is done word by word (PTX ISA, "bar, barrier" and "barrier.cluster": `bar.X` is
`barrier.X.aligned`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from rglink.diagnostics import Diagnostics
from rglink.irtext import Item, ModuleText, expect_equal, global_names, rename_globals
from rglink.lto.uniform import analyse_barriers, plain_asm
from rglink.lto.wording import Wording

# LLVM 22 upgrades all older names (llvm.nvvm.barrier0, barrier.n, bar.sync, ...) to these when it parses.
_ALIGNED = re.compile(
    r"llvm\.nvvm\.barrier\.(?:cta\.(?:sync|arrive|red\.(?:popc|and|or))\.aligned\.(?:all|count)"
    r"|cluster\.(?:arrive|arrive\.relaxed|wait)\.aligned)"
)
_UNALIGNED = re.compile(
    r"llvm\.nvvm\.barrier\.(?:cta\.(?:sync|arrive|red\.(?:popc|and|or))\.(?:all|count)"
    r"|cluster\.(?:arrive|arrive\.relaxed|wait))"
)
_ASM_TEXT = re.compile(r'(\basm (?:(?:sideeffect|alignstack|inteldialect|unwind) )*")([^"]*)(?=")')
_ASM_WORD = re.compile(
    r"(?<![\w.$%@])(bar|barrier)(\.cta|\.cluster)?(\.(?:sync|arrive|wait)|\.red\.(?:popc|and|or))([\w.]*)"
)


@dataclass(frozen=True)
class BarrierDecision:
    """The form that one barrier got. `number` counts the barriers of a function from 1, `line` is "src/lib.rs:12"."""

    function: str
    number: int
    aligned: bool
    reason: str
    line: str  # "" when unknown


def unalign_barriers(text: ModuleText) -> int:
    """Put every block or cluster barrier into its unaligned form; returns how many were changed.

    Raises:
        EditMismatch: an aligned barrier is left, which is a bug.
    """
    changed = 0
    for item in text.of_kind("define"):
        for index, line in enumerate(item.body):
            if "bar" in line:
                seen = _aligned_in(line)
                item.body[index] = _unaligned_line(line) if seen else line
                expect_equal(f"barriers of {item.name}", seen, seen - _aligned_in(item.body[index]))
                changed += seen
    _update_declarations(text, _unaligned_name)
    return changed


def align_uniform_barriers(text: ModuleText, kernels: Collection[str], diags: Diagnostics) -> list[BarrierDecision]:
    """Give the aligned form to each barrier that all threads of a block are proven to reach together.

    `kernels` are names that count as kernels beside those of the `ptx_kernel` convention. A barrier in asm without
    such a proof is reported under `divergent-barrier`. The decisions are sorted by function and number.

    Raises:
        EditMismatch: a barrier was not found where the proof saw it, which is a bug.
    """
    bodies = {item.name: item.body for item in text.of_kind("define")}
    wording = Wording(text)
    decisions: list[BarrierDecision] = []
    for site in analyse_barriers(text, kernels):
        body = bodies[site.function]
        line = body[site.index]
        where = wording.line(line) or ""
        branch = wording.line(body[site.branch]) if site.branch >= 0 else None
        reason = f"the branch at {branch} may part the threads" if branch else site.reason
        decision = BarrierDecision(site.function, site.number, site.uniform, reason, where)
        decisions.append(decision)
        if site.uniform:
            body[site.index] = _aligned_line(line)
            expect_equal(f"barrier {site.number} of {site.function}", min(_aligned_in(body[site.index]), 1), 1)
        elif _ASM_TEXT.search(line):
            _warn(decision, wording.place(site.function, line), diags)
    _update_declarations(text, _aligned_name)
    return decisions


def _warn(decision: BarrierDecision, place: str, diags: Diagnostics) -> None:
    front = f"{decision.line}: " if decision.line else ""
    message = f"{front}a barrier in asm that not all threads of a block may reach together"
    cure = "move the barrier to where control does not depend on the thread, or use the barrier intrinsic"
    diags.report("divergent-barrier", message, place, decision.reason, cure=cure)


def _aligned_in(line: str) -> int:
    """How many barriers in the aligned form a line has."""
    asm = _ASM_TEXT.search(line)
    if asm:
        words = _ASM_WORD.finditer(plain_asm(asm[2]))
        return sum(1 for word in words if word[1] == "bar" or ".aligned" in word[4])
    return sum(1 for name in global_names(line) if _ALIGNED.fullmatch(name))


def _unaligned_line(line: str) -> str:
    if _ASM_TEXT.search(line):
        return _edit_asm(line, lambda word: _asm_word(word, ""))
    return rename_globals(line, _unaligned_name)


def _aligned_line(line: str) -> str:
    if _ASM_TEXT.search(line):
        return _edit_asm(line, lambda word: _asm_word(word, ".aligned"))
    return rename_globals(line, _aligned_name)


def _asm_word(word: re.Match[str], aligned: str) -> str:
    """`.aligned` stands after the operation and before the type; at the end for cluster barriers."""
    rest = word[4].replace(".aligned", "")
    front = f"barrier{word[2] or ''}{word[3]}"
    return f"{front}{rest}{aligned}" if word[2] == ".cluster" else f"{front}{aligned}{rest}"


def _edit_asm(line: str, new_word: Callable[[re.Match[str]], str]) -> str:
    def edit(match: re.Match[str]) -> str:
        code = _ASM_WORD.sub(new_word, plain_asm(match[2]))
        return match[1] + "".join(c if " " <= c <= "~" and c not in '"\\' else f"\\{ord(c):02X}" for c in code)

    return _ASM_TEXT.sub(edit, line, count=1)


def _unaligned_name(name: str) -> str | None:
    return name.replace(".aligned", "") if _ALIGNED.fullmatch(name) else None


def _aligned_name(name: str) -> str | None:
    if not _UNALIGNED.fullmatch(name):
        return None
    front, _, last = name.rpartition(".")
    return f"{name}.aligned" if ".cluster." in name else f"{front}.aligned.{last}"


def _update_declarations(text: ModuleText, renamed: Callable[[str], str | None]) -> None:
    """Declare the barrier intrinsics that are called, and no others."""
    heads: dict[str, str] = {}
    for item in text.of_kind("declare"):
        if _ALIGNED.fullmatch(item.name) or _UNALIGNED.fullmatch(item.name):
            heads[item.name] = item.head
            new = renamed(item.name)
            if new is not None:
                heads.setdefault(new, rename_globals(item.head, renamed))
    if not heads:
        return
    text.items = [item for item in text.items if item.kind != "declare" or item.name not in heads]
    called = {
        name
        for item in text.of_kind("define")
        for line in item.body
        if "@llvm.nvvm.barrier." in line
        for name in global_names(line)
    }
    text.items += [Item("declare", name, heads[name]) for name in sorted(called) if name in heads]

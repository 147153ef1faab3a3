"""The table of PTX instructions in docs/ptx-support.md: read from instructions.txt, and written as Markdown.

`python -m tests.emulate.support_table` writes docs/ptx-support.md anew. In instructions.txt, `#` begins a chapter; a
line without indent is an instruction; below it, `+` is a form that the machine decodes, `-` one that it refuses, `=` a
note. `@sm_100a` names the target that a form needs, if it is not sm_90. Operands are what `HEAD` declares.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).with_name("instructions.txt")
DOCUMENT = Path(__file__).parents[2] / "docs/ptx-support.md"
TARGET = "sm_90"
# A special register as the last operand: no register of `HEAD` has a name like that.
SPECIAL = re.compile(r"(?:%(?!p\d|b\d|h\d|r\d|f\d|rd\d|fd\d|q\d)[a-z]\w*(?:\.[xyz])?|WARP_SZ)(?=;)")
# For targets that the installed ptxas has dropped.
DEPRECATED = frozenset(("sm_60",))
HEAD = """
.global .align 16 .b8 gl[64];
.const .align 16 .b8 cst[64];
.func fn() { ret; }
.func (.reg .b32 r) get(.reg .b32 a) { mov.b32 r, a; ret; }
"""
REGISTERS = """\
.reg .pred %p<4>; .reg .b8 %b<4>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %rd<8>;
.reg .f64 %fd<12>; .reg .b128 %q<4>; .shared .align 128 .b8 sm[1024]; .local .align 16 .b8 lc[64];
list: .branchtargets END;
fnlist: .calltargets get;
proto: .callprototype (.reg .b32 r) _ (.reg .b32 a);
ld.param.u64 %rd0, [out];
"""
INTRODUCTION = """# PTX instructions

What the PTX machine of `rgrun` and `rglink.emulate` executes, by the chapters of the PTX ISA manual, version 9.3.

- **supported**: no form of the manual is known to be missing.
- **partly**: some forms are refused.
- **refused**: there is no such instruction.
- *decoded* and *not decoded* name the forms that were tried. The values are tested with each kind of instruction.

A thread that comes to a form that is not known ends the launch with an error that names the file, the line and the
function, never with a wrong value: `app.ptx: line 14: in fill: unsupported instruction tex.2d.v4.f32.f32`. Code that no
thread reaches does no harm. Texture and surface references at module scope and kernels that require clusters of more
than one block are refused before a launch.

This file is written by `python -m tests.emulate.support_table`; a test holds it against the machine, and every form in
it against ptxas.
"""


@dataclass(frozen=True)
class Form:
    """One instruction with its operands; `target` is the one that it needs."""

    text: str
    target: str

    @property
    def opcode(self) -> str:
        """Its opcode, without guard and operands."""
        return re.sub(r"^([{@]\S*\s+)*", "", self.text).split()[0].rstrip(";")


@dataclass
class Row:
    """An instruction of the manual: forms that the machine knows, forms that it refuses."""

    name: str
    known: list[Form] = field(default_factory=list)
    refused: list[Form] = field(default_factory=list)
    note: str = ""

    @property
    def status(self) -> str:
        return "supported" if not self.refused else "partly" if self.known else "refused"


@dataclass
class Chapter:
    """A chapter of the manual with its instructions."""

    title: str
    rows: list[Row] = field(default_factory=list)


def read_table() -> list[Chapter]:
    """The chapters of instructions.txt."""
    chapters: list[Chapter] = []
    for line in SOURCE.read_text().splitlines():
        mark, _, rest = line.strip().partition(" ")
        if mark == "#":
            chapters.append(Chapter(rest))
        elif line and not line.startswith(" "):
            chapters[-1].rows.append(Row(line))
        elif mark in ("+", "-"):
            text, _, target = rest.partition(" @sm_")
            row = chapters[-1].rows[-1]
            (row.known if mark == "+" else row.refused).append(Form(text, f"sm_{target}" if target else TARGET))
        elif mark == "=":
            chapters[-1].rows[-1].note = rest
    return chapters


def module_of(forms: Sequence[Form]) -> tuple[str, list[int]]:
    """A module with a kernel `k0`, `k1`, ... for each form of one target, and the lines that the forms are in."""
    text = f".version 9.3\n.target {forms[0].target}\n.address_size 64{HEAD}"
    lines = []
    for number, form in enumerate(forms):
        text += f".visible .entry k{number}(.param .u64 out)\n{{\n{REGISTERS}"
        lines.append(text.count("\n") + 1)
        text += f"{form.text}\nEND: ret;\n}}\n"
    return text, lines


def _names(name: str) -> str:
    """The instructions of a row; what is several words is no name."""
    return ", ".join(part if " " in part else f"`{part}`" for part in name.split(", "))


def _opcodes(forms: Sequence[Form]) -> str:
    """The opcodes of forms without repetition; for special registers, which mov reads, those."""
    found = dict.fromkeys(match[0] if (match := SPECIAL.search(form.text)) else form.opcode for form in forms)
    return ", ".join(f"`{name}`" for name in found)


def rendered(chapters: Sequence[Chapter]) -> str:
    """The whole document."""
    rows = [row for chapter in chapters for row in chapter.rows]
    counts = ", ".join(
        f"{sum(row.status == status for row in rows)} {status}" for status in ("supported", "partly", "refused")
    )
    parts = [INTRODUCTION, f"Of {len(rows)} entries: {counts}.\n"]
    for chapter in chapters:
        parts.append(f"## {chapter.title}\n\n| instruction | | decoded | not decoded | notes |\n|---|---|---|---|---|")
        for row in chapter.rows:
            columns = (_names(row.name), row.status, _opcodes(row.known), _opcodes(row.refused), row.note)
            parts.append("".join(f"| {column} " if column else "| " for column in columns) + "|")
        parts.append("")
    return "\n".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(rendered(read_table()))

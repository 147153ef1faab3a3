"""What the checks have to say: reports with their places, and the error that carries them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rglink.demangle import demangle
from rglink.diagnostics import Diagnostic, RglinkError
from rglink.emulate.errors import KernelFault
from rglink.emulate.lines import library_place
from rglink.emulate.ptx import Instruction, Source, inlined_places

Shape = tuple[int, int, int]
# Kinds that the machine itself finds; they end a launch whether they are asked for or not.
FAULTS = frozenset(
    ("out-of-bounds", "misaligned-access", "use-after-free", "bad-free", "stack-overflow", "deadlock", "bad-membermask")
)
# Notes never fail a launch.
NOTES = frozenset(("division-by-zero", "exited-threads", "schedule-dependent"))
ALL = FAULTS | NOTES | frozenset(("uninitialised-read", "race", "divergent-barrier", "async-copy"))


@dataclass(frozen=True)
class Place:
    """One thread at one instruction: `what` it did there; `file` is "" and `line` 0 where PTX has no `.loc`.

    Where PTX names a line of Rust's library alone, that is `within`, and `file` and `line` are the last own ones before
    it; `inlined_at` are the lines into which that one was inlined, from the inside out. `block` and `thread` are
    (x, y, z); `ptx_line` counts from 1, 0 if there is no instruction.
    """

    what: str
    file: str
    line: int
    block: Shape | None
    thread: Shape | None
    ptx_line: int
    instruction: str
    within: Source | None = None
    inlined_at: tuple[Source, ...] = ()

    def __str__(self) -> str:
        """`src/lib.rs:7: write of 4 bytes by thread (1, 0, 0) of block (0, 0, 0) (PTX line 31: st.shared.u32)`."""
        source = f"{'near ' if self.within else ''}{self.file}:{self.line}: " if self.file else ""
        who = f" by thread {self.thread} of block {self.block}" if self.thread is not None else ""
        text = f": {self.instruction}" if self.instruction else ""
        text += f", in {library_place(self.within)}" if self.within else ""
        ptx = f" (PTX line {self.ptx_line}{text})" if self.ptx_line else ""
        return f"{source}{self.what}{who}{ptx}"


@dataclass(frozen=True)
class Report:
    """One finding: `kind` is one of `ALL`; `places` are the threads concerned, the one that was noticed first."""

    kind: str
    message: str
    places: tuple[Place, ...]
    kernel: str

    @property
    def level(self) -> Literal["error", "note"]:
        """Notes are said, errors fail the launch."""
        return "note" if self.kind in NOTES else "error"

    def diagnostic(self, roots: Sequence[Path] = ()) -> Diagnostic:
        """The report as a diagnostic; source lines that are found below `roots` are quoted under their places."""
        lines: list[str] = []
        for place in self.places:
            sources = ((place.file, place.line), *place.inlined_at)
            for text, source in zip((str(place), *inlined_places(place.inlined_at)), sources, strict=False):
                lines.append(text)
                quoted = source_line(source, roots)
                if quoted:
                    lines.append(f"    {source[1]} | {quoted}")
        return Diagnostic(self.level, self.kind, f"kernel {demangle(self.kernel)}: {self.message}", tuple(lines))


def source_line(source: Source, roots: Iterable[Path]) -> str:
    """The text of a source line without its indentation; empty if its file is not there or is shorter."""
    file, line = source
    if not file:
        return ""
    for root in roots:
        path = root / file
        try:
            lines = path.read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return ""


class CheckFailed(RglinkError):
    """A launch with errors among its `reports`; `seed` is the schedule that showed them, None for the default one."""

    default_slug = "check-failed"

    def __init__(self, reports: Sequence[Report], seed: int | None, output: str = "") -> None:
        errors = [report for report in reports if report.level == "error"]
        first = errors[0].diagnostic()
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        cure = None if seed is None else f"seed {seed} shows it again"
        super().__init__(f"{first.message}{more}", *first.places, slug=first.slug, cure=cure)
        self.reports, self.seed, self.output = tuple(reports), seed, output

    def __str__(self) -> str:
        return self.render()

    def render(self, roots: Sequence[Path] = ()) -> str:
        """All reports as a person reads them, and how to see them again."""
        texts = [report.diagnostic(roots).render("rgrun") for report in self.reports]
        if self.seed is not None:
            texts.append(f">>> help: {self.diagnostic.cure}")
        return "\n".join(texts)


def place_of(what: str, instruction: Instruction | None, position: tuple[Shape, Shape] | None) -> Place:
    """The place of an instruction for the thread at `position` (block, thread)."""
    block, thread = position if position is not None else (None, None)
    if instruction is None:
        return Place(what, "", 0, block, thread, 0, "")
    file, line = instruction.loc or ("", 0)
    within, inlined_at = instruction.within, instruction.inlined_at
    return Place(what, file, line, block, thread, instruction.line, instruction.text, within, inlined_at)


def report_of_fault(fault: KernelFault) -> Report | None:
    """The report of a fault that a check is about; None for a trap, an assertion and the like."""
    slug = fault.diagnostic.slug
    message = str(fault)
    if message.startswith("use after free"):
        slug = "use-after-free"
    if slug not in FAULTS:
        return None
    if slug == "deadlock":
        places = tuple(place_of(text, instruction, None) for text, instruction in fault.waiting)
        return Report(slug, message.replace(f" in kernel {demangle(fault.kernel)}", ""), places, fault.kernel)
    position = None if fault.block is None or fault.thread is None else (fault.block, fault.thread)
    return Report(slug, message, (place_of("access", fault.instruction, position),), fault.kernel)

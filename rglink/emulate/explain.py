"""Errors and reports of a launch as text, with the source lines that they name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rglink.diagnostics import Diagnostic, RglinkError
from rglink.emulate.checks import CheckFailed, Report
from rglink.emulate.errors import KernelFault
from rglink.emulate.sources import quoted

# One mistake is often seen at many places.
MOST_REPORTS = 10


def explained(error: RglinkError, folders: Sequence[Path], program: str, replay: str = "seed {seed}") -> str:
    """What ended a launch, every report of the checks with it; `replay` says how a seed is asked for."""
    if not isinstance(error, CheckFailed):
        return rendered(error.diagnostic, folders, program)
    text = rendered_reports(error.reports, folders, program)
    if error.seed is not None:
        text += f"\n>>> help: {replay.format(seed=error.seed)} shows it again"
    return text


def rendered_reports(reports: Iterable[Report], folders: Sequence[Path], program: str) -> str:
    """Reports one after the other, errors first."""
    found = list(reports)
    by_lines: dict[tuple[object, ...], Report] = {}
    for report in found:
        by_lines.setdefault(_lines_of(report), report)
    ordered = sorted(by_lines.values(), key=lambda report: report.level != "error")
    texts = [rendered(report.diagnostic(), folders, program) for report in ordered[:MOST_REPORTS]]
    if len(found) > len(ordered):
        texts.append(f"{program}: note: {len(found) - len(ordered)} more reports name the same source lines")
    if len(ordered) > MOST_REPORTS:
        texts.append(f"{program}: note: {len(ordered) - MOST_REPORTS} more reports are not shown")
    return "\n".join(texts)


def _lines_of(report: Report) -> tuple[object, ...]:
    """Equal for reports of one kind at the same source lines: a loop that was unrolled shows one mistake many times."""
    if not report.places or not all(place.file for place in report.places):
        return (id(report),)
    verbs = (place.what.removeprefix("earlier ") for place in report.places)
    lines = ((place.file, place.line, place.inlined_at) for place in report.places)
    return (report.kind, *sorted(zip(lines, verbs, strict=True)))


def rendered(diagnostic: Diagnostic, folders: Sequence[Path], program: str) -> str:
    """One diagnostic, the source lines of its places quoted below them."""
    return replace(diagnostic, places=quoted(diagnostic.places, folders)).render(program)


def output_of(error: RglinkError) -> str:
    """What the kernel had printed before it failed."""
    return error.output if isinstance(error, CheckFailed | KernelFault) else ""

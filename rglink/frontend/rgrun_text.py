"""What `rgrun` prints: results, kernels, profiles, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rglink.demangle import demangle
from rglink.diagnostics import Diagnostic, RglinkError
from rglink.frontend.rgrun_program import kernels_of, parameter_text

if TYPE_CHECKING:
    from rglink.emulate.checks import Report
    from rglink.emulate.launch import Launched
    from rglink.emulate.profile import Counts, Place, Profile
    from rglink.emulate.ptx import Program
    from rglink.emulate.specs import Prepared

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]
COLUMNS = ("per thread", "active", "shared", "wavefronts", "conflicts", "global", "sectors", "used", "place")
# Of a long path the end is shown.
LONGEST_PATH = 40


def render_kernels(program: Program) -> str:
    """One line for each kernel: its Rust path and parameters."""
    lines = []
    for name in kernels_of(program):
        parameters = ", ".join(map(parameter_text, program.functions[name].parameters))
        symbol = "" if demangle(name) == name else f"  {name}"
        lines.append(f"{demangle(name)}({parameters}){symbol}")
    return "\n".join(lines)


def shown_arguments(prepared: Sequence[Prepared]) -> list[Prepared]:
    """The arrays to print: those marked as outputs, or else those that the kernel changed."""
    marked = [argument for argument in prepared if argument.spec.out]
    return marked or [argument for argument in prepared if argument.changed]


def render_results(prepared: Sequence[Prepared], launched: Launched) -> str:
    """What the kernel printed, then its output arrays."""
    from rglink.emulate.specs import shown

    parts = [launched.output]
    if launched.output and not launched.output.endswith("\n"):
        parts.append("\n")
    for argument in shown_arguments(prepared):
        if argument.array is not None:
            text = shown(argument.array).replace("\n", "\n  ")
            parts.append(f"{argument.spec.name}: {argument.type} =\n  {text}\n")
    return "".join(parts)


def json_of_results(prepared: Sequence[Prepared], launched: Launched) -> dict[str, JsonValue]:
    """The same as JSON values; every element of an output array."""
    from rglink.emulate.specs import values_of

    arrays: list[JsonValue] = []
    shown = shown_arguments(prepared)
    for argument in prepared:
        if argument.array is None:
            continue
        described: dict[str, JsonValue] = {
            "number": argument.spec.number,
            "name": argument.spec.name,
            "type": argument.type,
            "changed": argument.changed,
        }
        if argument.spec.save:
            described["saved"] = argument.spec.save
        if any(argument is other for other in shown):
            described["values"] = values_of(argument.array)
        arrays.append(described)
    return {"output": launched.output, "instructions": launched.executed, "arrays": arrays}


def json_of_diagnostic(diagnostic: Diagnostic) -> dict[str, JsonValue]:
    """An error as JSON values."""
    return {
        "slug": diagnostic.slug,
        "message": diagnostic.message,
        "places": list(diagnostic.places),
        "help": diagnostic.cure,
    }


def json_of_report(report: Report) -> dict[str, JsonValue]:
    """A report of a check, its places by file, line, block and thread."""
    places: list[JsonValue] = [
        {
            "what": place.what,
            "file": place.file or None,
            "line": place.line or None,
            "within": None if place.within is None else list(place.within),
            "inlined_at": [list(source) for source in place.inlined_at],
            "block": None if place.block is None else list(place.block),
            "thread": None if place.thread is None else list(place.thread),
            "ptx_line": place.ptx_line or None,
            "instruction": place.instruction or None,
        }
        for place in report.places
    ]
    return {"kind": report.kind, "level": report.level, "message": report.message, "places": places}


def json_of_failure(error: RglinkError) -> dict[str, JsonValue]:
    """What ended a run, with every report, the seed of the order of threads, and what the kernel had printed."""
    from rglink.emulate.checks import CheckFailed
    from rglink.emulate.explain import output_of

    described: dict[str, JsonValue] = {"error": json_of_diagnostic(error.diagnostic), "output": output_of(error)}
    if isinstance(error, CheckFailed):
        described["seed"] = error.seed
        described["reports"] = [json_of_report(report) for report in error.reports]
    return described


def render_profile(profile: Profile, folders: Sequence[Path]) -> str:
    """Totals, then a table by source line, with the lines quoted where the files are there.

    Columns that would be empty are left out.
    """
    from rglink.emulate.sources import source_line

    total, threads = profile.total, profile.threads
    rows = [(*_cells(counts, threads), place_text(place)) for place, counts in profile.lines]
    kept = [at for at in range(len(COLUMNS)) if any(row[at] != "-" for row in rows)]
    quotes = ["", *(source_line(*place, folders) or "" if place[0] else "" for place, _ in profile.lines)]
    table = [[row[at] for at in kept] for row in (COLUMNS, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row, quote in zip(table, quotes, strict=True):
        cells = [*map(str.rjust, row[:-1], widths), row[-1].ljust(widths[-1]), quote]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*_totals(total, threads), "", *lines])


def place_text(place: Place) -> str:
    """`src/lib.rs:12`, or the line of the PTX where there is no line table."""
    file, line = place
    if not file:
        return f"PTX line {line}"
    return f"{file}:{line}" if len(file) <= LONGEST_PATH else f"...{file[3 - LONGEST_PATH :]}:{line}"


def json_of_profile(profile: Profile) -> dict[str, JsonValue]:
    """The counts as they are."""
    lines: list[JsonValue] = [
        {"file": file or None, "line": line, **vars(counts)} for (file, line), counts in profile.lines
    ]
    return {"threads": profile.threads, "total": dict(vars(profile.total)), "lines": lines}


def _totals(total: Counts, threads: int) -> list[str]:
    lines = [
        f"instructions   {total.instructions} by {threads} threads, {total.instructions / threads:.1f} each",
        f"active lanes   {_percent(total.active_share)} in {total.issues} instructions of warps",
    ]
    if total.shared_requests:
        lines.append(
            f"shared memory  {total.shared_requests} requests, {total.shared_wavefronts} wavefronts,"
            f" {total.bank_conflicts} bank conflicts"
        )
    if total.global_requests:
        lines.append(
            f"global memory  {total.global_requests} requests, {total.global_sectors} sectors,"
            f" {total.sectors_per_request:.2f} for each request, {_percent(total.used_share)} of their bytes used"
        )
    return lines


def _cells(counts: Counts, threads: int) -> tuple[str, ...]:
    shared, far = counts.shared_requests, counts.global_requests
    return (
        f"{counts.instructions / threads:.2f}",
        _percent(counts.active_share),
        str(shared) if shared else "-",
        f"{counts.shared_wavefronts / shared:.2f}" if shared else "-",
        str(counts.bank_conflicts) if shared else "-",
        str(far) if far else "-",
        f"{counts.sectors_per_request:.2f}" if far else "-",
        _percent(counts.used_share) if far else "-",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"

"""The `--print-` reports of a link, rendered in the child that holds the program."""

from __future__ import annotations

from rglink.demangle import demangle
from rglink.diagnostics import Diagnostics
from rglink.frontend.outputs import OutputFile
from rglink.frontend.resources import render_json, render_table, resource_rows
from rglink.link import Linked
from rglink.lto.gc import gc_report, why_live
from rglink.lto.sources import describe
from rglink.objfmt.cubin import read_cubin
from rglink.options import LinkOptions
from rglink.trace import Trace


def render_reports(
    linked: Linked, options: LinkOptions, diags: Diagnostics, trace: Trace
) -> tuple[str, list[OutputFile]]:
    """The text for stdout, and the reports that go to files of their own.

    Raises:
        LinkFailed: `--why-live` names what no input defines.
    """
    parts: list[str] = []
    files: list[OutputFile] = []
    if options.print_gc:
        parts.append(gc_report(linked.resolution).render())
    parts += ["\n".join(why_live(linked.resolution, symbol, diags)) + "\n" for symbol in options.why_live]
    diags.checkpoint()
    if options.print_barriers:
        parts.append(render_barriers(linked))
    if options.print_resources:
        rows = resource_rows(
            [
                (result.target.name, read_cubin(result.target.name, result.image))
                for result in linked.results
                if result.target.kind == "cubin"
            ]
        )
        parts.append((render_json(rows) if options.print_resources == "json" else render_table(rows)) + "\n")
    if options.print_map:
        files.append(OutputFile(options.print_map, render_map(linked).encode("utf-8", "surrogateescape")))
    if options.time_phases:
        parts.append(trace.render() + "\n")
    if options.time_trace:
        files.append(OutputFile(options.time_trace, trace.chrome_trace().encode()))
    return "".join(parts), files


def render_barriers(linked: Linked) -> str:
    """`--print-barriers`: the form that each barrier of the program got, and why."""
    original = {new: old for old, new in linked.final.names.items()}
    lines = []
    for decision in linked.final.barriers:
        function = demangle(original.get(decision.function, decision.function))
        where = f" ({decision.line})" if decision.line else ""
        form = "aligned" if decision.aligned else "unaligned"
        lines.append(f"{function}: barrier {decision.number}{where}: {form}: {decision.reason}")
    return "".join(f"{line}\n" for line in lines)


def render_map(linked: Linked) -> str:
    """`--print-map`: what is in the images, where each definition came from, and what was read."""
    lines = ["images"]
    lines += [f"  {result.target.name:<14} {len(result.image):>8} bytes" for result in linked.results]
    lines.append("kernels")
    lines += [f"  {name}" for name in linked.kernels]
    lines.append("variables")
    lines += [f"  {name}" for name in linked.variables]
    lines.append("definitions")
    lines += [f"  {kept.kind:<9} {kept.name}  {kept.place}" for kept in gc_report(linked.resolution).kept]
    lines.append("renamed")
    lines += [f"  {demangle(old)} -> {new}" for old, new in sorted(linked.final.names.items())]
    lines.append("inputs")
    lines += [f"  {describe(source)}" for source in linked.resolution.sources]
    return "\n".join(lines) + "\n"

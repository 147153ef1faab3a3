"""The reports that tell of the program: `--print-gc`, `--why-live`, `--print-barriers`, `--print-map`."""

from __future__ import annotations

from rglink.demangle import demangle
from rglink.diagnostics import Diagnostics
from rglink.link import Built
from rglink.lto.gc import gc_report, why_live
from rglink.lto.sources import describe
from rglink.options import LinkOptions


def render_program_reports(built: Built, options: LinkOptions, diags: Diagnostics) -> str:
    """What `--print-gc`, `--why-live` and `--print-barriers` tell.

    Raises:
        LinkFailed: `--why-live` names what no input defines.
    """
    parts: list[str] = []
    if options.print_gc:
        parts.append(gc_report(built.resolution).render())
    parts += ["\n".join(why_live(built.resolution, symbol, diags)) + "\n" for symbol in options.why_live]
    diags.checkpoint()
    if options.print_barriers:
        parts.append(render_barriers(built))
    return "".join(parts)


def render_barriers(built: Built) -> str:
    """`--print-barriers`: the form that each barrier of the program got, and why."""
    original = {new: old for old, new in built.final.names.items()}
    lines = []
    for decision in built.final.barriers:
        function = demangle(original.get(decision.function, decision.function))
        where = f" ({decision.line})" if decision.line else ""
        form = "aligned" if decision.aligned else "unaligned"
        lines.append(f"{function}: barrier {decision.number}{where}: {form}: {decision.reason}")
    return "".join(f"{line}\n" for line in lines)


def render_map(built: Built) -> str:
    """`--print-map` but for the images: what they hold, where each definition came from, and what was read."""
    lines = ["kernels"]
    lines += [f"  {name}" for name in built.program.kernels]
    lines.append("variables")
    lines += [f"  {name}" for name in built.program.variables]
    lines.append("definitions")
    lines += [f"  {kept.kind:<9} {kept.name}  {kept.place}" for kept in gc_report(built.resolution).kept]
    lines.append("renamed")
    lines += [f"  {demangle(old)} -> {new}" for old, new in sorted(built.final.names.items())]
    lines.append("inputs")
    lines += [f"  {describe(source)}" for source in built.resolution.sources]
    return "\n".join(lines) + "\n"

"""The reports that tell of the images: `--print-resources`, the head of `--print-map`, and where the time went."""

from __future__ import annotations

from rglink.frontend.outputs import OutputFile
from rglink.frontend.resources import render_json, render_table, resource_rows
from rglink.images import Images
from rglink.objfmt.cubin import read_cubin
from rglink.options import LinkOptions
from rglink.trace import Trace


def render_images_reports(
    images: Images, map_text: str, options: LinkOptions, trace: Trace
) -> tuple[str, list[OutputFile]]:
    """The text for stdout of what is known at the end, and the reports that go to files of their own."""
    parts: list[str] = []
    files: list[OutputFile] = []
    if options.print_resources:
        cubins = [
            (result.target.name, read_cubin(result.target.name, result.image))
            for result in images.results
            if result.target.kind == "cubin"
        ]
        rows = resource_rows(cubins)
        parts.append((render_json(rows) if options.print_resources == "json" else render_table(rows)) + "\n")
    if options.print_map:
        sizes = [f"  {result.target.name:<14} {len(result.image):>8} bytes\n" for result in images.results]
        text = "".join(["images\n", *sizes, map_text])
        files.append(OutputFile(options.print_map, text.encode("utf-8", "surrogateescape")))
    if options.time_phases:
        parts.append(trace.render() + "\n")
    if options.time_trace:
        files.append(OutputFile(options.time_trace, trace.chrome_trace().encode()))
    return "".join(parts), files

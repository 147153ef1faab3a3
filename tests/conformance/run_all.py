"""Every operation in every configuration: `python -m tests.conformance.run_all [--seed N] [NAME...]`.

A name is an operation (`rem_f32`) or a family (`rem`). Prints one line per configuration and one per difference; ends
with 1 when there is any.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rglink.frontend.rustc import find_rustc
from rglink.ir import LLVM_MAJOR
from tests.conformance.compare import ROWS, DeviceProgram, HostLibrary, compare
from tests.conformance.crate import CONFIGURATIONS, build_device, build_host, crate_source, link_device
from tests.conformance.table import Operation, all_operations


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison and print its figures."""
    parser = argparse.ArgumentParser(prog="run_all", description="compare host and device, operation by operation")
    parser.add_argument("names", nargs="*", help="operations or families (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs (default: 1)")
    options = parser.parse_args(argv)
    operations = [
        operation
        for operation in all_operations()
        if not options.names or {operation.name, operation.family} & set(options.names)
    ]
    families = len({operation.family for operation in operations})
    print(f"{len(operations)} operations ({families} without types), {ROWS} inputs each, seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        count = _run(operations, options.seed, Path(folder))
    print(f"{count} differences")
    return int(count > 0)


def _run(operations: Sequence[Operation], seed: int, folder: Path) -> int:
    source = folder / "operations.rs"
    source.write_text(crate_source(operations))
    library = folder / "host.so"
    build_host(find_rustc(LLVM_MAJOR), source, library)
    host, count = HostLibrary(library), 0
    for configuration in CONFIGURATIONS:
        start = time.monotonic()
        linked = link_device(build_device(source, configuration.level), configuration)
        middle = time.monotonic()
        found = compare(operations, host, DeviceProgram(linked), seed)
        end = time.monotonic()
        print(f"{configuration}: {len(found)} differ, built in {middle - start:.0f} s, run in {end - middle:.0f} s")
        for each in found:
            print(f"  {each.operation}, {each.count} inputs: {each.shown}")
        count += len(found)
    return count


if __name__ == "__main__":
    raise SystemExit(main())

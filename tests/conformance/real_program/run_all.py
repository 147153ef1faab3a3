"""All kernels on 4,096 threads in every configuration: `python -m tests.conformance.real_program.run_all`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from rglink.emulate import load
from rglink.frontend.rustc import find_rustc
from rglink.frontend.sysroot import device_sysroot
from rglink.ir import LLVM_MAJOR
from tests.conformance.crate import CONFIGURATIONS
from tests.conformance.real_program.build import KERNELS, build_device, build_host, missing_crates
from tests.conformance.real_program.run import device_results, differing, host_results, inputs
from tests.conformance.real_program.test_real_program import link

THREADS = 4_096


def main() -> int:
    """Print a line per configuration; 1 when a result differs, 3 when crates are missing."""
    missing = missing_crates()
    if missing:
        print(f"sources of crates are not installed: {' '.join(missing)}", file=sys.stderr)
        return 3
    rustc, wrong = find_rustc(LLVM_MAJOR), 0
    with tempfile.TemporaryDirectory(prefix="real-program-") as name:
        folder = Path(name)
        library = build_host(rustc, folder)
        rlibs = build_device(rustc, device_sysroot(rustc), folder)
        given = inputs(THREADS)
        for configuration in CONFIGURATIONS:
            start = time.monotonic()
            link(rlibs, configuration, folder)
            middle = time.monotonic()
            program = load(folder / "real.ptx", checks=None)
            for kernel in KERNELS:
                device = device_results(program, kernel, given, THREADS)
                differ = differing(kernel, host_results(library, kernel, given, THREADS), device)
                if len(differ):
                    print(f"  {kernel}: {len(differ)} threads, the first is {differ[0]}")
                wrong += len(differ)
            end = time.monotonic()
            print(f"{configuration}: {len(KERNELS)} kernels, {THREADS} threads each, linked in {middle - start:.0f} s, "
                  f"run in {end - middle:.0f} s")  # fmt: skip
    print(f"{wrong} results differ")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())

"""How long a cold link of `.rgo` files takes, against LLVM's tools on the same bitcode.

Usage: link_time_rgo.py [--runs N] [--arch sm_90] [--drop KERNEL]... a.rgo b.rgo...

The peers get each file's optimized bitcode, the device sysroot that the files were compiled against, and the same
allocator and panic functions that rglink adds; orders and tools are those of `link_time.py`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from link_time import (
    FIXED_ORDER,
    RUSTC_ORDER,
    Inputs,
    kernels_in,
    link_with_llvm,
    print_table,
    run,
    timed,
)

from rglink.frontend.sysroot import cached_sysroot
from rglink.ir import TRIPLE, Module
from rglink.lto.rust_runtime import define_rust_runtime, runtime_names
from rglink.objfmt.rgo import read_rgo

# The made-up crate in which rustc's runtime functions are mangled.
RUNTIME_CRATE = "_RNvCsfgHYwM92fyn_7___rustc"


def peers_files(rgos: list[Path], folder: Path) -> list[str]:
    """Bitcode of the same program for tools that know no `.rgo`."""
    files: list[str] = []
    keys: set[str] = set()
    for path in rgos:
        reader = read_rgo(str(path), path.read_bytes())
        keys |= {flag.removeprefix("--sysroot=") for flag in reader.producer().flags if flag.startswith("--sysroot=")}
        files.append(str(folder / f"{path.stem}.bc"))
        Path(files[-1]).write_bytes(reader.optimized())
    (key,) = keys
    sysroot = cached_sysroot(key)
    if sysroot is None:
        raise SystemExit("the device sysroot of these files is not in the cache: compile them again")
    files.append(str(folder / "runtime.bc"))
    Path(files[-1]).write_bytes(runtime_bitcode())
    return [*files, *(str(path) for path in sysroot.rlibs)]


def runtime_bitcode() -> bytes:
    """What rglink defines for Rust, as a module of its own."""
    names = [f"{RUNTIME_CRATE}{len(name)}{'_' * name.startswith('_')}{name}" for name in sorted(runtime_names())]
    declared = "".join(f"declare void @{name}()\n" for name in names)
    calls = "".join(f"  call void @{name}()\n" for name in names)
    text = f'target triple = "{TRIPLE}"\n{declared}define void @user() {{\n{calls}  ret void\n}}\n'
    module = Module.parse_text(text, "runtime")
    module.set_linkage(define_rust_runtime(module), "external")
    return module.bitcode()


def compare(rgos: list[Path], arch: int, drop: list[str], runs: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "inputs").mkdir()
        inputs = Inputs((), tuple(peers_files(rgos, folder / "inputs")), (arch,))
        drops = [word for name in drop for word in ("--drop", name)]

        def with_rglink(out: Path) -> None:
            targets = f"sm_{arch},compute_{arch}"
            run(["rglink", *map(str, rgos), "-o", str(out / "app.fatbin"), "--arch", targets, *drops])

        timed(with_rglink, folder / "rglink")  # warms the file cache
        contents = kernels_in(folder / "rglink" / "app.fatbin")
        kernels = contents[min(contents)]
        linkers = {
            "rglink, cold": with_rglink,
            "fixed order": lambda out: link_with_llvm(inputs, out, FIXED_ORDER, kernels),
            "rustc's order": lambda out: link_with_llvm(inputs, out, RUSTC_ORDER, kernels),
        }
        times: dict[str, list[float]] = {name: [] for name in linkers}
        for _ in range(runs):
            for name, link in linkers.items():
                times[name].append(timed(link, folder / name))
                if name == "rglink, cold":
                    # The quickest by far: more runs make its median as steady as the others'.
                    times[name] += [timed(link, folder / name) for _ in range(2)]
        print_table(times, inputs, len(kernels))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rgos", type=Path, nargs="+", metavar="RGO")
    parser.add_argument("--runs", type=int, default=3, help="runs of each linker (3)")
    parser.add_argument("--arch", default="sm_90", help="the architecture, which rustc's linker knows one of (sm_90)")
    parser.add_argument("--drop", action="append", default=[], metavar="KERNEL")
    options = parser.parse_args()
    compare(options.rgos, int(options.arch.removeprefix("sm_")), options.drop, options.runs)


if __name__ == "__main__":
    main()

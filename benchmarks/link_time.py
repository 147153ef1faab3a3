"""How long a cold link takes: rglink against what rustc's own linker does, on the inputs that rustc hands over.

Usage: link_time.py app.ptx.inputs.json [--runs N]

The record and the inputs beside it come from `record_inputs.py`. Three linkers make cubins for the same
architectures from them, in turn, each in a folder of its own:

- rglink, without a cache;
- rustc's order, as llvm-bitcode-linker calls LLVM: everything is optimized, then internalized and pruned;
- the fixed order: internalized and pruned first, then optimized and pruned again.

The last two end in an `llc` and a `ptxas` for each architecture, as many at once as there are cores, and in
`fatbinary`. Their images must hold all of rglink's kernels (rglink folds equal instances). What rustc's own
linker lacks altogether, more than one architecture in a run, is given to it for nothing: it optimizes once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

LLVM = "22"
CUDA_TOOLS = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"
RUSTC_ORDER = "default<O3>,internalize,globaldce"
FIXED_ORDER = "internalize,globaldce,default<O3>,globaldce"


@dataclass(frozen=True)
class Inputs:
    """What rustc handed over: its whole argument list, the bitcode files in it, the numbers of `sm_` targets."""

    arguments: tuple[str, ...]
    files: tuple[str, ...]
    architectures: tuple[int, ...]


def read_record(path: Path) -> Inputs:
    arguments = tuple(json.loads(path.read_text())["arguments"])
    wanted = [each.removeprefix("--arch=") for each in arguments if each.startswith("--arch=")][-1]
    return Inputs(
        arguments,
        tuple(each for each in arguments if each.endswith((".o", ".rlib"))),
        tuple(int(each.removeprefix("sm_")) for each in wanted.split(",") if each.startswith("sm_")),
    )


def rglink_command(inputs: Inputs, folder: Path) -> list[str]:
    """rustc's own command line, with another output and no cache."""
    arguments = list(inputs.arguments)
    arguments[arguments.index("-o") + 1] = str(folder / "app.ptx")
    return ["rglink", *arguments, "--no-cache"]


def link_with_rglink(inputs: Inputs, folder: Path) -> None:
    run(rglink_command(inputs, folder))


def link_with_llvm(inputs: Inputs, folder: Path, passes: str, kernels: tuple[str, ...]) -> None:
    merged, optimized = str(folder / "merged.bc"), str(folder / "optimized.bc")
    run([f"llvm-link-{LLVM}", "--ignore-non-bitcode", *inputs.files, "-o", merged])
    public = ",".join(kernels)
    run([f"opt-{LLVM}", f"-passes={passes}", f"--internalize-public-api-list={public}", merged, "-o", optimized])

    def generate(architecture: int) -> None:
        ptx = f"{folder}/{architecture}.ptx"
        run([f"llc-{LLVM}", "-O3", f"-mcpu=sm_{architecture}", optimized, "-o", ptx])
        run([str(CUDA_TOOLS / "ptxas"), f"-arch=sm_{architecture}", ptx, "-o", f"{folder}/{architecture}.cubin"])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(generate, inputs.architectures))
    lowest = min(inputs.architectures)
    images = [f"--image3=kind=elf,sm={each},file={folder}/{each}.cubin" for each in inputs.architectures]
    images.append(f"--image3=kind=ptx,sm={lowest},file={folder}/{lowest}.ptx")
    run([str(CUDA_TOOLS / "fatbinary"), "--64", f"--create={folder}/app.fatbin", *images])


def run(command: list[str]) -> str:
    """Runs a tool to its end and returns what it printed; ends the benchmark with its words when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed with exit code {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


def kernels_in(fatbin: Path) -> dict[int, tuple[str, ...]]:
    """The kernels of each cubin in a fat binary, by architecture, as cuobjdump names them."""
    found: dict[int, tuple[str, ...]] = {}
    architecture = 0
    for line in run([str(CUDA_TOOLS / "cuobjdump"), "-symbols", str(fatbin)]).splitlines():
        words = line.split()
        if line.startswith("arch = sm_"):
            architecture = int(line.removeprefix("arch = sm_"))
            found.setdefault(architecture, ())
        elif words[:1] == ["FUNC"] and "ENTRY" in words:
            found[architecture] += (words[-1],)
    return {each: tuple(sorted(kernels)) for each, kernels in found.items()}


def timed(link: Callable[[Path], None], folder: Path) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    start = time.perf_counter()
    link(folder)
    return time.perf_counter() - start


def compare(inputs: Inputs, runs: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        ours = Path(scratch) / "rglink"
        timed(lambda folder: link_with_rglink(inputs, folder), ours)  # warms the file cache
        contents = kernels_in(ours / "app.fatbin")
        kernels = contents[min(contents)]
        linkers: dict[str, Callable[[Path], None]] = {
            "rglink, cold": lambda folder: link_with_rglink(inputs, folder),
            "fixed order": lambda folder: link_with_llvm(inputs, folder, FIXED_ORDER, kernels),
            "rustc's order": lambda folder: link_with_llvm(inputs, folder, RUSTC_ORDER, kernels),
        }
        folders = {name: Path(scratch) / str(number) for number, name in enumerate(linkers)}
        times: dict[str, list[float]] = {name: [] for name in linkers}
        for _ in range(runs):
            for name, link in linkers.items():
                times[name].append(timed(link, folders[name]))
        for name, folder in folders.items():
            for architecture, found in kernels_in(folder / "app.fatbin").items():
                if not set(found) >= set(kernels):
                    raise SystemExit(f"{name}, sm_{architecture}: {found}, where rglink has {kernels}")
        print_table(times, inputs, len(kernels))


def print_table(times: dict[str, list[float]], inputs: Inputs, kernels: int) -> None:
    targets = ", ".join(f"sm_{each}" for each in inputs.architectures)
    size = sum(os.path.getsize(each) for each in inputs.files) / 1e6
    print(f"{len(inputs.files)} files, {size:.0f} MB, {kernels} kernels, {targets}; {os.cpu_count()} cores")
    print(f"{'linker':<16}{'median s':>10}{'min s':>10}{'max s':>10}{'times rglink':>14}{'runs':>6}")
    own = statistics.median(next(iter(times.values())))
    for name, each in times.items():
        median = statistics.median(each)
        print(f"{name:<16}{median:>10.2f}{min(each):>10.2f}{max(each):>10.2f}{median / own:>14.1f}{len(each):>6}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("record", type=Path, help="what record_inputs.py wrote")
    parser.add_argument("--runs", type=int, default=3, help="runs of each linker (3)")
    options = parser.parse_args()
    compare(read_record(options.record), options.runs)


if __name__ == "__main__":
    main()

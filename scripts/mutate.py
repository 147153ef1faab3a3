"""How many wrong programs the PTX machine tells from right ones: `python scripts/mutate.py [--count N] [--seed N]`.

Links `tests/conformance/programs/kernels.rs`, changes one instruction of its PTX at a time, runs the kernel under the
checks, and counts the mutants that are caught: by wrong results, by a fault, or by a report of the checks. A mutant
that ptxas refuses is no program and does not count; one of which ptxas makes the same machine code as of the original
is equivalent. What is left is listed, to be read: it is either equivalent for a reason that ptxas does not see or
missed. Ends with 1 below 80 %.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rglink.diagnostics import RglinkError  # noqa: E402
from rglink.emulate import CheckFailed, Checks, KernelFault, load  # noqa: E402
from tests.conformance.crate import Configuration, build_device, link_device  # noqa: E402
from tests.conformance.programs.cases import CASES, SOURCE, Case  # noqa: E402
from tests.tools import tool  # noqa: E402

KERNELS = sorted({case.kernel for case in CASES})
WANTED_SHARE = 0.8
STEPS = 30_000
ROUTE = Configuration(3, "llvm", "sm_75")
# What an instruction may be mistaken for. Orders and scopes only become weaker: a stronger one is no mistake.
MISTAKES = {
    "add": ("sub",), "sub": ("add",), "mul.lo": ("add",), "and": ("or", "xor"), "or": ("and", "xor"),
    "xor": ("and", "or"), "shl": ("shr",), "shr": ("shl",), "min": ("max",), "max": ("min",), "setp.eq": ("setp.ne",),
    "setp.ne": ("setp.eq",), "setp.lt": ("setp.le", "setp.ge"), "setp.le": ("setp.lt", "setp.gt"),
    "setp.gt": ("setp.ge", "setp.le"), "setp.ge": ("setp.gt", "setp.lt"), ".acquire": (".relaxed",),
    ".release": (".relaxed",), ".acq_rel": (".acquire", ".release", ".relaxed"), ".sys": (".cta",), ".gpu": (".cta",),
    ".down": (".up",), ".bfly": (".idx",),
}  # fmt: skip
ORDERED_OPERANDS = re.compile(r"\b(?:sub|shl|shr|selp|div|rem|setp\.[lg][te]|bfe|shf|fma|prmt)\b")
DELETABLE = re.compile(r"(?:@!?%p\d+ )?(?:bar|barrier|fence|membar|st|red|atom|bra)\b")
INSTRUCTION = re.compile(r"\t(?:@!?%p\d+ )?[a-z][\w.:]*[ \t][^;]*;|\t(?:@!?%p\d+ )?(?:ret|trap|exit);")


@dataclass(frozen=True)
class Mutant:
    """`text` is the whole program; `line` counts from 1; `change` says what was done."""

    kernel: str
    line: int
    change: str
    text: str


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measure and print its figures."""
    parser = argparse.ArgumentParser(prog="mutate", description="share of wrong programs that are caught")
    parser.add_argument("--count", type=int, default=300, help="mutants that ptxas accepts (default: 300)")
    parser.add_argument("--seed", type=int, default=1, help="which mutants (default: 1)")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="mutate-") as name:
        folder = Path(name)
        text = linked(folder)
        tally: Counter[str] = Counter()
        for mutant in chosen(text, options.count, options.seed, folder):
            outcome = caught_by(mutant)
            if outcome == "missed" and is_equivalent(text, mutant, folder):
                outcome = "equivalent"
            if outcome == "missed":
                print(f"missed: {mutant.kernel}, line {mutant.line}: {mutant.change}")
            tally[outcome] += 1
    return report(tally)


def report(tally: Counter[str]) -> int:
    """Print the figures; 1 when the share is too small."""
    counted = sum(tally.values()) - tally["equivalent"]
    share = (counted - tally["missed"]) / counted if counted else 0.0
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(tally.items())))
    print(f"{share:.1%} of {counted} mutants that are not equivalent are caught")
    return int(share < WANTED_SHARE)


def linked(folder: Path) -> str:
    """The PTX of the cases' kernels."""
    source = Path(shutil.copy(SOURCE, folder))
    keep = [part for name in KERNELS for part in ("--keep", name)]
    return link_device(build_device(source, ROUTE.level), ROUTE, *keep).read_text()


def chosen(text: str, count: int, seed: int, folder: Path) -> Iterator[Mutant]:
    """`count` different mutants that ptxas accepts, of each kernel in turn."""
    rng = random.Random(seed)
    waiting: list[list[Mutant]] = []
    for kernel in KERNELS:
        candidates = list(mutants(text, kernel))
        rng.shuffle(candidates)
        waiting.append(candidates)
    found = 0
    while any(waiting):
        for candidates in filter(None, waiting):
            accepted = False
            while candidates and not accepted:
                mutant = candidates.pop()
                accepted = assemble(mutant.text, folder / "mutant.cubin")
            if accepted:
                yield mutant
                found += 1
                if found == count:
                    return


def mutants(text: str, kernel: str) -> Iterator[Mutant]:
    """Every mutant of the kernel."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(rf"\.visible \.entry {kernel}\(", line))
    end = lines.index("}", start)
    for index in range(start, end):
        line = lines[index].split("//")[0].rstrip()
        if not INSTRUCTION.fullmatch(line) or "ld.param" in line:
            continue
        for changed in sorted(set(changes(line)) - {line}):
            whole = "\n".join([*lines[:index], changed, *lines[index + 1 :], ""])
            yield Mutant(kernel, index + 1, f"`{line.strip()}` to `{changed.strip()}`", whole)


def changes(line: str) -> Iterator[str]:
    """The line with another operation, number, order of operands or guard, or without the instruction."""
    for old, mistakes in MISTAKES.items():
        if re.search(rf"(?<![\w.]){re.escape(old)}\b|(?<=\w){re.escape(old)}(?=\.)", line):
            yield from (line.replace(old, new, 1) for new in mistakes)
    for number in re.finditer(r"(?<=, )-?\d+(?=[,;])|(?<=\+)\d+(?=\])", line):
        for step in (-1, 1):
            yield f"{line[: number.start()]}{int(number[0]) + step}{line[number.end() :]}"
    operands = re.search(r"(\S+), ([^,{}\[\]]+), ([^,{}\[\]]+)(?=[,;])", line)
    if operands and ORDERED_OPERANDS.search(line):
        yield line.replace(operands[0], f"{operands[1]}, {operands[3]}, {operands[2]}", 1)
    guard = re.search(r"@(!?)(%p\d+)", line)
    if guard:
        yield line.replace(guard[0], f"@{'' if guard[1] else '!'}{guard[2]}", 1)
        yield line.replace(f"{guard[0]} ", "", 1)
    if DELETABLE.match(line.strip()):
        yield "\t// nothing"


def assemble(text: str, output: Path) -> bool:
    """Whether ptxas accepts the program."""
    source = output.with_suffix(".ptx")
    source.write_text(text)
    command = [tool("ptxas"), f"-arch={ROUTE.arch}", "-O3", str(source), "-o", str(output)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def caught_by(mutant: Mutant) -> str:
    """How the mutant shows: "value", "fault", "check", or "missed"."""
    for case in CASES:
        for seed in (None, 1, 2) if case.kernel == mutant.kernel else ():
            outcome = _run(mutant, case, seed)
            if outcome:
                return outcome
    return "missed"


def _run(mutant: Mutant, case: Case, seed: int | None) -> str:
    arguments = case.arguments()
    try:
        kernel = load(mutant.text.encode(), checks=Checks())[mutant.kernel]
        kernel.launch(case.grid, case.block, arguments, seed=seed, steps=STEPS)
    except CheckFailed:
        return "check"
    except (KernelFault, RglinkError):
        return "fault"
    return "" if case.holds(*arguments) else "value"


def is_equivalent(text: str, mutant: Mutant, folder: Path) -> bool:
    """Whether ptxas makes the same machine code of the mutant and the original."""
    return machine_code(text, mutant.kernel, folder) == machine_code(mutant.text, mutant.kernel, folder)


def machine_code(text: str, kernel: str, folder: Path) -> list[str]:
    """The kernel's instructions as nvdisasm prints them."""
    cubin = folder / "compared.cubin"
    assemble(text, cubin)
    done = subprocess.run([tool("nvdisasm"), "-c", str(cubin)], capture_output=True, text=True, check=True)
    section = done.stdout.partition(f".text.{kernel}:")[2].partition("//---------------------")[0]
    return [line.strip() for line in section.splitlines() if "/*" in line]


if __name__ == "__main__":
    raise SystemExit(main())

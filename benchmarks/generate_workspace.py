#!/usr/bin/env python3
"""Writes a synthetic cargo workspace of device crates: a measuring instrument, not an example.

Usage: generate_workspace.py FOLDER [--crates 30] [--functions 50] [--seed 2]

One random call graph: each function of level n calls one to three functions of lower levels, half of them in
other crates. Every crate has two kernels, which the last crate, a cdylib, re-exports; about half of them are dropped
at the link. The same numbers give the same bytes.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LEVELS = 6
KERNELS = 2
ATTRIBUTES = ("", "#[inline]\n", "#[inline(never)]\n", "#[inline(always)]\n", "#[cold]\n")
ATTRIBUTE_WEIGHTS = (70, 15, 5, 4, 6)
ARCHITECTURES = "sm_75,sm_80,sm_90,sm_100,sm_120,compute_75"

# Bodies over `x` and `y`, which begin a value `r`. A, B, C, D stand for constants of the function.
WORDS = (
    "let mut r = x.wrapping_mul(A).rotate_left(7) ^ y; r = if r & 4 != 0 { r.wrapping_add(B) } else { r ^ (y >> 3) };",
    "let mut r = TABLE[(x & 63) as usize] ^ y.wrapping_mul(A); r = r.count_ones() + r.leading_zeros() + x;",
    "let mut r = match x & 3 { 0 => y.wrapping_add(A), 1 => y ^ B, 2 => y / C, _ => TABLE[(y & 31) as usize] };",
    "let mut r = x.checked_add(y).unwrap_or(A); for q in 0..(x & 7) { r = r.wrapping_mul(B).wrapping_add(q ^ C); }",
    "SEEN.fetch_add(x & 1, Ordering::Relaxed); let mut r = x.wrapping_mul(A) ^ SEEN.load(Ordering::Relaxed);",
    "let t: [u32; 8] = core::array::from_fn(|q| x.wrapping_add(q as u32).wrapping_mul(A)); "
    "let mut r = t[(y & 7) as usize] ^ B;",
)
REALS = (
    "let mut r = x * A as f32 + y; if r > B as f32 { r = r * r - x; }",
    "let mut r = CURVE[(x as usize) & 63] * y; r = if r < 0.0 { -r } else { r };",
    "let mut r = [A as f32, B as f32, C as f32, D as f32].iter().fold(0.0, |s, c| s * x + c) / (y * y + 1.0);",
    "let mut r = x; let mut q = 0; while q < 6 { r = 0.5 * (r + y / (r + 1.5)); q += 1; }",
    "let mut r = (x.max(y) - x.min(y)).clamp(-1.0e4, 1.0e4) * A as f32;",
    "let a = [x, y, x * y, x - y]; let mut r = a[(y as usize) & 3] + a[(x as usize) & 3];",
)
SLICES = (
    "let mut r = xs[i] * y + xs[i / 2];",
    "let mut r: f32 = xs.iter().take(i & 15).zip(CURVE.iter()).map(|(a, b)| a * b).sum::<f32>() + y;",
    "let mut r = y; for w in xs[..i & 31].chunks_exact(4) { r += w[0] * A as f32 + w[1] - w[2] * w[3]; }",
    "let mut r = match xs.get(i) { Some(v) => *v * y, None => A as f32 };",
    "let (low, high) = xs.split_at(i); "
    "let mut r = low.first().copied().unwrap_or(0.0) + high.last().copied().unwrap_or(y);",
)
GENERICS = (
    "let mut r = x * T::from(A as u16) + y;",
    "let mut r = if x < y { y + x } else { x * y };",
    "let a = [x, y, x + y, x * y]; let mut r = a[A as usize & 3];",
)
FAMILIES = {"words": WORDS, "reals": REALS, "slices": SLICES, "generics": GENERICS}
SIGNATURES = {
    "words": "(x: u32, y: u32) -> u32",
    "reals": "(x: f32, y: f32) -> f32",
    "slices": "(xs: &[f32], i: usize, y: f32) -> f32",
    "generics": "<T: Copy + PartialOrd + Add<Output = T> + Mul<Output = T> + From<u16>>(x: T, y: T) -> T",
}
# A call of a function of the family, as an f32, where `xs`, `x`, `y` of types &[f32], f32, f32 are at hand.
CALLS = {
    "words": "{path}(x as u32, y as u32) as f32",
    "reals": "{path}(x, y + 1.0)",
    "slices": "{path}(xs, x as usize & 31, y)",
    "generics": "{path}::<f32>(y, x)",
}


@dataclass(frozen=True)
class Function:
    """`calls` are functions of lower levels; `body` a text of its family with the constants filled in."""

    crate: int
    number: int
    family: str
    level: int
    attribute: str
    body: str
    calls: tuple[Function, ...]

    def path(self, crate: int) -> str:
        owner = "crate" if crate == self.crate else f"c{self.crate:03d}"
        return f"{owner}::f{self.number:03d}"


@dataclass
class Crate:
    number: int
    dependencies: tuple[int, ...]
    functions: list[Function] = field(default_factory=list)
    kernels: list[tuple[Function, ...]] = field(default_factory=list)


def make_crates(count: int, functions: int, choice: random.Random) -> list[Crate]:
    crates: list[Crate] = []
    for number in range(count):
        near = range(max(0, number - 12), number)
        dependencies = sorted(set(choice.sample(near, min(4, len(near)))) | set(range(min(number, 2))))
        crate = Crate(number, tuple(dependencies))
        crates.append(crate)
        for index in range(functions):
            crate.functions.append(make_function(crate, index, crates, choice))
        high = sorted(crate.functions, key=lambda each: -each.level)[: max(4, functions // 3)]
        crate.kernels += [tuple(choice.sample(high, min(4, len(high)))) for _ in range(KERNELS)]
    return crates


def make_function(crate: Crate, number: int, crates: list[Crate], choice: random.Random) -> Function:
    family = choice.choices(list(FAMILIES), weights=(30, 25, 30, 15))[0]
    level = min(LEVELS - 1, int(choice.expovariate(0.55)))
    calls: list[Function] = []
    for _ in range(choice.randint(1, 3) if level else 0):
        abroad = crate.dependencies and choice.random() < 0.5
        owner = crates[choice.choice(crate.dependencies)] if abroad else crate
        lower = [each for each in owner.functions if each.level < level]
        if lower:
            calls.append(choice.choice(lower[-25:]))
    body = re.sub(r"\b[ABCD]\b", lambda _: str(choice.randrange(3, 1 << 15) | 1), choice.choice(FAMILIES[family]))
    attribute = choice.choices(ATTRIBUTES, weights=ATTRIBUTE_WEIGHTS)[0]
    return Function(crate.number, number, family, level, attribute, body, tuple(calls))


def function_text(function: Function) -> str:
    """Calls run on `f32`, so that functions of all families can call each other; a generic calls none."""
    convert = {"words": " r = r.wrapping_add(s as u32);", "reals": " r += s;", "slices": " r += s;", "generics": ""}
    at_hand = {
        "words": "let (xs, x, y) = (&CURVE[..], x as f32, y as f32);",
        "reals": "let xs = &CURVE[..];",
        "slices": "let x = i as f32;",
    }
    head = f"{function.attribute}pub fn f{function.number:03d}{SIGNATURES[function.family]}"
    if function.family == "generics" or not function.calls:
        return f"{head} {{\n    {function.body}\n    r\n}}\n"
    terms = " + ".join(CALLS[each.family].format(path=each.path(function.crate)) for each in function.calls)
    inner = f"let s: f32 = {{ {at_hand[function.family]} {terms} }};"
    return f"{head} {{\n    {function.body}\n    {inner}{convert[function.family]}\n    r\n}}\n"


def kernel_name(crate: int, number: int) -> str:
    return f"k{crate:03d}_{number}"


def kernel_text(crate: int, number: int, calls: tuple[Function, ...]) -> str:
    terms = " + ".join(CALLS[each.family].format(path=each.path(crate)) for each in calls)
    return f"""\
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn {kernel_name(crate, number)}(input: *const f32, len: usize, out: *mut f32) {{
    let t = unsafe {{ _block_idx_x() * _block_dim_x() + _thread_idx_x() }} as usize;
    if t >= len {{
        return;
    }}
    let xs = unsafe {{ core::slice::from_raw_parts(input, len) }};
    let (x, y) = (xs[t], t as f32);
    unsafe {{ *out.add(t) = {terms} }};
}}
"""


def crate_text(crate: Crate, choice: random.Random) -> str:
    table = ", ".join(str(choice.randrange(1 << 32)) for _ in range(64))
    curve = ", ".join(f"{choice.uniform(-4, 4):.3f}" for _ in range(64))
    parts = [
        "#![no_std]\n#![allow(unused)]\n#![feature(abi_ptx, stdarch_nvptx)]\n",
        "use core::arch::nvptx::{_block_dim_x, _block_idx_x, _thread_idx_x};\n",
        "use core::ops::{Add, Mul};\nuse core::sync::atomic::{AtomicU32, Ordering};\n",
        f"static SEEN: AtomicU32 = AtomicU32::new(0);\nstatic TABLE: [u32; 64] = [{table}];\n",
        f"static CURVE: [f32; 64] = [{curve}];\n",
        *(function_text(each) for each in crate.functions),
        *(kernel_text(crate.number, number, calls) for number, calls in enumerate(crate.kernels)),
    ]
    return "".join(parts)


def manifest(name: str, dependencies: tuple[int, ...], more: str = "") -> str:
    lines = "".join(f'c{each:03d} = {{ path = "../c{each:03d}" }}\n' for each in dependencies)
    return f'[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2024"\n{more}[dependencies]\n{lines}'


def workspace_files(crates: list[Crate], choice: random.Random) -> Iterator[tuple[str, str]]:
    """The workspace's files: path and text."""
    everyone = tuple(each.number for each in crates)
    members = ", ".join(f'"c{each:03d}"' for each in everyone)
    yield "Cargo.toml", f'[workspace]\nresolver = "3"\nmembers = [{members}, "program"]\n'
    names = [kernel_name(crate.number, number) for crate in crates for number in range(KERNELS)]
    dropped = [name for name in names[1:] if choice.random() < 0.5]
    flags = [f"--arch={ARCHITECTURES}", *(f"--drop={name}" for name in dropped)]
    listed = ", ".join(f'"-Clink-arg={flag}"' for flag in flags)
    yield (
        ".cargo/config.toml",
        '[build]\ntarget = "nvptx64-nvidia-cuda"\nrustc-wrapper = "rglink-rustc"\n'
        f'[target.nvptx64-nvidia-cuda]\nlinker = "rglink"\nrustflags = [{listed}]\n'
        '[unstable]\nbuild-std = ["core"]\n',
    )
    for crate in crates:
        yield f"c{crate.number:03d}/Cargo.toml", manifest(f"c{crate.number:03d}", crate.dependencies)
        yield f"c{crate.number:03d}/src/lib.rs", crate_text(crate, choice)
    yield "program/Cargo.toml", manifest("program", everyone, '[lib]\ncrate-type = ["cdylib"]\n')
    uses = "".join(f"extern crate c{each:03d};\n" for each in everyone)
    yield (
        "program/src/lib.rs",
        f"#![no_std]\n#![feature(stdarch_nvptx)]\n{uses}#[panic_handler]\n"
        "fn panic(_: &core::panic::PanicInfo) -> ! {\n    unsafe { core::arch::nvptx::trap() }\n}\n",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--crates", type=int, default=30)
    parser.add_argument("--functions", type=int, default=50, help="in each crate")
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args()
    choice = random.Random(options.seed)
    crates = make_crates(options.crates, options.functions, choice)
    for name, text in workspace_files(crates, choice):
        path = options.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    main()

"""Inputs for these tests: an `ar` writer, the tools of the CUDA wheels, small real bitcode and PTX."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from rglink.diagnostics import InputError
from rglink.objfmt.rgo import CrateMetadata, Producer, Rgo, Variant
from rglink.objfmt.summary import ModuleSummary, Symbol

CUDA_BIN = Path(sysconfig.get_path("purelib")) / "nvidia/cu13/bin"

# Two kernels, one with static shared memory, a launch bound and a stack frame; variables of three spaces.
PTX = """\
.version 8.8
.target sm_{arch}
.address_size 64
.visible .global .align 4 .b8 TABLE[16];
.const .align 4 .b8 FACTORS[32];
.visible .entry sum(.param .u64 p, .param .align 8 .b8 q[16]) .maxntid 128,1,1 {{
  .shared .align 4 .b8 tile[512];
  .local .align 4 .b8 scratch[64];
  .reg .b32 %r<9>; .reg .b64 %rd<9>;
  ld.param.u64 %rd1,[p]; mov.u32 %r1,%tid.x;
  mul.wide.u32 %rd2,%r1,4; mov.u64 %rd5,scratch; add.s64 %rd6,%rd5,%rd2; ld.local.u32 %r7,[%rd6];
  st.shared.u32 [tile],%r7; bar.sync 0; ld.shared.u32 %r3,[tile+4];
  ld.const.u32 %r5,[FACTORS+4]; add.s32 %r3,%r3,%r5;
  st.global.u32 [TABLE],%r3; st.global.u32 [%rd1],%r3; ret;
}}
.visible .entry empty() {{ ret; }}
"""

# A device function, a call of one that is defined elsewhere: what `ptxas -c` makes relocatable.
PTX_RELOCATABLE = """\
.version 8.8
.target sm_{arch}
.address_size 64
.extern .func (.param .b32 r) elsewhere (.param .b32 a);
.visible .func (.param .b32 r) twice (.param .b32 a) {{
  .reg .b32 %r<3>; ld.param.u32 %r1,[a]; add.s32 %r2,%r1,%r1; st.param.b32 [r],%r2; ret;
}}
.visible .entry caller(.param .u64 p) {{
  .reg .b32 %r<3>; .reg .b64 %rd<3>; .param .b32 a0; .param .b32 r0;
  st.param.b32 [a0],4; call (r0), elsewhere, (a0); ld.param.b32 %r1,[r0];
  ld.param.u64 %rd1,[p]; st.global.u32 [%rd1],%r1; ret;
}}
"""

MODULE = """\
target triple = "{triple}"
@TABLE = global [4 x i32] zeroinitializer
define ptx_kernel void @k(ptr %p) {{
  store i32 1, ptr %p
  ret void
}}
"""


def run_tool(name: str, *arguments: str | Path) -> str:
    """Run one of the CUDA wheels' programs; its output."""
    tool = CUDA_BIN / name
    if not tool.exists():
        pytest.skip(f"{tool.name} is missing: pip install nvidia-cuda-nvcc nvidia-cuda-cuobjdump")
    result = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def assemble(folder: Path, ptx: str, arch: str, *options: str) -> bytes:
    """A cubin by ptxas; also left in the folder as `sm_<arch>.cubin`."""
    source, cubin = folder / f"sm_{arch}.ptx", folder / f"sm_{arch}.cubin"
    source.write_text(ptx.format(arch=arch))
    run_tool("ptxas", *options, f"-arch=sm_{arch}", source, "-o", cubin)
    return cubin.read_bytes()


def bitcode(triple: str = "nvptx64-nvidia-cuda", text: str = MODULE) -> bytes:
    """Bitcode by LLVM itself."""
    module: bytes = llvm.parse_assembly(text.format(triple=triple)).as_bitcode()
    return module


def header(name: bytes, size: int) -> bytes:
    """An `ar` member header with the given name field."""
    return b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name, 0, 0, 0, b"644", size)


def member(name: bytes, data: bytes) -> bytes:
    return header(name, len(data)) + data + b"\n" * (len(data) % 2)


def gnu_archive(
    members: Sequence[tuple[str, bytes]], symbols: Sequence[tuple[str, int]] = (), *, wide: bool = False
) -> bytes:
    """A GNU archive whose map gives each symbol's member by number."""
    long_names = b"".join(f"{name}/\n".encode() for name, _ in members if len(name) > 15)
    table = member(b"//", long_names) if long_names else b""
    width = 8 if wide else 4
    names = b"".join(f"{symbol}\0".encode() for symbol, _ in symbols)
    map_size = width * (len(symbols) + 1) + len(names)
    body, starts = b"", []
    start = 8 + 60 + map_size + map_size % 2 + len(table)
    at = 0
    for name, data in members:
        field = f"{name}/".encode()
        if len(name) > 15:
            field = b"/%d" % at
            at += len(name) + 2
        starts.append(start + len(body))
        body += member(field, data)
    numbers = [len(symbols), *(starts[index] for _, index in symbols)]
    map_ = b"".join(number.to_bytes(width, "big") for number in numbers) + names
    return b"!<arch>\n" + member(b"/SYM64/" if wide else b"/", map_) + table + body


def bsd_archive(members: Sequence[tuple[str, bytes]], symbols: Sequence[tuple[str, int]]) -> bytes:
    """A BSD archive: long names before the data, the map in `__.SYMDEF`."""
    names = b"".join(f"{symbol}\0".encode() for symbol, _ in symbols)
    map_size = 4 + 8 * len(symbols) + 4 + len(names)
    start = 8 + 60 + map_size + map_size % 2
    body, starts = b"", []
    for name, data in members:
        starts.append(start + len(body))
        stored = name.encode() + b"\0" * (-len(name) % 4)
        body += member(b"#1/%d" % len(stored), stored + data)
    map_ = (8 * len(symbols)).to_bytes(4, "little")
    at = 0
    for symbol, index in symbols:
        map_ += at.to_bytes(4, "little") + starts[index].to_bytes(4, "little")
        at += len(symbol) + 1
    map_ += len(names).to_bytes(4, "little") + names
    return b"!<arch>\n" + member(b"__.SYMDEF", map_) + body


def sample_rgo() -> Rgo:
    """A small but complete `.rgo`; its first metadata is long enough to be compressed."""
    return Rgo(
        producer=Producer("1.96.0", "22.1.8", "0.1.0", ("-Copt-level=3",), True, "app"),
        optimized=b"BC\xc0\xde optimized",
        unoptimized=b"BC\xc0\xde unoptimized",
        summary=ModuleSummary(
            triple="nvptx64-nvidia-cuda",
            ident="rustc version 1.96.0",
            protected=True,
            symbols=(
                Symbol("helper", "function", "strong", "i32 (i32)"),
                Symbol("kernel", "kernel", "strong", "void (ptr)", refs=("helper", "outside")),
                Symbol("TILE", "variable", "internal", "[4 x i32]", 3, section=".rglink.shared", align=4),
            ),
            used=("kernel",),
        ),
        metadata=(
            CrateMetadata("app", "1f2e", "libapp-1f2e.rmeta", b"rust" * 200),
            CrateMetadata("dep", "77aa", "libdep-77aa.rmeta", b"rust"),
        ),
        variants=(Variant(90, b"BC\xc0\xde for sm_90"),),
    )


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def refuses_damage(read: Callable[[bytes], object], data: bytes, step: int) -> int:
    """Call `read` on every truncation and on one bit flip in `step`: it answers or raises InputError, nothing else.

    Returns how many were refused.
    """
    refused = 0
    damaged = [data[:length] for length in range(0, len(data), max(1, step // 8))]
    damaged += [flip(data, bit) for bit in range(0, len(data) * 8, step)]
    for changed in damaged:
        try:
            read(changed)
        except InputError:
            refused += 1
    return refused

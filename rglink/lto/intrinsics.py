"""What both code generators take: LLVM intrinsics by an allow-list, and operations on types that abort them.

An intrinsic that the NVPTX back end does not know becomes a call of an external function, without a word, or ends
the process. Everything on the list was emitted for sm_75 and sm_90 (tests/lto/test_intrinsics.py does it again),
after `lower_operations` has replaced what can be replaced.
"""

from __future__ import annotations

import re

from rglink.diagnostics import Diagnostics
from rglink.irinst import Instruction, instructions, read_access
from rglink.irtext import Item, ModuleText, global_names
from rglink.lto.wording import Wording

INTEGER = (
    "abs", "bitreverse", "bswap", "clmul", "ctlz", "ctpop", "cttz", "fshl", "fshr", "scmp", "ucmp", "smax", "smin",
    "umax", "umin", "sadd.sat", "uadd.sat", "ssub.sat", "usub.sat", "sshl.sat", "ushl.sat", "sadd.with.overflow",
    "uadd.with.overflow", "ssub.with.overflow", "usub.with.overflow", "smul.with.overflow", "umul.with.overflow",
)  # fmt: skip
REAL = (
    "arithmetic.fence", "ceil", "copysign", "fabs", "floor", "fma", "fmuladd", "frexp", "is.fpclass", "ldexp",
    "maximum", "maximumnum", "maxnum", "minimum", "minimumnum", "minnum", "nearbyint", "rint", "round", "roundeven",
    "sqrt", "trunc",
)  # fmt: skip
REDUCTION = (
    "add", "and", "fadd", "fmax", "fmaximum", "fmin", "fminimum", "fmul", "mul", "or", "smax", "smin", "umax", "umin",
    "xor",
)  # fmt: skip
MEMORY = (
    "memcpy", "memcpy.inline", "memmove", "memset", "memset.inline", "lifetime.start", "lifetime.end",
    "invariant.start", "invariant.end", "prefetch", "ptrmask", "launder.invariant.group", "strip.invariant.group",
    "objectsize", "load.relative", "masked.load", "masked.store", "masked.gather",
)  # fmt: skip
CONTROL = (
    "assume", "debugtrap", "donothing", "expect", "expect.with.probability", "experimental.noalias.scope.decl",
    "is.constant", "readcyclecounter", "readsteadycounter", "sideeffect", "trap", "ubsantrap",
)  # fmt: skip
LANES = ("stepvector", "vector.extract", "vector.insert", "vector.interleave2", "vector.reverse")

# Overloads are spelled after the name: ".i32", ".v4f32", ".p0.p1.i64". Neither 128-bit floats nor structs.
_OVERLOADS = r"(?:\.(?:v\d+)?(?:i\d+|f16|bf16|f32|f64|p\d+))*"
_PLAIN = "|".join(re.escape(name) for name in (*INTEGER, *REAL, *MEMORY, *CONTROL, *LANES))
_SATURATING = r"fpto[us]i\.sat\.(?:v\d+)?i(?:1|8|16|32|64)\.(?:v\d+)?(?:bf16|f16|f32|f64)"
_ALLOWED = re.compile(
    rf"llvm\.(?:dbg\.\w+|nvvm\.[A-Za-z0-9_.]+|canonicalize\.f(?:16|32|64)|{_SATURATING}"
    rf"|(?:{_PLAIN}|vector\.reduce\.(?:{'|'.join(REDUCTION)})){_OVERLOADS})"
)
_UNKNOWN = "; Unknown intrinsic"

_WIDE_FLOAT = re.compile(r"\b(?:fp128|x86_fp80|ppc_fp128)\b")
_FLOAT_OPCODES = frozenset("fadd fsub fmul fdiv frem fcmp fpext fptrunc sitofp uitofp fptosi fptoui atomicrmw".split())
_BIG_INTEGER = re.compile(r"\bi(\d+)\b")
_WORDS = ("fp128", "x86_fp80", "tofp ", "fpto", "atomic", "cmpxchg ")


def is_allowed(name: str) -> bool:
    """Whether both code generators take an intrinsic of this name (if LLVM knows it at all)."""
    return _ALLOWED.fullmatch(name) is not None


def check_operations(text: ModuleText, diags: Diagnostics) -> None:
    """Report every intrinsic and operation that has no way to machine code, with the functions that use it.

    `text` must be as LLVM printed it: LLVM marks the intrinsics that it does not know with a comment.
    Errors: `unsupported-intrinsic`, `unsupported-operation`.
    """
    wording = Wording(text)
    refused = _refused_intrinsics(text)
    for item in text.of_kind("define"):
        for line in item.body:
            if "@llvm." not in line:
                continue
            for name in sorted(set(global_names(line)) & refused.keys()):
                diags.error("unsupported-intrinsic", f"{name}: {refused[name]}", wording.place(item.name, line))
        if any(word in line for line in item.body for word in _WORDS):
            _check_types(item, wording, diags)


def _refused_intrinsics(text: ModuleText) -> dict[str, str]:
    refused: dict[str, str] = {}
    comments: list[str] = []
    for item in text.items:
        if item.kind == "blank" and item.head:
            comments.append(item.head)
            continue
        if item.kind == "declare" and item.name.startswith("llvm."):
            if _UNKNOWN in comments:
                refused[item.name] = "LLVM 22 has no such intrinsic"
            elif not is_allowed(item.name):
                refused[item.name] = "an intrinsic that no code generator for NVIDIA GPUs takes"
        comments = []
    return refused


def _check_types(item: Item, wording: Wording, diags: Diagnostics) -> None:
    for instruction in instructions(item.body):
        reason = _objection(instruction)
        if reason:
            place = wording.place(item.name, item.body[instruction.index])
            diags.error("unsupported-operation", f"{instruction.opcode}: {reason}", place)


def _objection(instruction: Instruction) -> str:
    opcode, rest = instruction.opcode, instruction.rest
    wide = _WIDE_FLOAT.search(rest) if opcode in _FLOAT_OPCODES else None
    if wide:
        return f"{wide[0]} arithmetic does not exist on NVIDIA GPUs"
    if opcode in ("sitofp", "uitofp", "fptosi", "fptoui"):
        widths = [int(match[1]) for match in _BIG_INTEGER.finditer(rest)]
        if max(widths, default=0) > 64:
            return f"a conversion between a float and a {max(widths)}-bit integer has no code on NVIDIA GPUs"
    if opcode in ("atomicrmw", "cmpxchg") or rest.startswith("atomic "):
        if 'syncscope("singlethread")' in rest:
            return "an atomic access of one thread has no code on NVIDIA GPUs: use a plain one and a compiler fence"
        access = read_access(instruction)
        width = _BIG_INTEGER.fullmatch(access.value_type) if access else None
        if width and int(width[1]) > 64:
            return f"a {width[1]}-bit atomic access has no code that every supported GPU can run"
    return ""

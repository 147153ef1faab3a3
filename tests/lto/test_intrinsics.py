"""The list of intrinsics that reach machine code: each entry is emitted here; everything else is refused by name."""

from __future__ import annotations

import re

import pytest

from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto import intrinsics
from rglink.lto.intrinsics import check_operations, is_allowed
from tests.lto.ptx import assemble

HEAD = 'target triple = "nvptx64-nvidia-cuda"\n'
SUFFIX = {
    "half": "f16",
    "bfloat": "bf16",
    "float": "f32",
    "double": "f64",
    "<2 x half>": "v2f16",
    "<4 x float>": "v4f32",
}
SUFFIX |= {"<2 x i16>": "v2i16", "<4 x i32>": "v4i32", "<4 x i8>": "v4i8", "<2 x double>": "v2f64"}
INTEGERS = ("i1", "i8", "i16", "i32", "i64", "i128", "<2 x i16>", "<4 x i32>")
REALS = ("half", "bfloat", "float", "double", "<2 x half>", "<4 x float>", "<2 x double>")
OPERANDS = {"fma": 3, "fmuladd": 3, "fshl": 3, "fshr": 3}
TWO = ("copysign", "clmul", "scmp", "ucmp")


class _Calls:
    """One kernel that calls many intrinsics and stores every result."""

    def __init__(self) -> None:
        self.declared: dict[str, str] = {}
        self.body: list[str] = []
        self.number = 0

    def add(self, name: str, result: str, *arguments: str) -> None:
        """A call with these printed arguments ("i1 false"); "TYPE" alone loads a fresh value."""
        self.number += 1
        types = ["metadata" if a.startswith("metadata") else _type(a) for a in arguments]
        self.declared[name] = f"declare {result} @{name}({', '.join(types)})"
        values: list[str] = []
        for position, (argument, kind) in enumerate(zip(arguments, types, strict=True)):
            if argument == kind and kind not in ("ptr", "ptr addrspace(1)"):
                self.body.append(f"  %a{self.number}.{position} = load volatile {kind}, ptr %in")
                argument = f"{kind} %a{self.number}.{position}"
            elif argument == kind:
                argument = f"{kind} %in" if kind == "ptr" else f"{kind} %global"
            values.append(argument)
        code = f"call {result} @{name}({', '.join(values)})"
        if result == "void":
            self.body.append(f"  {code}")
            return
        self.body += [f"  %r{self.number} = {code}", f"  store volatile {result} %r{self.number}, ptr %in"]

    def module(self) -> str:
        lines = [*self.declared.values(), "define ptx_kernel void @k(ptr %in, ptr addrspace(1) %global, i64 %n) {"]
        return HEAD + "\n".join([*lines, "  %local = alloca [4 x i32]", *self.body, "  ret void", "}"]) + "\n"


def _type(argument: str) -> str:
    if argument.startswith(("<", "ptr addrspace")):
        return argument[: re.search(r"[>)]", argument).end()]  # type: ignore[union-attr]
    return argument.split(" ")[0]


def _suffix(kind: str) -> str:
    return SUFFIX.get(kind, kind)


def _integer_calls() -> _Calls:
    calls = _Calls()
    for name in intrinsics.INTEGER:
        for kind in INTEGERS:
            full = f"llvm.{name}.{_suffix(kind)}"
            if name == "bswap" and kind in ("i1", "i8"):
                continue
            if name.endswith(".overflow"):
                if not kind.startswith("<"):
                    calls.add(full, f"{{ {kind}, i1 }}", kind, kind)
            elif name in ("abs", "ctlz", "cttz"):
                calls.add(full, kind, kind, "i1 false")
            elif name in ("scmp", "ucmp"):
                small = f"<{kind[1]} x i8>" if kind.startswith("<") else "i8"
                if kind != "i1":
                    tag = f"v{kind[1]}i8" if kind.startswith("<") else "i8"
                    calls.add(f"llvm.{name}.{tag}.{_suffix(kind)}", small, kind, kind)
            else:
                one = name in ("bitreverse", "bswap", "ctpop")
                calls.add(full, kind, *[kind] * OPERANDS.get(name, 1 if one else 2))
    return calls


def _real_calls() -> _Calls:
    calls = _Calls()
    for name in intrinsics.REAL:
        for kind in REALS:
            full = f"llvm.{name}.{_suffix(kind)}"
            scalar = not kind.startswith("<")
            if name == "is.fpclass":
                calls.add(full, "i1" if scalar else f"<{kind[1]} x i1>", kind, "i32 3")
            elif name == "ldexp" and scalar:
                calls.add(f"{full}.i32", kind, kind, "i32")
            elif name == "frexp" and scalar:
                calls.add(f"{full}.i32", f"{{ {kind}, i32 }}", kind)
            elif name not in ("ldexp", "frexp"):
                two = name in TWO or name[:3] in ("min", "max")
                calls.add(full, kind, *[kind] * OPERANDS.get(name, 2 if two else 1))
    for kind in ("half", "float", "double"):
        calls.add(f"llvm.canonicalize.{_suffix(kind)}", kind, kind)
    for name in ("fptosi", "fptoui"):
        for integer in ("i1", "i8", "i16", "i32", "i64"):
            for kind in ("half", "float", "double"):
                calls.add(f"llvm.{name}.sat.{integer}.{_suffix(kind)}", integer, kind)
    return calls


def _other_calls() -> _Calls:
    calls = _Calls()
    for name in intrinsics.REDUCTION:
        full = f"llvm.vector.reduce.{name}"
        if name in ("fadd", "fmul"):
            calls.add(f"{full}.v4f32", "float", "float", "<4 x float>")
        elif name.startswith("f"):
            calls.add(f"{full}.v4f32", "float", "<4 x float>")
        else:
            calls.add(f"{full}.v4i32", "i32", "<4 x i32>")
            calls.add(f"{full}.v4i8", "i8", "<4 x i8>")
    mask = "<4 x i1> <i1 true, i1 false, i1 true, i1 true>"
    for name, result, *arguments in (
        ("memcpy.p0.p0.i64", "void", "ptr", "ptr", "i64 %n", "i1 false"),
        ("memcpy.p1.p0.i32", "void", "ptr addrspace(1)", "ptr", "i32 77", "i1 true"),
        ("memcpy.inline.p0.p0.i64", "void", "ptr", "ptr", "i64 32", "i1 false"),
        ("memmove.p0.p0.i64", "void", "ptr", "ptr", "i64 %n", "i1 false"),
        ("memset.p0.i64", "void", "ptr", "i8", "i64 %n", "i1 false"),
        ("memset.inline.p0.i64", "void", "ptr", "i8", "i64 32", "i1 false"),
        ("lifetime.start.p0", "void", "ptr %local"),
        ("lifetime.end.p0", "void", "ptr %local"),
        ("invariant.start.p0", "ptr", "i64 4", "ptr"),
        ("prefetch.p0", "void", "ptr", "i32 0", "i32 3", "i32 1"),
        ("ptrmask.p0.i64", "ptr", "ptr", "i64 -8"),
        ("launder.invariant.group.p0", "ptr", "ptr"),
        ("strip.invariant.group.p0", "ptr", "ptr"),
        ("objectsize.i64.p0", "i64", "ptr", "i1 false", "i1 true", "i1 false"),
        ("load.relative.i64", "ptr", "ptr", "i64"),
        ("masked.load.v4i32.p0", "<4 x i32>", "ptr", mask, "<4 x i32>"),
        ("masked.store.v4i32.p0", "void", "<4 x i32>", "ptr", mask),
        ("masked.gather.v4i32.v4p0", "<4 x i32>", "<4 x ptr>", mask, "<4 x i32>"),
        ("assume", "void", "i1"),
        ("donothing", "void"),
        ("sideeffect", "void"),
        ("expect.i32", "i32", "i32", "i32 3"),
        ("expect.with.probability.i32", "i32", "i32", "i32 3", "double 0.9"),
        ("is.constant.i32", "i1", "i32"),
        ("readcyclecounter", "i64"),
        ("readsteadycounter", "i64"),
        ("stepvector.v4i32", "<4 x i32>"),
        ("vector.extract.v2i16.v4i16", "<2 x i16>", "<4 x i16>", "i64 2"),
        ("vector.insert.v4i16.v2i16", "<4 x i16>", "<4 x i16>", "<2 x i16>", "i64 2"),
        ("vector.interleave2.v8i32", "<8 x i32>", "<4 x i32>", "<4 x i32>"),
        ("vector.reverse.v4i32", "<4 x i32>", "<4 x i32>"),
        ("debugtrap", "void"),
        ("ubsantrap", "void", "i8 3"),
        ("trap", "void"),
    ):
        calls.add(f"llvm.{name}", result, *arguments)
    return calls


@pytest.mark.parametrize("cpu", ["sm_75", "sm_90"])
@pytest.mark.parametrize(
    "calls", [_integer_calls(), _real_calls(), _other_calls()], ids=["integers", "reals", "others"]
)
def test_what_the_list_has_is_emitted_without_a_call(calls: _Calls, cpu: str) -> None:
    assert all(is_allowed(name) for name in calls.declared)
    assert ".extern" not in assemble(calls.module(), cpu)


def test_every_entry_of_the_list_was_emitted() -> None:
    emitted = set().union(*(calls.declared for calls in (_integer_calls(), _real_calls(), _other_calls())))
    names = (*intrinsics.INTEGER, *intrinsics.REAL, *intrinsics.MEMORY, *intrinsics.CONTROL, *intrinsics.LANES)
    missing = {
        name
        for name in names
        if not any(full == f"llvm.{name}" or full.startswith(f"llvm.{name}.") for full in emitted)
    }
    # These two need another's result or metadata; they generate nothing.
    assert missing == {"invariant.end", "experimental.noalias.scope.decl"}


def check(code: str) -> list[str]:
    module = Module.parse_text(HEAD + code, "test")
    diags = Diagnostics()
    check_operations(ModuleText.parse(module.text()), diags)
    return [item.render() for item in diags.items]


def test_an_intrinsic_without_a_way_to_machine_code_is_named() -> None:
    assert check(
        "declare float @llvm.exp10.f32(float)\n"
        "define internal float @_RNvCs1234_3geo4area(float %x) {\n"
        "  %r = call float @llvm.exp10.f32(float %x)\n  ret float %r\n}\n"
    ) == [
        "rglink: error: llvm.exp10.f32: an intrinsic that no code generator for NVIDIA GPUs takes "
        "[unsupported-intrinsic]\n>>> in geo::area of crate geo"
    ]


def test_an_intrinsic_that_llvm_does_not_know_is_named() -> None:
    body = "  call void @llvm.nvvm.barrier.of.sound()\n  ret void\n"
    assert check(f"declare void @llvm.nvvm.barrier.of.sound()\ndefine void @f() {{\n{body}}}\n") == [
        "rglink: error: llvm.nvvm.barrier.of.sound: LLVM 22 has no such intrinsic [unsupported-intrinsic]\n>>> in f"
    ]


def test_an_unused_declaration_is_no_error() -> None:
    assert check("declare float @llvm.exp10.f32(float)\ndefine void @f() {\n  ret void\n}\n") == []


TOO_WIDE = "a 128-bit atomic access has no code that every supported GPU can run"
ONE_THREAD = "an atomic access of one thread has no code on NVIDIA GPUs: use a plain one and a compiler fence"
NO_CODE = "a conversion between a float and a {}-bit integer has no code on NVIDIA GPUs"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("%r = fadd fp128 %q, %q", "fadd: fp128 arithmetic does not exist on NVIDIA GPUs"),
        ("%r = fpext float %f to fp128", "fpext: fp128 arithmetic does not exist on NVIDIA GPUs"),
        ("%r = sitofp i128 %i to bfloat", f"sitofp: {NO_CODE.format(128)}"),
        ("%r = fptoui double %d to i100", f"fptoui: {NO_CODE.format(100)}"),
        ("%r = cmpxchg ptr null, i128 %i, i128 %i seq_cst seq_cst", f"cmpxchg: {TOO_WIDE}"),
        ("store atomic i128 %i, ptr null seq_cst, align 16", f"store: {TOO_WIDE}"),
        ('%r = load atomic i32, ptr null syncscope("singlethread") seq_cst, align 4', f"load: {ONE_THREAD}"),
    ],
)
def test_operations_on_types_that_end_the_code_generator(code: str, message: str) -> None:
    (found,) = check(f"define void @f(fp128 %q, float %f, double %d, i128 %i) {{\n  {code}\n  ret void\n}}\n")
    assert found == f"rglink: error: {message} [unsupported-operation]\n>>> in f"


def test_moving_such_a_value_is_no_operation() -> None:
    assert (
        check("define void @f(ptr %p, ptr %q) {\n  %x = load fp128, ptr %p\n  store fp128 %x, ptr %q\n  ret void\n}\n")
        == []
    )

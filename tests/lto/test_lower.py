"""Operations that become calls: which, to what, and that halves keep their exact meaning (run on the CPU by LLVM)."""

from __future__ import annotations

import ctypes
import math
import random
import re
import struct
from collections.abc import Callable
from typing import Any

import pytest
from llvmlite import binding

from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.lower import lower_operations
from tests.lto.ptx import emit

HEAD = 'target triple = "nvptx64-nvidia-cuda"\n'
MATH = ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "exp2", "log", "log2", "log10")
# What to lower, in a function of one result, and the functions that it then calls.
CASES: dict[str, tuple[str, str, set[str]]] = {
    "float remainder": ("float", "%r = frem float %f, 3.0", {"fmodf"}),
    "double remainder": ("double", "%r = frem double %d, %d", {"fmod"}),
    "half remainder": ("half", "%r = frem fast half %h, 0xH4200", {"fmodf"}),
    "bfloat remainder": ("bfloat", "%r = frem bfloat %b, %b", {"fmodf"}),
    "vector remainder": ("<2 x float>", "%r = frem <2 x float> %v, <float 1.0, float 3.0>", {"fmodf"}),
    "i128 to float": ("float", "%r = sitofp i128 %i to float", {"__floattisf"}),
    "u128 to float": ("float", "%r = uitofp nneg i128 %i to float", {"__floatuntisf"}),
    "i128 to double": ("double", "%r = sitofp i128 %i to double", {"__floattidf"}),
    "u128 to double": ("double", "%r = uitofp i128 %i to double", {"__floatuntidf"}),
    "i128 to half": ("half", "%r = sitofp i128 %i to half", set()),
    "u128 to half": ("half", "%r = uitofp i128 %i to half", set()),
    "float to i128": ("i128", "%r = fptosi float %f to i128", {"__fixsfti"}),
    "float to u128": ("i128", "%r = fptoui float %f to i128", {"__fixunssfti"}),
    "double to i128": ("i128", "%r = fptosi double %d to i128", {"__fixdfti"}),
    "double to u128": ("i128", "%r = fptoui double %d to i128", {"__fixunsdfti"}),
    "half to i128": ("i128", "%r = fptosi half %h to i128", set()),
    "half to u128": ("i128", "%r = fptoui half %h to i128", set()),
    "f32 as i128": ("i128", "%r = call i128 @llvm.fptosi.sat.i128.f32(float %f)", {"__fixsfti"}),
    "f32 as u128": ("i128", "%r = call i128 @llvm.fptoui.sat.i128.f32(float %f)", {"__fixunssfti"}),
    "f64 as i128": ("i128", "%r = call i128 @llvm.fptosi.sat.i128.f64(double %d)", {"__fixdfti"}),
    "f64 as u128": ("i128", "%r = call i128 @llvm.fptoui.sat.i128.f64(double %d)", {"__fixunsdfti"}),
    "f16 as i128": ("i128", "%r = call i128 @llvm.fptosi.sat.i128.f16(half %h)", {"__fixsfti"}),
    "vector of conversions": ("<2 x i128>", "%r = fptosi <2 x float> %v to <2 x i128>", {"__fixsfti"}),
    "powf": ("float", "%r = call float @llvm.pow.f32(float %f, float 2.5)", {"powf"}),
    "pow": ("double", "%r = call double @llvm.pow.f64(double %d, double %d)", {"pow"}),
    "atan2f": ("float", "%r = call float @llvm.atan2.f32(float %f, float %f)", {"atan2f"}),
    "powi": ("float", "%r = call float @llvm.powi.f32.i32(float %f, i32 %n)", {"__powisf2"}),
    "powi of doubles": ("double", "%r = call double @llvm.powi.f64.i32(double %d, i32 %n)", {"__powidf2"}),
    "lanes": ("<2 x float>", "%r = call <2 x float> @llvm.powi.v2f32.i32(<2 x float> %v, i32 %n)", {"__powisf2"}),
    "half sine": ("half", "%r = call half @llvm.sin.f16(half %h)", {"sinf"}),
} | {
    f"{name} of {kind}": (kind, f"%r = call fast {kind} @llvm.{name}.{suffix}({kind} %{kind[0]})", {name + end})
    for name in MATH
    for kind, suffix, end in (("float", "f32", "f"), ("double", "f64", ""))
}  # fmt: skip
PARAMETERS = "float %f, double %d, half %h, bfloat %b, <2 x float> %v, i128 %i, i32 %n"


def ir(result: str, code: str) -> str:
    declared = "".join(
        f"declare {m[1]} @{m[2]}({', '.join(p.rsplit(' ', 1)[0] for p in re.split(r', (?![^<]*>)', m[3]))})\n"
        for m in re.finditer(r"call (?:fast )?(\S+|<[^>]*>) @(llvm[\w.]+)\(([^)]*)\)", code)
    )
    body = f"  {code}\n  store {result} %r, ptr %p\n  ret void"
    return f"{HEAD}define ptx_kernel void @k(ptr %p, {PARAMETERS}) {{\n{body}\n}}\n{declared}"


def lowered(text: str) -> tuple[Module, frozenset[str]]:
    module = Module.parse_text(text, "test")
    parsed = ModuleText.parse(module.text())
    names = lower_operations(parsed)
    module.replace(parsed.render())
    module.verify()
    return module, names


@pytest.mark.parametrize(("result", "code", "names"), CASES.values(), ids=CASES.keys())
def test_the_operation_becomes_calls_that_a_code_generator_takes(result: str, code: str, names: set[str]) -> None:
    module, called = lowered(ir(result, code))
    assert called == names
    ptx = emit(module.text(), "sm_75")
    assert set(re.findall(r"^(?:\.extern \.func .*\) |\s*)(\w+)$", ptx, re.MULTILINE)) >= names
    assert ptx.count(".extern .func") == len(names)
    again, _ = lowered(module.text())
    assert again.text() == module.text()


def test_a_function_that_is_there_is_not_asked_for() -> None:
    text = ir("float", "%r = frem float %f, 3.0")
    module, called = lowered(text + "define internal float @fmodf(float %x, float %y) {\n  ret float %x\n}\n")
    assert called == frozenset()
    assert "declare float @fmodf" not in module.text()


def test_llvm_does_not_make_the_operation_again() -> None:
    module, _ = lowered(ir("float", "%r = frem float %f, 3.0"))
    module.optimize(3)
    assert "call float @fmodf" in module.text()
    assert "frem" not in module.text()


def test_a_compiler_fence_orders_the_compiler_only() -> None:
    fence = 'fence syncscope("singlethread") seq_cst'
    body = f"  store i32 1, ptr %p\n  {fence}\n  store i32 2, ptr %p\n  ret void\n"
    text = f"{HEAD}define ptx_kernel void @k(ptr %p) {{\n{body}}}\n"
    module, called = lowered(text)
    assert called == frozenset()
    module.optimize(3)
    assert len(re.findall(r"store i32 [12],", module.text())) == 2  # the first one is not dead
    ptx = emit(module.text(), "sm_75")
    assert "fence" not in ptx
    assert "membar" not in ptx


def test_other_fences_stay() -> None:
    module, _ = lowered(
        f'{HEAD}define void @f() {{\n  fence syncscope("block") acquire\n  fence seq_cst\n  ret void\n}}\n'
    )
    assert module.text().count("fence ") == 2


def test_every_line_keeps_its_place_in_the_source() -> None:
    debug = """
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!3}
!0 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "src/lib.rs", directory: "/x")
!2 = !DISubroutineType(types: !{})
!3 = !{i32 2, !"Debug Info Version", i32 3}
!4 = distinct !DISubprogram(name: "work", file: !1, line: 3, type: !2, unit: !0, spFlags: DISPFlagDefinition)
!5 = !DILocation(line: 7, column: 3, scope: !4)
define half @work(half %h, float %f) !dbg !4 {
  %a = frem half %h, 0xH4200, !dbg !5
  %b = frem float %f, 3.0
  %c = frem float %b, 4.0
  %s = fptrunc float %c to half
  %r = fadd half %a, %s
  ret half %r, !dbg !5
}
"""
    module, _ = lowered(HEAD + debug)
    calls = [line for line in module.text().splitlines() if " call " in line]
    assert len(calls) == 3
    assert all("!dbg" in line for line in calls)
    assert "!DILocation(line: 0, scope: " in module.text()


HALF = ctypes.c_uint16
WIDE = 2**128


class _Words(ctypes.Structure):
    """A 128-bit integer in memory."""

    _fields_ = (("low", ctypes.c_uint64), ("high", ctypes.c_uint64))


def _half(bits: int) -> float:
    return float(struct.unpack("<e", struct.pack("<H", bits))[0])


def _nearest_half(value: int) -> float:
    """An integer rounded once, to nearest, ties to even; infinite from 65,520 on."""
    if abs(value) >= 65520:
        return math.copysign(math.inf, value)
    return float(struct.unpack("<e", struct.pack("<e", value))[0])


def _jit(code: str, argument: str, result: str) -> Callable[[Any], Any]:
    """Compile `code` (of %x, to %r) after lowering for this machine, and call it through memory."""
    function = f"define void @run(ptr %in, ptr %out) {{\n  %x = load {argument}, ptr %in, align 8\n"
    function += f"{code}\n  store {result} %r, ptr %out, align 8\n  ret void\n}}\n"
    module, _ = lowered(function)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    # fmodf, and conversions of halves where the processor has none
    for library in ("libm.so.6", "libgcc_s.so.1"):
        binding.load_library_permanently(library)
    cpu, features = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    machine = binding.Target.from_default_triple().create_target_machine(cpu=cpu, features=features)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(module.text()), machine)
    engine.finalize_object()
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("run"))

    def run(value: Any) -> Any:
        out = HALF() if result == "half" else _Words()
        call(ctypes.addressof(value), ctypes.addressof(out))
        assert engine is not None
        return out

    return run


def test_half_remainder_is_exact() -> None:
    run = _jit("  %a = extractelement <2 x half> %x, i32 0\n  %b = extractelement <2 x half> %x, i32 1\n"
               "  %r = frem half %a, %b", "<2 x half>", "half")  # fmt: skip
    rng = random.Random(1)
    for _ in range(4000):
        left, right = rng.randrange(0x10000), rng.randrange(0x10000)
        got = _half(run((HALF * 2)(left, right)).value)
        a, b = _half(left), _half(right)
        if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0:
            assert math.isnan(got)
        else:
            wanted = math.fmod(a, b)
            assert (got, math.copysign(1, got)) == (wanted, math.copysign(1, wanted))


@pytest.mark.parametrize("opcode", ["sitofp", "uitofp"])
def test_integers_of_128_bits_round_once_to_half(opcode: str) -> None:
    run = _jit(f"  %r = {opcode} i128 %x to half", "i128", "half")
    rng = random.Random(2)
    edges = [0, 1, 2049, 2050, 2051, 4098, 65503, 65504, 65519, 65520, 65535, 131071, 2**31, 2**64, 2**100, WIDE - 1]
    # Between two halves, closer to the tie than a float can tell: a detour through float would round twice.
    edges += [2**127, 2**127 - 1, 16392 + 1, 32784 - 1]
    values = edges + [rng.getrandbits(rng.randint(1, 128)) for _ in range(3000)] + [WIDE - v for v in edges[1:12]]
    for value in values:
        signed = value - WIDE if opcode == "sitofp" and value >= WIDE // 2 else value
        got = _half(run(_Words(value & (2**64 - 1), value >> 64)).value)
        assert got == _nearest_half(signed), value


@pytest.mark.parametrize(("opcode", "signed"), [("fptosi", True), ("fptoui", False)])
def test_every_finite_half_becomes_its_integer(opcode: str, signed: bool) -> None:
    run = _jit(f"  %r = {opcode} half %x to i128", "half", "i128")
    for bits in range(0x7C00):
        for sign in (0, 0x8000) if signed else (0,):
            out = run(HALF(bits | sign))
            assert out.low | out.high << 64 == int(_half(bits | sign)) % WIDE

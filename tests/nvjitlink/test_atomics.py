"""Ordering and scope of every atomic operation, in the PTX of both routes and in what LLVM is left to expand."""

from __future__ import annotations

import re

import pytest

from rglink.arch import parse_arch
from rglink.diagnostics import InputError
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.nvjitlink.atomics import lower_atomics, widen_scopes
from rglink.nvjitlink.job import Route
from rglink.nvjitlink.local_atomics import make_local_atomics_plain

from .support import HEAD, ROUTES, jobs, ptx, run

ARCHES = ("75", "80", "90", "100", "120")


def kernel(*lines: str, parameters: str = "ptr %p") -> str:
    """A kernel with these instructions."""
    body = "\n  ".join(lines)
    return f"define ptx_kernel void @k({parameters}) {{\n  {body}\n  ret void\n}}\n"


def operations(text: str) -> list[str]:
    """Atomic instructions and fences of a PTX text in order, without operands."""
    return re.findall(r"^\s*(?:@%p\d+ )?((?:atom|red|fence|ld\.acquire|st\.release)[.\w:]*)", text, re.MULTILINE)


CASE_11 = kernel(
    "%v = atomicrmw add ptr %p, i32 1 seq_cst",
    '%w = atomicrmw add ptr %p, i32 1 syncscope("block") acq_rel',
    "%x = cmpxchg ptr %p, i32 1, i32 2 acq_rel monotonic",
    "%y = load atomic i32, ptr %p acquire, align 4",
    "store atomic i32 %y, ptr %p release, align 4",
    "fence seq_cst",
    '%z = atomicrmw add ptr %p, i8 1 syncscope("device") release',
)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("route", ROUTES)
def test_orderings_and_scopes_are_exact(route: Route, arch: str) -> None:
    found = [word.replace(".global", "") for word in operations(ptx(CASE_11, arch, route))]
    assert found[:2] == ["fence.sc.sys", "atom.acquire.sys.add.u32"]
    assert found[2:7] == [
        "atom.acq_rel.cta.add.u32",
        "atom.acq_rel.sys.cas.b32",
        "ld.acquire.sys.b32",
        "st.release.sys.b32",
        "fence.sc.sys",
    ]
    # 8 bits are a loop of 32-bit exchanges: releasing by itself or by a fence before it.
    fenced = r"fence\.(acq_rel|release)\.gpu atom\.relaxed\.gpu\.cas\.b32"
    assert re.fullmatch(rf"atom\.release\.gpu\.cas\.b32|{fenced}", " ".join(found[7:]))


_SEMANTICS = {"monotonic": "relaxed", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_SCOPES = {"": "sys", "device": "gpu", "block": "cta"}


@pytest.mark.parametrize("scope", _SCOPES)
def test_every_ordering_has_its_qualifier(scope: str) -> None:
    word = f'syncscope("{scope}") ' if scope else ""
    orders = [*_SEMANTICS, "seq_cst"]
    text = ptx(
        kernel(*(f"%v{i} = atomicrmw or ptr %p, i32 1 {word}{order}" for i, order in enumerate(orders))), "80", "llvm"
    )
    ptx_scope = _SCOPES[scope]
    assert operations(text) == [
        *(f"atom.{semantics}.{ptx_scope}.global.or.b32" for semantics in _SEMANTICS.values()),
        f"fence.sc.{ptx_scope}",
        f"atom.acquire.{ptx_scope}.global.or.b32",
    ]


@pytest.mark.parametrize(
    ("operation", "operand", "expected"),
    [
        ("add", "i32 %i", "add.u32"),
        ("add", "i64 %l", "add.u64"),
        ("sub", "i32 %i", "add.u32"),
        ("sub", "i64 %l", "add.u64"),
        ("and", "i64 %l", "and.b64"),
        ("or", "i32 %i", "or.b32"),
        ("xor", "i32 %i", "xor.b32"),
        ("xchg", "i32 %i", "exch.b32"),
        ("xchg", "ptr %p", "exch.b64"),
        ("xchg", "float %f", "exch.b32"),
        ("max", "i32 %i", "max.s32"),
        ("min", "i64 %l", "min.s64"),
        ("umax", "i64 %l", "max.u64"),
        ("umin", "i32 %i", "min.u32"),
        ("uinc_wrap", "i32 %i", "inc.u32"),
        ("udec_wrap", "i32 %i", "dec.u32"),
        ("fadd", "float %f", "add.f32"),
        ("fadd", "double %d", "add.f64"),
        ("fadd", "half %h", "add.noftz.f16"),
    ],
)
def test_single_instructions_assemble_everywhere(operation: str, operand: str, expected: str) -> None:
    type_ = operand.split()[0]
    parameters = "ptr %p, i32 %i, i64 %l, float %f, double %d, half %h"
    ir = kernel(
        f"%r = atomicrmw {operation} ptr %p, {operand} acq_rel", f"store {type_} %r, ptr %p", parameters=parameters
    )
    for result in run(jobs(ir, "sm_75,sm_120", "llvm")):
        assert result.ptx is not None
        assert operations(result.ptx.decode()) == [f"atom.acq_rel.sys.global.{expected}"]


@pytest.mark.parametrize(
    ("operation", "operand"),
    [
        ("nand", "i32 1"),
        ("add", "i8 1"),
        ("xchg", "i16 1"),
        ("fmin", "float 1.0"),
        ("fsub", "float 1.0"),
        ("udec_wrap", "i64 5"),
        ("usub_cond", "i32 5"),
        ("fadd", "bfloat 1.0"),
    ],
)
def test_what_llvm_expands_keeps_ordering_and_scope(operation: str, operand: str) -> None:
    ir = kernel(f'%r = atomicrmw {operation} ptr %p, {operand} syncscope("block") acq_rel')
    text = ptx(ir, "75", "llvm")
    (found,) = operations(text)
    assert re.fullmatch(r"atom\.acq_rel\.cta\.global\.cas\.b(16|32|64)", found)


def test_bfloat_is_one_instruction_from_sm_90_on() -> None:
    ir = kernel("%r = atomicrmw fadd ptr %p, bfloat 1.0 release")
    assert operations(ptx(ir, "90", "llvm")) == ["atom.release.sys.global.add.noftz.bf16"]


def test_the_address_space_is_found_through_the_pointers_history() -> None:
    ir = "@C = global [4 x i32] zeroinitializer\n@S = internal addrspace(3) global [4 x i32] undef\n" + kernel(
        "%q = getelementptr i32, ptr %p, i64 3",
        "%1 = atomicrmw add ptr %q, i32 1 monotonic",
        "%2 = atomicrmw sub ptr getelementptr inbounds (i8, ptr @C, i64 4), i32 1 monotonic",
        "%3 = atomicrmw and ptr addrspacecast (ptr addrspace(3) @S to ptr), i32 1 monotonic",
        "%4 = atomicrmw or ptr addrspace(3) @S, i32 1 monotonic",
        "%5 = select i1 %c, ptr %q, ptr @C",
        "%6 = atomicrmw xor ptr %5, i32 1 monotonic",
        "%7 = select i1 %c, ptr %q, ptr addrspacecast (ptr addrspace(3) @S to ptr)",
        "%8 = atomicrmw max ptr %7, i32 1 monotonic",
        parameters="ptr %p, i1 %c",
    )
    assert operations(ptx(ir, "75", "llvm")) == [
        "atom.relaxed.sys.global.add.u32",
        "atom.relaxed.sys.global.add.u32",
        "atom.relaxed.sys.shared.and.b32",
        "atom.relaxed.sys.shared.or.b32",
        "atom.relaxed.sys.global.xor.b32",
        "atom.relaxed.sys.max.s32",
    ]


LOCAL_OPERATIONS = (
    "atomicrmw add ptr %a, i32 %n seq_cst",
    "atomicrmw sub ptr %a, i32 %n acq_rel, align 4",
    "atomicrmw and ptr %a, i32 %n acquire",
    "atomicrmw nand ptr %a, i32 %n release",
    'atomicrmw xor ptr %a, i32 %n syncscope("block") acq_rel',
    "atomicrmw xchg ptr %a, i32 %n monotonic",
    "atomicrmw max ptr %a, i32 %n monotonic",
    "atomicrmw umin ptr %b, i32 %n monotonic",
    "atomicrmw uinc_wrap ptr %a, i32 %n monotonic",
    "atomicrmw fadd ptr %a, float %f monotonic",
    "atomicrmw add ptr %c, i8 1 monotonic",
    "cmpxchg ptr %a, i32 %n, i32 7 acq_rel monotonic, align 4",
    'cmpxchg weak ptr %b, i32 %n, i32 7 syncscope("device") seq_cst seq_cst',
    "load atomic i32, ptr %a acquire, align 4",
    'load atomic volatile i32, ptr %b syncscope("device") monotonic, align 4',
)


@pytest.mark.parametrize("operation", LOCAL_OPERATIONS)
@pytest.mark.parametrize("route", ROUTES)
def test_local_memory_needs_no_atom(route: Route, operation: str) -> None:
    ir = kernel(
        "%a = alloca i32",
        "%c = getelementptr i8, ptr %a, i64 1",
        "store volatile i32 %n, ptr %a",
        f"%r = {operation}",
        "%x = load i32, ptr %a",
        "%y = load i32, ptr %b",
        "%z = add i32 %x, %y",
        "store i32 %z, ptr %p",
        parameters="ptr %p, i32 %n, float %f, ptr byval(i32) %b",
    )
    for result in run(jobs(ir, "compute_75,sm_90", route)):
        text = result.image.decode() if result.target.kind == "ptx" else (result.ptx or b"").decode()
        assert operations(text) == []


def test_a_local_store_and_the_exchange_keep_their_meaning() -> None:
    """LLVM folds what is left: nothing but ordinary values."""
    ir = (
        HEAD + "define i32 @f() {\n  %a = alloca i32\n  store atomic i32 5, ptr %a release, align 4\n"
        "  %1 = cmpxchg ptr %a, i32 5, i32 7 acq_rel monotonic, align 4\n"
        "  %2 = cmpxchg ptr %a, i32 5, i32 9 acq_rel monotonic, align 4\n"
        "  %3 = atomicrmw nand ptr %a, i32 3 acq_rel\n  %4 = atomicrmw uinc_wrap ptr %a, i32 -5 acq_rel\n"
        "  %5 = atomicrmw umax ptr %a, i32 16 acq_rel\n"
        "  %6 = load atomic i32, ptr %a acquire, align 4\n"
        "  %7 = extractvalue { i32, i1 } %1, 1\n  %8 = extractvalue { i32, i1 } %2, 1\n"
        "  %9 = zext i1 %7 to i32\n  %10 = zext i1 %8 to i32\n  %11 = mul i32 %9, 1000\n  %12 = mul i32 %10, 2000\n"
        "  %13 = add i32 %6, %11\n  %14 = add i32 %13, %12\n  %15 = mul i32 %3, 100000\n  %16 = add i32 %14, %15\n"
        "  ret i32 %16\n}\n"
    )
    module = Module.parse_text(ir, "test.ll")
    text = ModuleText.parse(module.text())
    assert make_local_atomics_plain(text) == 7
    module.replace(text.render())
    module.verify()
    module.optimize(3)
    # 7 is exchanged once (1000), read before nand (700000); nand makes -4, which is above -5 and wraps to 0; then 16.
    assert "ret i32 701016" in module.text()


def test_cluster_scope_is_widened_where_there_are_no_clusters() -> None:
    ir = kernel('%1 = atomicrmw add ptr %p, i32 1 syncscope("cluster") acquire', 'fence syncscope("cluster") acq_rel')
    for route in ROUTES:
        assert operations(ptx(ir, "80", route))[-1] == "fence.acq_rel.gpu"
        assert operations(ptx(ir, "90", route))[-1] == "fence.acq_rel.cluster"


def _lowered(ir: str, arch: str = "sm_75") -> tuple[int, ModuleText]:
    module = Module.parse_text(HEAD + ir, "test.ll")
    text = ModuleText.parse(module.text())
    widen_scopes(text, parse_arch(arch))
    count = lower_atomics(text, parse_arch(arch))
    module.replace(text.render())
    module.verify()
    return count, ModuleText.parse(module.text())


def test_the_lines_that_were_changed_are_counted() -> None:
    count, text = _lowered(CASE_11)
    assert count == 2
    assert sum("atomicrmw" in line for item in text.of_kind("define") for line in item.body) == 1


def test_an_unknown_scope_is_refused() -> None:
    with pytest.raises(InputError, match='unknown syncscope "agent", wanted "device", "cluster", "block"'):
        _lowered(kernel('%1 = atomicrmw add ptr %p, i32 1 syncscope("agent") acquire'))


def test_debug_locations_stay() -> None:
    ir = (
        "define ptx_kernel void @k(ptr %p) !dbg !4 {\n  %1 = atomicrmw sub ptr %p, i32 1 seq_cst, align 4, !dbg !5\n"
        "  ret void, !dbg !5\n}\n"
        "!llvm.dbg.cu = !{!0}\n!llvm.module.flags = !{!3}\n"
        "!0 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1, emissionKind: DebugDirectivesOnly)\n"
        '!1 = !DIFile(filename: "a.rs", directory: ".")\n!2 = !DISubroutineType(types: !{null})\n'
        '!3 = !{i32 2, !"Debug Info Version", i32 3}\n'
        '!4 = distinct !DISubprogram(name: "k", file: !1, line: 1, type: !2, unit: !0, spFlags: DISPFlagDefinition)\n'
        "!5 = !DILocation(line: 7, column: 3, scope: !4)\n"
    )
    _, text = _lowered(ir)
    (body,) = [item.body for item in text.of_kind("define")]
    assert all(line.endswith("!dbg !5") or "!dbg" in line for line in body if "fence" in line or "asm" in line)
    assert re.search(r"\.loc\s+1 7 3", ptx(ir, "75", "llvm", "lineinfo"))

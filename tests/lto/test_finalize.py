"""The last edits together: what comes out is ready for both code generators, and the rest is refused by name."""

from __future__ import annotations

import pytest

from rglink.diagnostics import Diagnostics, LinkFailed
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.finalize import DebugLevel, Final, finalize_program
from tests.lto.ptx import assemble
from tests.lto.test_debuginfo import PROGRAM as WITH_DEBUG

HEAD = 'target triple = "nvptx64-nvidia-cuda"\n'
PROGRAM = HEAD + """
$shared = comdat any
@shared = linkonce_odr dso_local constant i32 7, comdat
@anon.1.0 = private unnamed_addr constant [7 x i8] c"comdat\\00"
@COUNTER = dso_local global i32 0
@TABLE = addrspace(4) externally_initialized global [4 x i32] undef
@TILE = internal addrspace(3) global [32 x i32] undef
@unused = global i32 0
@llvm.used = appending global [2 x ptr] [ptr @unused, ptr @helper], section "llvm.metadata"
@llvm.compiler.used = appending global [1 x ptr] [ptr @COUNTER], section "llvm.metadata"
declare void @llvm.nvvm.barrier.cta.sync.all(i32)
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define internal i32 @helper(i32 %x) noinline {
  %y = load i32, ptr @shared
  %z = add i32 %x, %y
  ret i32 %z
}
define dso_local ptx_kernel void @b(ptr %p) "nvvm.maxntid"="128,1,1" {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %q = getelementptr i32, ptr addrspace(3) @TILE, i32 %t
  store i32 %t, ptr addrspace(3) %q
  call void @llvm.nvvm.barrier.cta.sync.all(i32 0)
  %x = load i32, ptr addrspace(3) @TILE
  %y = call i32 @helper(i32 %x)
  %n = getelementptr i8, ptr @anon.1.0, i32 %t
  %z = load i8, ptr %n
  store i8 %z, ptr @COUNTER
  store i32 %y, ptr %p
  ret void
}
define ptx_kernel void @a() {
  ret void
}
!llvm.ident = !{!0, !1, !0}
!llvm.module.flags = !{!2, !3}
!0 = !{!"rustc version 1.96.0"}
!1 = !{!"clang version 22"}
!2 = !{i32 8, !"PIC Level", i32 2}
!3 = !{i32 4, !"nvvm-reflect-ftz", i32 0}
"""  # fmt: skip


def finalized(
    ir: str, kernels: list[str], variables: list[str], debug: DebugLevel = "none"
) -> tuple[Module, Final, list[str]]:
    module, diags = Module.parse_text(ir, "test"), Diagnostics()
    final = finalize_program(module, kernels, variables, debug, diags)
    return module, final, [item.render() for item in diags.items]


def refused(code: str) -> list[str]:
    diags = Diagnostics()
    with pytest.raises(LinkFailed):
        finalize_program(Module.parse_text(HEAD + code, "test"), ["k"], [], "none", diags)
    return [item.render() for item in diags.items]


def test_the_whole() -> None:
    module, final, said = finalized(PROGRAM, ["b", "a"], ["TABLE", "COUNTER"])
    assert said == []
    assert [(d.function, d.aligned) for d in final.barriers] == [("b", True)]
    assert list(final.names) == ["anon.1.0"]
    text = module.text()
    (used,) = (line for line in text.splitlines() if line.startswith("@llvm."))
    assert used == (
        "@llvm.used = appending global [4 x ptr] [ptr @COUNTER, "
        "ptr addrspacecast (ptr addrspace(4) @TABLE to ptr), ptr @a, ptr @b], "
        'section "llvm.metadata"'
    )
    for gone in ("dso_local", "$shared", "PIC Level", "compiler.used"):
        assert gone not in text
    assert '"nvvm.maxntid"="128,1,1"' in text
    assert 'c"comdat\\00"' in text
    assert text.count("rustc version") == text.count("clang version") == 0
    assert text.count("rglink version") == 1
    assert "nvvm-reflect-ftz" in text
    ptx = assemble(text, "sm_75")
    assert ".maxntid 128" in ptx
    assert "bar.sync" in ptx


def test_twice_is_the_same_as_once() -> None:
    module, _, _ = finalized(PROGRAM, ["a", "b"], ["COUNTER", "TABLE"])
    again, final, _ = finalized(module.text(), ["b", "a"], ["TABLE", "COUNTER"])
    assert again.text() == module.text()
    assert final.names == {}


@pytest.mark.parametrize(("debug", "lines"), [("none", False), ("lineinfo", True)])
def test_debug_level(debug: DebugLevel, lines: bool) -> None:
    module, _, _ = finalized(WITH_DEBUG, ["k"], ["COUNT"], debug)
    ptx = assemble(module.text(), "sm_80")
    assert (".loc" in ptx) == lines
    assert ", debug" not in ptx


def test_full_debug_info_stays_when_asked_for() -> None:
    module, _, _ = finalized(WITH_DEBUG, ["k"], ["COUNT"], "full")
    assert "emissionKind: FullDebug" in module.text()
    assert "#dbg_value" in module.text()


KERNEL = "define ptx_kernel void @k() {\n  ret void\n}\n"
REFUSED = {
    "thread-local": (
        "@T = thread_local global i32 0\n" + KERNEL,
        "T: thread-local variables do not exist on a GPU [thread-local]\n>>> help: use a local variable or an array",
    ),
    "constructor": (
        "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] "
        "[{ i32, ptr, ptr } { i32 1, ptr @start, ptr null }]\n"
        "define internal void @start() {\n  ret void\n}\n" + KERNEL,
        "llvm.global_ctors: no code runs before or after a kernel on a GPU [constructors]\n>>> in start",
    ),
    "module asm": (
        'module asm ".global .u32 x;"\n' + KERNEL,
        'assembly at module level cannot be linked into device code: module asm ".global .u32 x;" [module-asm]',
    ),
    "exceptions": (
        """declare i32 @personality(...)
define internal void @g() personality ptr @personality {
  invoke void @k() to label %ok unwind label %bad
ok:
  ret void
bad:
  %e = landingpad { ptr, i32 } cleanup
  resume { ptr, i32 } %e
}
define void @k() {
  ret void
}
""",
        "exceptions do not exist on a GPU: invoke, landingpad, resume [exceptions]\n>>> in g\n"
        ">>> help: compile with -Cpanic=abort (Rust) or -fno-exceptions (C++)",
    ),
    "initialised shared": (
        "@S = addrspace(3) global i32 0\n" + KERNEL,
        "S: shared memory cannot be initialised: it has no content before a block writes it [initialised-shared]",
    ),
    "late remainder": (
        "define ptx_kernel void @k(ptr %p, float %x) {\n"
        "  %r = frem float %x, 3.0\n  store float %r, ptr %p\n  ret void\n}\n",
        "undefined symbol: fmodf, which an operation of the program needs [undefined-symbol]",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("code", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_gpu_cannot_do_is_refused(code: str, message: str) -> None:
    assert refused(code) == [f"rglink: error: {message}"]


def test_an_empty_list_of_constructors_is_no_error() -> None:
    _, _, said = finalized(
        f"{HEAD}@llvm.global_ctors = appending global [0 x {{ i32, ptr, ptr }}] zeroinitializer\n{KERNEL}", ["k"], []
    )
    assert said == []


def test_order_of_globals_does_not_matter_to_what_is_used() -> None:
    first, _, _ = finalized(f"{HEAD}@X = global i32 1\n@Y = global i32 2\n{KERNEL}", ["k"], ["Y", "X"])
    second, _, _ = finalized(f"{HEAD}@Y = global i32 2\n@X = global i32 1\n{KERNEL}", ["k"], ["X", "Y"])
    assert _used(first) == _used(second)


def _used(module: Module) -> str:
    return ModuleText.parse(module.text()).named()["llvm.used"].head

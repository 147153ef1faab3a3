"""Step 3: what a kernel reaches through its parameters is global memory."""

from __future__ import annotations

import re

import pytest

from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.kernel_params import GlobalizeCounts, globalize_kernel_pointers

HEAD = 'target triple = "nvptx64-nvidia-cuda"\n'


def globalized(text: str) -> tuple[Module, GlobalizeCounts]:
    module = Module.parse_text(HEAD + text, "test")
    parsed = ModuleText.parse(module.text())
    counts = globalize_kernel_pointers(parsed)
    module.replace(parsed.render())
    module.verify()
    return module, counts


def accesses(module: Module) -> list[str]:
    """Pointer operands of all accesses, in order."""
    pattern = re.compile(r"(?:load|store|atomicrmw|cmpxchg) .*?(ptr(?: addrspace\(\d+\))?) %\S+?(?:,| )")
    return [match[1] for line in module.text().splitlines() if (match := pattern.search(line))]


def test_parameters_and_what_is_derived_from_them() -> None:
    module, counts = globalized(
        """
define ptx_kernel void @k(ptr noundef %x, ptr %y, i64 %i, i1 %c) {
  %a = getelementptr float, ptr %x, i64 %i
  %b = select i1 %c, ptr %a, ptr %y
  %v = load float, ptr %b, !noundef !0
  br i1 %c, label %loop, label %done
loop:
  %walk = phi ptr [ null, %0 ], [ %next, %loop ]
  %safe = phi ptr [ %x, %0 ], [ %next, %loop ]
  %next = getelementptr i8, ptr %safe, i64 4
  store float %v, ptr %walk
  %old = atomicrmw add ptr %safe, i32 1 syncscope("block") acq_rel
  %end = icmp eq ptr %next, %y
  br i1 %end, label %done, label %loop
done:
  ret void
}
!0 = !{}
"""
    )
    assert counts == GlobalizeCounts(kernels=1, roots=2, seen=3, changed=3)
    assert accesses(module) == ["ptr addrspace(1)"] * 3
    assert "!noundef" in module.text()
    assert "icmp eq ptr %next, %y" in module.text()


def test_what_may_be_elsewhere_stays_generic() -> None:
    module, counts = globalized(
        """
declare ptr @opaque(ptr)
define ptx_kernel void @k(ptr %x, ptr byval([16 x i8]) align 8 %by_value, i64 %word, i1 %c) {
  %local = alloca i32
  %mixed = select i1 %c, ptr %x, ptr %local
  store i32 1, ptr %mixed
  store i32 2, ptr %by_value
  %inner = load ptr, ptr %x
  store i32 3, ptr %inner
  %returned = call ptr @opaque(ptr %x)
  store i32 4, ptr %returned
  %made = inttoptr i64 %word to ptr
  store i32 5, ptr %made
  store i32 6, ptr null
  ret void
}
define void @device(ptr %x) {
  store i32 7, ptr %x
  ret void
}
"""
    )
    assert counts == GlobalizeCounts(kernels=1, roots=1, seen=1, changed=1)
    assert [pointer for pointer in accesses(module) if pointer != "ptr"] == ["ptr addrspace(1)"]
    assert "load ptr, ptr addrspace(1)" in module.text()


@pytest.mark.parametrize(
    ("parameter", "extracts"),
    [
        ("[2 x i64]", ["extractvalue [2 x i64] %s, 0"]),
        ("{ i64, i32 }", ["extractvalue { i64, i32 } %s, 0"]),
        ("{ i32, [2 x i64] }", ["extractvalue { i32, [2 x i64] } %s, 1", "extractvalue [2 x i64] %w0, 1"]),
    ],
)
def test_words_of_aggregates_that_become_pointers(parameter: str, extracts: list[str]) -> None:
    lines = "\n".join(f"  %w{index} = {code}" for index, code in enumerate(extracts))
    module, counts = globalized(
        f"""
define ptx_kernel void @k({parameter} %s) {{
{lines}
  %p = inttoptr i64 %w{len(extracts) - 1} to ptr
  store i32 1, ptr %p
  ret void
}}
"""
    )
    assert (counts.roots, counts.changed) == (1, 1)
    assert accesses(module) == ["ptr addrspace(1)"]


def test_pointers_taken_out_of_aggregates() -> None:
    module, counts = globalized(
        """
define ptx_kernel void @k({ ptr, i64 } %s, [2 x ptr] %a) {
  %p = extractvalue { ptr, i64 } %s, 0
  %n = extractvalue { ptr, i64 } %s, 1
  %q = extractvalue [2 x ptr] %a, 1
  store i64 %n, ptr %p
  store i64 %n, ptr %q
  ret void
}
"""
    )
    assert (counts.roots, counts.changed) == (2, 2)
    assert accesses(module) == ["ptr addrspace(1)"] * 2


def test_new_names_do_not_meet_old_ones() -> None:
    _, counts = globalized(
        """
define ptx_kernel void @k(ptr %rg0.c0) {
  %1 = load i32, ptr %rg0.c0
  %"rg1.c0" = add i32 %1, 1
  %2 = getelementptr i8, ptr %rg0.c0, i64 4
  store i32 %"rg1.c0", ptr %2
  ret void
}
"""
    )
    assert counts.changed == 2


def test_it_survives_optimization_and_a_second_run_changes_nothing() -> None:
    module, _ = globalized(
        """
define ptx_kernel void @sum([2 x i64] %s, ptr %out) {
  %base = extractvalue [2 x i64] %s, 0
  %count = extractvalue [2 x i64] %s, 1
  %first = inttoptr i64 %base to ptr
  %end = getelementptr float, ptr %first, i64 %count
  br label %head
head:
  %at = phi ptr [ %first, %0 ], [ %next, %body ]
  %total = phi float [ 0.0, %0 ], [ %more, %body ]
  %stop = icmp eq ptr %at, %end
  br i1 %stop, label %done, label %body
body:
  %v = load float, ptr %at
  %more = fadd float %total, %v
  %next = getelementptr float, ptr %at, i64 1
  br label %head
done:
  store float %total, ptr %out
  ret void
}
"""
    )
    module.optimize(3)
    text = ModuleText.parse(module.text())
    assert globalize_kernel_pointers(text).changed == 0
    assert "ptr addrspace(1)" in module.text()
    ptx = module.emit_ptx("sm_80", "", 3)
    assert re.findall(r"\b(?:ld|st)\.(?!param)\w+", ptx).count("ld.global") >= 1
    assert not re.search(r"\b(?:ld|st)\.(?!param|global)\S+", ptx)


def test_a_phi_of_itself_and_null_is_no_root() -> None:
    _, counts = globalized(
        """
define ptx_kernel void @k(ptr %x, i1 %c) {
  br label %loop
loop:
  %p = phi ptr [ null, %0 ], [ %p, %loop ]
  store i32 1, ptr %p
  br i1 %c, label %loop, label %done
done:
  ret void
}
"""
    )
    assert counts == GlobalizeCounts(kernels=1, roots=1)

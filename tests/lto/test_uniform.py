"""Which barriers are proven uniform, and why others are not."""

from __future__ import annotations

import pytest

from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.uniform import Site, analyse_barriers

DECLARATIONS = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
declare void @llvm.nvvm.barrier.cta.sync.all(i32)
declare void @llvm.nvvm.barrier.cta.sync.count(i32, i32)
declare i32 @llvm.nvvm.barrier.cta.red.popc.all(i32, i1)
declare void @llvm.nvvm.exit()
declare void @llvm.trap()
@FLAG = internal addrspace(3) global i32 undef
@LIMIT = internal addrspace(4) externally_initialized global i32 undef
"""
TID = "%t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
SYNC = "call void @llvm.nvvm.barrier.cta.sync.all(i32 0)\n"


def sites(code: str) -> list[Site]:
    module = Module.parse_text(f'target triple = "nvptx64-nvidia-cuda"\n{DECLARATIONS}{code}', "test")
    module.verify()
    return analyse_barriers(ModuleText.parse(module.text()), [])


def kernel(body: str) -> list[Site]:
    return sites(f"define ptx_kernel void @k(ptr %p, i32 %n) {{\n{body}\n}}\n")


UNIFORM = {
    "tree reduction": f"""entry:
  {TID}%b = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  br label %head
head:
  %s0 = phi i32 [ %b, %entry ], [ %s, %join ]
  %more = icmp ugt i32 %s0, 1
  br i1 %more, label %body, label %done
body:
  %s = lshr i32 %s0, 1
  %c = icmp ult i32 %t, %s
  br i1 %c, label %add, label %join
add:
  store i32 1, ptr %p
  br label %join
join:
  {SYNC}br label %head
done:
  ret void""",
    "trips that all blocks count": f"""entry:
  {TID}%b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %g = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  br label %head
head:
  %i = phi i32 [ %b, %entry ], [ %j, %body ]
  %c = icmp ult i32 %i, %n
  br i1 %c, label %body, label %done
body:
  %x = add i32 %i, %t
  {SYNC}%j = add i32 %i, %g
  br label %head
done:
  ret void""",
    "after a branch of one thread": f"""  {TID}%c = icmp eq i32 %t, 0
  br i1 %c, label %one, label %all
one:
  store i32 1, ptr %p
  br label %all
all:
  {SYNC}ret void""",
    "after a branch on a shared flag": f"""  %f = load i32, ptr addrspace(3) @FLAG
  %c = icmp eq i32 %f, 0
  br i1 %c, label %one, label %all
one:
  store i32 1, ptr %p
  br label %all
all:
  {SYNC}ret void""",
    "a bounds check that traps": f"""  {TID}%c = icmp ult i32 %t, %n
  br i1 %c, label %all, label %panic
all:
  {SYNC}ret void
panic:
  call void @llvm.trap()
  unreachable""",
    "a bounds check that spins for ever": f"""  {TID}%c = icmp ult i32 %t, %n
  br i1 %c, label %all, label %panic
all:
  {SYNC}ret void
panic:
  br label %panic""",
    "a loop to a limit in constant memory": f"""entry:
  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %j, %head ]
  {SYNC}%l = load i32, ptr addrspace(4) @LIMIT
  %j = add i32 %i, 1
  %c = icmp ult i32 %j, %l
  br i1 %c, label %head, label %done
done:
  ret void""",
    "an early return of whole blocks": f"""  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %c = icmp uge i32 %b, %n
  br i1 %c, label %done, label %all
all:
  {SYNC}br label %done
done:
  ret void""",
    "a loop that a vote of the block ends": f"""entry:
  {TID}br label %head
head:
  %x = load i32, ptr %p
  %w = icmp eq i32 %x, %t
  %r = call i32 @llvm.nvvm.barrier.cta.red.popc.all(i32 0, i1 %w)
  %c = icmp eq i32 %r, 0
  br i1 %c, label %done, label %head
done:
  {SYNC}ret void""",
}  # fmt: skip


@pytest.mark.parametrize("body", UNIFORM.values(), ids=UNIFORM.keys())
def test_uniform(body: str) -> None:
    found = kernel(body)
    assert found
    assert all(site.uniform and site.reason == "all threads of the block arrive together" for site in found)


BRANCH = "the branch that ends block %{} may part the threads"
DIVERGENT = {
    "after an early return of some threads": (
        f"""  {TID}%c = icmp uge i32 %t, %n
  br i1 %c, label %done, label %all
all:
  {SYNC}br label %done
done:
  ret void""",
        BRANCH.format("0"),
    ),
    "under a branch on the thread": (
        f"""  {TID}%c = icmp ult i32 %t, %n
  br i1 %c, label %some, label %all
some:
  {SYNC}br label %all
all:
  ret void""",
        BRANCH.format("0"),
    ),
    "in a loop that data ends": (
        f"""entry:
  br label %head
head:
  %x = load i32, ptr %p
  {SYNC}%c = icmp eq i32 %x, 0
  br i1 %c, label %done, label %head
done:
  ret void""",
        BRANCH.format("head"),
    ),
    "under a value that such a loop leaves": (
        f"""entry:
  {TID}br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %j, %head ]
  %j = add i32 %i, 1
  %c = icmp ult i32 %j, %t
  br i1 %c, label %head, label %after
after:
  %d = icmp eq i32 %j, 3
  br i1 %d, label %some, label %done
some:
  {SYNC}br label %done
done:
  ret void""",
        BRANCH.format("after"),
    ),
    "under a phi that tells which way a thread came": (
        f"""entry:
  {TID}%c = icmp eq i32 %t, 0
  br i1 %c, label %one, label %join
one:
  br label %join
join:
  %f = phi i1 [ true, %one ], [ false, %entry ]
  br i1 %f, label %some, label %done
some:
  {SYNC}br label %done
done:
  ret void""",
        BRANCH.format("join"),
    ),
    "a number that differs between threads": (
        f"  {TID}%h = lshr i32 %t, 6\n  call void @llvm.nvvm.barrier.cta.sync.count(i32 %h, i32 64)\n  ret void",
        "the barrier's number or count may differ between threads",
    ),
    "after a thread may have left": (
        f"""  {TID}%c = icmp eq i32 %t, 0
  br i1 %c, label %one, label %all
one:
  call void @llvm.nvvm.exit()
  unreachable
all:
  {SYNC}ret void""",
        "a thread may end itself by `exit`",
    ),
    "after asm that may end a thread": (
        f"""  {TID}%c = icmp eq i32 %t, 0
  br i1 %c, label %one, label %all
one:
  call void asm sideeffect "{{\\0Aexit;}}", ""()
  br label %all
all:
  {SYNC}ret void""",
        "a thread may end itself by `exit`",
    ),
    "under a value that may be anything": (
        f"""  %c = freeze i1 poison
  br i1 %c, label %some, label %done
some:
  {SYNC}br label %done
done:
  ret void""",
        BRANCH.format("0"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "reason"), DIVERGENT.values(), ids=DIVERGENT.keys())
def test_divergent(body: str, reason: str) -> None:
    (site,) = kernel(body)
    assert (site.uniform, site.reason) == (False, reason)


def test_a_vote_proves_nothing_where_another_barrier_may_meet_it() -> None:
    found = kernel(f"""entry:
  {TID}%d = icmp ult i32 %t, %n
  br i1 %d, label %some, label %join
some:
  {SYNC}br label %join
join:
  %r = call i32 @llvm.nvvm.barrier.cta.red.popc.all(i32 0, i1 %d)
  %c = icmp eq i32 %r, 0
  br i1 %c, label %done, label %more
more:
  {SYNC}br label %done
done:
  ret void""")
    assert [site.uniform for site in found] == [False, True, False]


HELPER = f"""define internal void @f(i32 %x) noinline {{
  %c = icmp eq i32 %x, 0
  br i1 %c, label %done, label %all
all:
  {SYNC}br label %done
done:
  ret void
}}
"""


def _called(body: str) -> str:
    return f"define ptx_kernel void @k(ptr %p, i32 %n) {{\n{body}\n}}\n"


def test_a_local_function_is_as_uniform_as_its_calls() -> None:
    (site,) = sites(HELPER + _called("  call void @f(i32 %n)\n  call void @f(i32 3)\n  ret void"))
    assert site.uniform


def test_an_argument_that_differs_makes_the_branch_divergent() -> None:
    (site,) = sites(HELPER + _called(f"  {TID}call void @f(i32 %n)\n  call void @f(i32 %t)\n  ret void"))
    assert site.reason == BRANCH.format("0")


def test_a_call_under_a_divergent_branch_spoils_the_callee() -> None:
    code = f"""  {TID}%c = icmp eq i32 %t, 0
  br i1 %c, label %one, label %done
one:
  call void @f(i32 %n)
  br label %done
done:
  call void @f(i32 %n)
  ret void"""
    (site,) = sites(HELPER + _called(code))
    assert site.reason == "k calls the function where threads may part"


def test_recursion_keeps_what_its_calls_keep() -> None:
    recursive = HELPER.replace(SYNC, SYNC + "  %y = sub i32 %x, 1\n  call void @f(i32 %y)\n")
    assert all(site.uniform for site in sites(recursive + _called("  call void @f(i32 %n)\n  ret void")))
    assert not any(site.uniform for site in sites(recursive + _called(f"  {TID}call void @f(i32 %t)\n  ret void")))


STORED = "define ptx_kernel void @g(ptr %q) {\n  store ptr @f, ptr %q\n  ret void\n}\n"


@pytest.mark.parametrize(
    ("helper", "extra", "reason"),
    [
        (HELPER.replace("internal ", ""), "", "code outside this program may call the function"),
        (HELPER, "@table = internal global [1 x ptr] [ptr @f]\n", "the function's address is taken"),
        (HELPER, STORED, "the function's address is taken"),
    ],
    ids=["external", "in a table", "stored"],
)  # fmt: skip
def test_a_function_that_others_may_call_is_not_proven(helper: str, extra: str, reason: str) -> None:
    (site,) = sites(helper + extra + _called("  call void @f(i32 %n)\n  ret void"))
    assert (site.uniform, site.reason) == (False, reason)

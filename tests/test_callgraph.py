"""Mentions, calls and rings in printed modules."""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter

from hypothesis import given
from hypothesis import strategies as st

from rglink.callgraph import CallGraph, strongly_connected
from rglink.ir import TRIPLE, Module
from rglink.irtext import ModuleText


def graph(text: str) -> CallGraph:
    module = Module.parse_text(f'target triple = "{TRIPLE}"\n{text}', "test")
    return CallGraph.of(ModuleText.parse(module.text()))


def test_mentions_and_calls() -> None:
    found = graph("""
        @table = constant [1 x ptr] [ptr @slot]
        declare void @llvm.trap()
        declare void @out(ptr)
        define void @slot() { ret void }
        define void @f(ptr %p) {
          call void @out(ptr @table)
          call void %p()
          call void @llvm.trap()
          ret void
        }
        @g = alias void (ptr), ptr @f
        define ptx_kernel void @k() { call void @g(ptr @slot) ret void }
    """)
    assert found.refs == {"table": ("slot",), "slot": (), "f": ("out", "table"), "g": ("f",), "k": ("g", "slot")}
    assert found.calls == {"slot": (), "f": ("out",), "k": ("g",)}
    assert found.chain(["k"], "table") == ["k", "g", "f", "table"]
    assert found.chain(["k"], "slot") == ["k", "slot"]
    assert found.chain(["slot"], "f") == []
    assert found.cycles() == ()


def test_only_direct_calls_count() -> None:
    found = graph("""
        declare i32 @"quoted name"(ptr)
        declare void @plain(ptr)
        @data = global i8 0
        define void @f(ptr %p) {
          %a = tail call noundef range(i32 0, 5) i32 @"quoted name"(ptr @plain)
          call void @plain(ptr getelementptr (i8, ptr @data, i64 1))
          call void %p(ptr @data)
          call void asm sideeffect "// @nobody", "l"(ptr @f)
          %b = icmp eq ptr @f, %p
          ret void
        }
        define void @call(ptr %p) {
          store ptr @call, ptr %p
          call void %p()
          ret void
        }
    """)
    assert found.calls == {"f": ("plain", "quoted name"), "call": ()}
    assert found.refs["f"] == ("data", "plain", "quoted name")


def test_a_long_chain_needs_no_stack() -> None:
    length = sys.getrecursionlimit() * 3
    ring = {f"f{n}": (f"f{(n + 1) % length}",) for n in range(length)}
    assert CallGraph(ring, ring).cycles() == (tuple(sorted(ring)),)


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefgh"), max_size=4)))
def test_components_are_exactly_the_mutually_reachable(successors: dict[str, list[str]]) -> None:
    whole = CallGraph({name: tuple(sorted(set(to))) for name, to in successors.items()}, {})
    components = strongly_connected(whole.refs)
    assert sorted(name for part in components for name in part) == sorted(successors)
    of = {name: index for index, part in enumerate(components) for name in part}
    for one in successors:
        for other in successors:
            mutual = other in whole.reached([one]) and one in whole.reached([other])
            assert (of[one] == of[other]) == mutual
    # Callees first: the order is a topological one of the components.
    edges = {(of[a], of[b]) for a in successors for b in whole.refs[a] if b in of and of[a] != of[b]}
    assert all(callee < caller for caller, callee in edges)
    sorter = TopologicalSorter({index: {b for a, b in edges if a == index} for index in range(len(components))})
    try:
        sorter.prepare()
    except CycleError:
        raise AssertionError("components form a ring") from None

"""CallGraph: who mentions whom in a module, read from its printed text.

Two relations: `refs`, every global that a definition mentions, which is what keeps things alive, and `calls`, the
direct calls alone, which is what recursion is made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rglink.irinst import instructions, read_call
from rglink.irtext import Item, ModuleText, global_names

_NOT_CODE = ("llvm.",)
_PLAIN_GLOBAL = re.compile(r"@([-a-zA-Z$._0-9]+)")
_CALL = re.compile(r"\s*(?:%\S+ = )?(?:tail |musttail |notail )?(?:call|invoke|callbr) ")


@dataclass(frozen=True)
class CallGraph:
    """Sorted names of the globals that each definition mentions (`refs`) and calls directly (`calls`).

    Declared names occur as targets only; LLVM's intrinsics not at all.
    """

    refs: Mapping[str, tuple[str, ...]]
    calls: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, text: ModuleText) -> CallGraph:
        """The graph of a printed module."""
        refs: dict[str, tuple[str, ...]] = {}
        for item in text.of_kind("variable", "alias", "define"):
            if not item.name.startswith(_NOT_CODE):
                refs[item.name] = _sorted(mentioned(item), item.name)
        return cls(refs, direct_calls(text))

    def reached(self, roots: Iterable[str]) -> dict[str, str]:
        """All that `roots` reach through `refs`, each with the name it was first reached from (roots: themselves).

        Breadth first in the order of the sorted names, so following the names back gives a shortest chain.
        """
        found = {root: root for root in sorted(roots)}
        front = list(found)
        while front:
            following: list[str] = []
            for name in front:
                for ref in self.refs.get(name, ()):
                    if ref not in found:
                        found[ref] = name
                        following.append(ref)
            front = following
        return found

    def chain(self, roots: Iterable[str], name: str) -> list[str]:
        """The shortest chain of mentions from a root to `name`, root first; empty when no root reaches it."""
        found = self.reached(roots)
        if name not in found:
            return []
        path = [name]
        while found[path[-1]] != path[-1]:
            path.append(found[path[-1]])
        return path[::-1]

    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """Sets of functions that call each other in a ring, a function that calls itself included; each sorted."""
        return cycles(self.calls)


def direct_calls(text: ModuleText) -> dict[str, tuple[str, ...]]:
    """Sorted names of the functions that each definition calls directly, LLVM's intrinsics left out."""
    return {item.name: tuple(sorted(_called(item))) for item in text.of_kind("define")}


def cycles(calls: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Sets of functions that call each other in a ring, a function that calls itself included; each sorted."""
    rings = (tuple(sorted(part)) for part in strongly_connected(calls))
    return tuple(sorted(ring for ring in rings if len(ring) > 1 or ring[0] in calls.get(ring[0], ())))


def strongly_connected(graph: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Strongly connected components of a graph given as successors, callees first.

    Tarjan's algorithm (SIAM J. Computing 1(2), 1972), without recursion: call chains are as long as programs are.
    """
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    components: list[list[str]] = []
    for start in sorted(graph):
        if start in order:
            continue
        work = [(start, iter(graph[start]))]
        while work:
            name, successors = work[-1]
            if name not in order:
                order[name] = lowest[name] = len(order)
                stack.append(name)
                on_stack.add(name)
            following = next((s for s in successors if s in graph and (s not in order or s in on_stack)), None)
            if following is not None and following not in order:
                work.append((following, iter(graph[following])))
            elif following is not None:
                lowest[name] = min(lowest[name], order[following])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[name])
                if lowest[name] == order[name]:
                    components.append(_popped(stack, on_stack, name))
    return components


def _popped(stack: list[str], on_stack: set[str], name: str) -> list[str]:
    """The top of the stack down to `name`."""
    cut = stack.index(name)
    component = stack[cut:]
    del stack[cut:]
    on_stack.difference_update(component)
    return component


def mentioned(item: Item) -> Iterator[str]:
    """Globals that an item mentions, with repeats; its own name counts only where it mentions itself."""
    if item.kind in ("variable", "alias"):
        yield from global_names(item.head.split(" = ", 1)[1])
        return
    body = "\n".join(item.body)
    if '"' in body or '"' in item.head or "@" in item.head.split("(", 1)[1]:
        for line in (item.head.split("(", 1)[1], *item.body):
            yield from global_names(line)
        return
    # Without strings and quoted names a plain search is exact: comments hold readable paths, which have no @.
    yield from _PLAIN_GLOBAL.findall(body)


def _called(item: Item) -> set[str]:
    found: set[str] = set()
    for line in item.body:
        if "@" not in line or not ("call " in line or "invoke " in line or "callbr " in line):
            continue
        quick = _PLAIN_GLOBAL.search(line) if '"' not in line else None
        if quick is not None:
            # The first global of a call is its callee if an argument list follows, else an operand.
            callee = quick[1] if line[quick.end() : quick.end() + 1] == "(" and _CALL.match(line) else ""
        else:
            callee = _callee(line)
        if callee and not callee.startswith(_NOT_CODE):
            found.add(callee)
    return found


def _callee(line: str) -> str:
    """The direct callee of a line with quoted names or inline assembly, "" when there is none."""
    for instruction in instructions([line]):
        if instruction.opcode in ("call", "invoke", "callbr"):
            callee = read_call(instruction).callee
            return "" if callee.startswith("%") else callee
    return ""


def _sorted(names: Iterable[str], own: str) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name != own and not name.startswith(_NOT_CODE)}))

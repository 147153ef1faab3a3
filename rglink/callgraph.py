"""CallGraph: who mentions whom in a module, read from its printed text.

Two relations: `refs`, every global that a definition mentions, which is what keeps things alive, and `calls`, the
direct calls alone, which is what recursion is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rglink.irinst import instructions, read_call
from rglink.irtext import Item, ModuleText, global_names

_NOT_CODE = ("llvm.",)


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
        calls: dict[str, tuple[str, ...]] = {}
        for item in text.of_kind("variable", "alias", "define"):
            if not item.name.startswith(_NOT_CODE):
                refs[item.name] = _sorted(_mentioned(item), item.name)
        for item in text.of_kind("define"):
            calls[item.name] = tuple(sorted(_called(item)))
        return cls(refs, calls)

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
        components = strongly_connected(self.calls)
        rings = (tuple(sorted(part)) for part in components)
        return tuple(sorted(ring for ring in rings if len(ring) > 1 or ring[0] in self.calls.get(ring[0], ())))


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


def _mentioned(item: Item) -> Iterable[str]:
    head = item.head.split(" = ", 1)[1] if item.kind in ("variable", "alias") else item.head
    return (name for line in (head, *item.body) for name in global_names(line))


def _called(item: Item) -> set[str]:
    found: set[str] = set()
    for instruction in instructions(item.body):
        if instruction.opcode not in ("call", "invoke", "callbr") or "@" not in instruction.rest:
            continue
        callee = read_call(instruction).callee
        if callee and not callee.startswith(("%", *_NOT_CODE)):
            found.add(callee)
    return found


def _sorted(names: Iterable[str], own: str) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name != own and not name.startswith(_NOT_CODE)}))

"""Which block barriers all threads of a block reach together: a sound and simple proof.

Threads of a block start a kernel together. They stay together at *joint points*: a branch whose condition may differ
between threads starts an excursion, which ends at the branch's immediate post-dominator; its *region* is every block
that can be reached from the branch before that. Blocks in no region are run by all threads in the same order, the
same number of times. Then, to a fixpoint:

- a value is divergent if it is a source (thread index, load, atomic, call, ...), or an operand of it is, or it is
  defined in a region (its last definition may be another iteration's), or it is a phi where an excursion ends and
  the edges of that excursion bring different values;
- a branch is divergent if its condition is. A branch inside a region adds nothing: its own region lies within.

A branch without a post-dominator (an early return) has everything after it as its region. Edges into blocks that
never return and reach no barrier are ignored: a trap ends the grid, and a thread that spins for ever keeps the grid
from ending, whatever form the barriers have. PTX's `exit` would end one thread alone: where it can be reached,
nothing is proven.

A function's entry is uniform if it is local, its address is not taken and every call of it is at a joint point; so
are the parameters that get uniform values everywhere. The greatest fixpoint over the program is sound for
recursion too: by induction over the steps of a run, the first step that breaks it would have no cause.

The approach is that of divergence analyses (Karrenberg and Hack 2012; LLVM's GenericUniformityImpl), in its
simplest form that still proves reductions, grid-stride loops and flags.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rglink.irinst import Block, Call, Instruction, phi_incoming, read_access, read_blocks, read_call
from rglink.irtext import Function, Item, ModuleText, global_names, read_function, skip_type

_BARRIER = re.compile(r"llvm\.nvvm\.barrier\.(?:cta|cluster)\.[a-z.]+")
_REDUCTION = re.compile(r"llvm\.nvvm\.barrier\.cta\.red\.(?:popc|and|or)\.(?:aligned\.)?all")
_ASM_BARRIER = re.compile(
    r"(?<![\w.$%@])(?:bar(?:\.cta)?\.(?:sync|arrive|red)|barrier(?:\.cta|\.cluster)?\.(?:sync|arrive|red|wait))\b"
)
_MAY_HOLD_BARRIER = re.compile(r"barrier\.|bar\.(?:cta\.)?(?:sync|arrive|red)")
# In asm text a `ret` leaves the kernel as `exit` does.
_MAY_EXIT = re.compile(r"@llvm\.nvvm\.exit\(|\basm [^\"]*\"[^\"]*(?:exit|ret)\b")

# Special registers with one value in a block (PTX ISA, "Special Registers"); a block lies in one cluster.
_UNIFORM_REGISTER = re.compile(
    r"llvm\.nvvm\.read\.ptx\.sreg\.(?:(?:ntid|ctaid|nctaid|clusterid|nclusterid|cluster\.ctaid|cluster\.nctaid)\.[xyzw]"
    r"|cluster\.(?:ctarank|nctarank)|warpsize|envreg\d+)|llvm\.nvvm\.is_explicit_cluster"
)
_PURE_INTRINSIC = re.compile(
    r"llvm\.(?:[us](?:min|max)|abs|ctpop|ctlz|cttz|bswap|bitreverse|fsh[lr]|[us](?:add|sub|mul)\.with\.overflow"
    r"|[us](?:add|sub|shl)\.sat|[us]cmp|fabs|copysign|floor|ceil|trunc|rint|nearbyint|round|roundeven|sqrt|fma"
    r"|minnum|maxnum|minimum|maximum|minimumnum|maximumnum|fpto[us]i\.sat|is\.fpclass|ptrmask|expect"
    r"|expect\.with\.probability)\.[A-Za-z0-9.]+"
)
_PURE_OPCODES = frozenset(
    """add sub mul udiv sdiv urem srem shl lshr ashr and or xor fadd fsub fmul fdiv frem fneg icmp fcmp trunc zext
    sext fptrunc fpext fptoui fptosi uitofp sitofp ptrtoint ptrtoaddr inttoptr bitcast addrspacecast getelementptr
    select extractvalue insertvalue extractelement insertelement shufflevector freeze""".split()
)
_UNDEFINED = re.compile(r"\b(?:undef|poison)\b")
# Pointers to memory that each thread has for itself.
_OWN_MEMORY = re.compile(r"\b(?:byval|byref|sret|inalloca|preallocated)\b")


@dataclass(frozen=True)
class Site:
    """One barrier. `number` counts a function's barriers from 1, `index` is the line of its body."""

    function: str
    number: int
    index: int
    uniform: bool
    reason: str
    branch: int  # line of the body with the branch that parts the threads, -1 when it is something else
    reductions_count: bool  # the proof needs that no barrier of the program is divergent


@dataclass
class _Body:
    """A definition that may run a barrier, with its control flow among blocks that can return."""

    item: Item
    head: Function
    blocks: list[Block]
    calls: dict[int, Call]  # by body line
    successors: list[list[int]]
    ipdom: list[int]  # the virtual exit is len(blocks)
    defined_in: dict[str, int]

    @property
    def parameters(self) -> list[str]:
        return [parameter.name for parameter in self.head.parameters]


@dataclass
class _Facts:
    """What holds in one function: divergent values, and for each block in a region the branch that put it there."""

    divergent: set[str]
    region: dict[int, int] = field(default_factory=dict)


def is_barrier(call: Call) -> bool:
    """Whether a call is a block or cluster barrier, by intrinsic or in its asm text."""
    if call.is_asm:
        return _ASM_BARRIER.search(plain_asm(call.asm_text)) is not None
    return _BARRIER.fullmatch(call.callee) is not None


def plain_asm(text: str) -> str:
    """Asm text without LLVM's escapes."""
    return re.sub(r"\\([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), text)


def analyse_barriers(text: ModuleText, kernels: Collection[str]) -> list[Site]:
    """Every barrier of the program in order, and whether all threads of a block reach it together."""
    program = _Program(text, kernels)
    sites = program.solve(reductions=True)
    if all(site.uniform for site in sites) or not any(site.reductions_count for site in sites):
        return sites
    # A divergent barrier may meet a reduction of the same number: its result then differs between threads.
    return program.solve(reductions=False)


class _Program:
    """The functions that may run a barrier, and how they are called."""

    def __init__(self, text: ModuleText, kernels: Collection[str]) -> None:
        definitions = {item.name: item for item in text.of_kind("define")}
        mentions = {
            name: {other for line in item.body for other in global_names(line)} for name, item in definitions.items()
        }
        names = _closure({n for n, item in definitions.items() if _holds_barrier(item)}, _reverse(mentions))
        self.names = sorted(names & set(definitions))
        self.exiting = _exit_taint(definitions, mentions)
        self.bodies = {name: _read_body(definitions[name], names) for name in self.names}
        self.kernels = {
            name
            for name, body in self.bodies.items()
            if name in kernels or body.head.calling_convention == "ptx_kernel"
        }
        self.refused = self._refused(text, definitions)
        self.reductions = True

    def _refused(self, text: ModuleText, definitions: Mapping[str, Item]) -> dict[str, str]:
        """Functions whose entry is not uniform whatever their calls look like, with the reason."""
        refused: dict[str, str] = {}
        for name, body in self.bodies.items():
            if name not in self.kernels and body.head.linkage != "internal":
                refused[name] = "code outside this program may call the function"
            if name in self.exiting:
                refused[name] = "a thread may end itself by `exit`"
        for name in self.names:
            for index, line in enumerate(self.bodies[name].item.body):
                found = list(global_names(line)) if "@" in line else []
                call = self.bodies[name].calls.get(index)
                for other in found:
                    as_callee = call is not None and call.callee == other and found.count(other) == 1
                    if other in self.bodies and (not as_callee or other in self.kernels):
                        refused.setdefault(other, "the function's address is taken")
        for item in text.of_kind("variable", "alias"):
            for other in global_names(item.head):
                if other in self.bodies and (item.name != "llvm.used" or other not in self.kernels):
                    refused.setdefault(other, "the function's address is taken")
        return refused

    def solve(self, reductions: bool) -> list[Site]:
        self.reductions = reductions
        self.entry = {name: self.refused.get(name, "") for name in self.names}  # "" is a uniform entry
        self.shared = {name: self._uniform_parameters(name) for name in self.names}
        facts: dict[str, _Facts] = {}
        changed = set(self.names)
        while changed:
            for name in sorted(changed):
                if not self.entry[name]:
                    facts[name] = self._analyse(name)
            changed = self._flow_into_callees(facts)
        return [site for name in self.names for site in self._sites(name, facts.get(name))]

    def _uniform_parameters(self, name: str) -> set[str]:
        return {p.name for p in self.bodies[name].head.parameters if not _OWN_MEMORY.search(p.attributes)}

    def _flow_into_callees(self, facts: Mapping[str, _Facts]) -> set[str]:
        """Lower what callees may assume to what their calls show; returns the callees that lost something."""
        lost: set[str] = set()
        for name in self.names:
            body = self.bodies[name]
            for position, block in enumerate(body.blocks):
                for instruction in block.instructions:
                    call = body.calls.get(instruction.index)
                    if call is None or call.callee not in self.bodies or call.callee in self.kernels:
                        continue
                    if self._narrow(call, name, position, facts.get(name)):
                        lost.add(call.callee)
        return lost

    def _narrow(self, call: Call, caller: str, position: int, facts: _Facts | None) -> bool:
        callee = call.callee
        if self.entry[callee]:
            return False
        if self.entry[caller] or facts is None or position in facts.region:
            self.entry[callee] = f"{caller} calls the function where threads may part"
            return True
        before = len(self.shared[callee])
        for name, argument in zip(self.bodies[callee].parameters, call.arguments, strict=False):
            if _mentions(argument, facts.divergent):
                self.shared[callee].discard(name)
        return len(self.shared[callee]) != before

    def _analyse(self, name: str) -> _Facts:
        body = self.bodies[name]
        facts = _Facts({p for p in body.parameters if p not in self.shared[name]})
        joins: dict[int, set[int]] = defaultdict(set)  # where excursions end: the blocks they may come from
        branches: set[int] = set()
        before = (-1, -1)
        while before != (len(facts.divergent), len(branches)):
            before = (len(facts.divergent), len(branches))
            for position, block in enumerate(body.blocks):
                for instruction in block.instructions:
                    if not instruction.result or instruction.result in facts.divergent:
                        continue
                    if position in facts.region or self._diverges(body, instruction, facts, joins[position]):
                        facts.divergent.add(instruction.result)
                if position not in branches and _parts(body, position, facts):
                    branches.add(position)
                    _add_region(body, position, facts, joins)
        return facts

    def _diverges(self, body: _Body, instruction: Instruction, facts: _Facts, arriving: set[int]) -> bool:
        """Whether the result may differ between threads that run the instruction together."""
        if instruction.opcode == "phi":
            return _phi_diverges(body, instruction, facts, arriving)
        if instruction.opcode == "load":
            return _load_diverges(instruction, facts)
        if instruction.opcode == "call":
            return self._call_diverges(body.calls.get(instruction.index), facts)
        return instruction.opcode not in _PURE_OPCODES or _mentions(instruction.rest, facts.divergent)

    def _call_diverges(self, call: Call | None, facts: _Facts) -> bool:
        if call is None or call.is_asm:
            return True
        if _UNIFORM_REGISTER.fullmatch(call.callee):
            return False
        if _REDUCTION.fullmatch(call.callee):
            return not self.reductions or _mentions(call.arguments[0], facts.divergent)
        if not _PURE_INTRINSIC.fullmatch(call.callee):
            return True
        return any(_mentions(argument, facts.divergent) for argument in call.arguments)

    def _sites(self, name: str, facts: _Facts | None) -> Iterable[Site]:
        body = self.bodies[name]
        number = 0
        counts = any(_REDUCTION.fullmatch(call.callee) for call in body.calls.values())
        for position, block in enumerate(body.blocks):
            for instruction in block.instructions:
                call = body.calls.get(instruction.index)
                if call is None or not is_barrier(call):
                    continue
                number += 1
                reason, branch = self._objection(name, position, call, facts)
                yield Site(name, number, instruction.index, not reason, reason or _TOGETHER, branch, counts)

    def _objection(self, name: str, position: int, call: Call, facts: _Facts | None) -> tuple[str, int]:
        """Why a barrier is not proven, and the line of the branch if one is to blame; ("", -1) when it is."""
        if self.entry[name] or facts is None:
            return self.entry[name], -1
        if position in facts.region:
            block = self.bodies[name].blocks[facts.region[position]]
            return f"the branch that ends block {block.label} may part the threads", block.terminator.index
        return _number_objection(call, facts.divergent), -1


_TOGETHER = "all threads of the block arrive together"


def _holds_barrier(item: Item) -> bool:
    return any(_MAY_HOLD_BARRIER.search(line) for line in item.body)


def _reverse(edges: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    reverse: dict[str, set[str]] = defaultdict(set)
    for source, targets in edges.items():
        for target in targets:
            reverse[target].add(source)
    return reverse


def _closure(start: Collection[str], edges: Mapping[str, Collection[str]]) -> set[str]:
    reached, todo = set(start), list(start)
    while todo:
        for other in edges.get(todo.pop(), ()):
            if other not in reached:
                reached.add(other)
                todo.append(other)
    return reached


def _exit_taint(definitions: Mapping[str, Item], mentions: Mapping[str, Collection[str]]) -> set[str]:
    """Functions that run in a kernel in which PTX's `exit` can be reached."""
    exiting = {name for name, item in definitions.items() if any(_MAY_EXIT.search(line) for line in item.body)}
    if not exiting:
        return set()
    indirect = re.compile(r"\bcall [^@\"]*%(?:\"[^\"]*\"|[-\w.$]+)\(")
    if any(indirect.search(line) for item in definitions.values() for line in item.body):
        return set(definitions)
    return _closure(_closure(exiting, _reverse(mentions)), mentions)


def _read_body(item: Item, barrier_functions: Collection[str]) -> _Body:
    head = read_function(item.head)
    blocks = read_blocks(item.body, [parameter.name for parameter in head.parameters])
    calls = {i.index: read_call(i) for block in blocks for i in block.instructions if i.opcode in ("call", "invoke")}
    position = {block.label: index for index, block in enumerate(blocks)}
    edges = [sorted({position[label] for label in block.terminator.targets()}) for block in blocks]
    alive = _live_blocks(blocks, edges, calls, barrier_functions)
    live = [[target for target in targets if target in alive] for targets in edges]
    defined = {i.result: index for index, block in enumerate(blocks) for i in block.instructions if i.result}
    return _Body(item, head, blocks, calls, live, _post_dominators(blocks, live), defined)


def _live_blocks(
    blocks: list[Block], edges: list[list[int]], calls: Mapping[int, Call], barrier_functions: Collection[str]
) -> set[int]:
    """Blocks from which a return or a barrier can be reached (a call of unknown code may be a barrier)."""
    alive: set[int] = set()
    for index, block in enumerate(blocks):
        if block.terminator.opcode not in ("br", "switch", "unreachable"):
            alive.add(index)
        for instruction in block.instructions:
            call = calls.get(instruction.index)
            if call and (is_barrier(call) or call.callee in barrier_functions or call.callee.startswith("%")):
                alive.add(index)
    return _reach(alive, _predecessors(edges))


def _predecessors(edges: list[list[int]]) -> list[list[int]]:
    reverse: list[list[int]] = [[] for _ in edges]
    for source, targets in enumerate(edges):
        for target in targets:
            reverse[target].append(source)
    return reverse


def _reach(start: Collection[int], edges: list[list[int]], stop: int = -1) -> set[int]:
    reached, todo = set(start), list(start)
    while todo:
        for other in edges[todo.pop()]:
            if other not in reached and other != stop:
                reached.add(other)
                todo.append(other)
    return reached


def _post_dominators(blocks: list[Block], live: list[list[int]]) -> list[int]:
    """Immediate post-dominators (Cooper, Harvey and Kennedy 2001), the virtual exit being `len(blocks)`.

    Blocks that end the function go to the exit, and so do those that cannot reach its end: more edges make fewer
    post-dominators, so regions only grow.
    """
    count = len(blocks)
    edges = [list(targets) for targets in live]
    ends = {i for i, block in enumerate(blocks) if not edges[i] or block.terminator.opcode not in ("br", "switch")}
    endless = set(range(count)) - _reach(ends, _predecessors(edges))
    for index in ends | endless:
        edges[index].append(count)
    order = _post_order(count, edges)
    rank = {block: index for index, block in enumerate(order)}
    ipdom = [-1] * count + [count]
    changed = True
    while changed:
        changed = False
        for block in reversed(order[:-1]):
            new = -1
            for target in edges[block]:
                if ipdom[target] != -1:
                    new = target if new == -1 else _meet(new, target, ipdom, rank)
            if new != ipdom[block]:
                ipdom[block], changed = new, True
    return ipdom[:count]


def _post_order(count: int, edges: list[list[int]]) -> list[int]:
    """Post-order of a depth-first walk from the exit against the edges; the exit comes last."""
    reverse = _predecessors([*edges, []])
    order: list[int] = []
    seen = {count}
    stack = [(count, iter(reverse[count]))]
    while stack:
        block, rest = stack[-1]
        for other in rest:
            if other not in seen:
                seen.add(other)
                stack.append((other, iter(reverse[other])))
                break
        else:
            order.append(block)
            stack.pop()
    return order


def _meet(left: int, right: int, ipdom: list[int], rank: Mapping[int, int]) -> int:
    while left != right:
        while rank[left] < rank[right]:
            left = ipdom[left]
        while rank[right] < rank[left]:
            right = ipdom[right]
    return left


def _parts(body: _Body, position: int, facts: _Facts) -> bool:
    """Whether a block's terminator may send threads that run it together to different blocks."""
    terminator = body.blocks[position].terminator
    if terminator.opcode in ("br", "switch"):
        return len(body.successors[position]) > 1 and _mentions(terminator.rest, facts.divergent)
    return terminator.opcode not in ("ret", "unreachable")


def _add_region(body: _Body, branch: int, facts: _Facts, joins: dict[int, set[int]]) -> None:
    join = body.ipdom[branch]
    starts = [target for target in body.successors[branch] if target != join]
    region = _reach(starts, body.successors, stop=join)
    for block in region:
        facts.region.setdefault(block, branch)
    joins[join] |= region | {branch}


def _phi_diverges(body: _Body, instruction: Instruction, facts: _Facts, arriving: set[int]) -> bool:
    labels = {body.blocks[index].label for index in arriving}
    _, pairs = phi_incoming(instruction)
    if any(_mentions(value, facts.divergent) for value, _ in pairs):
        return True
    return len({value for value, label in pairs if label in labels}) > 1


def _load_diverges(instruction: Instruction, facts: _Facts) -> bool:
    """All loads but those of memory that no thread writes, at an address that is one."""
    access = read_access(instruction)
    if access is None or re.match(r"(?:atomic|volatile) ", instruction.rest):
        return True
    fixed = access.pointer_type == "ptr addrspace(4)" or "!invariant.load" in instruction.rest
    return not fixed or _mentions(access.pointer, facts.divergent)


_LOCAL_OR_STRING = re.compile(r'"[^"]*"|%(?:"[^"]*"|[-a-zA-Z$._0-9]+)')


def _mentions(operands: str, divergent: Collection[str]) -> bool:
    """Whether an operand is divergent; one that is undefined may be anything in each thread."""
    if _UNDEFINED.search(operands):
        return True
    return any(match[0] in divergent for match in _LOCAL_OR_STRING.finditer(operands))


def _number_objection(call: Call, divergent: Collection[str]) -> str:
    """The aligned form wants one barrier number and one count in all threads."""
    if call.is_asm:
        return _asm_objection(call, divergent)
    numbers = list(call.arguments)
    if ".red." in call.callee:
        numbers.pop()
    if any(_mentions(argument, divergent) for argument in numbers):
        return "the barrier's number or count may differ between threads"
    return ""


_ASM_STATEMENT = re.compile(r"\s*([\w.]+)\s*(.*)", re.DOTALL)


def _asm_objection(call: Call, divergent: Collection[str]) -> str:
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", plain_asm(call.asm_text), flags=re.DOTALL)
    outputs = sum(1 for part in call.asm_constraints.split(",") if part.startswith("="))
    for statement in re.split(r"[;{}]", code):
        if not _ASM_BARRIER.search(statement):
            if re.search(r"@|\b(?:bra|brx|call|ret|exit)\b|:\s*$|:\s*\n", statement):
                return "the asm text has control flow of its own"
            continue
        match = _ASM_STATEMENT.fullmatch(statement)
        if match is None or not _ASM_BARRIER.match(match[1]):
            return "the barrier is predicated within its asm text"
        operands = [part.strip() for part in match[2].split(",") if part.strip()]
        numbers = operands[1:-1] if ".red" in match[1] else operands
        if not all(_is_one_number(operand, call, outputs, divergent) for operand in numbers):
            return "the barrier's number or count may differ between threads"
    return ""


def _is_one_number(operand: str, call: Call, outputs: int, divergent: Collection[str]) -> bool:
    if operand.isdigit():
        return True
    match = re.fullmatch(r"\$(?:(\d+)|\{(\d+)(?::\w+)?\})", operand)
    index = int(match[1] or match[2]) - outputs if match else -1
    if not 0 <= index < len(call.arguments):
        return False
    argument = call.arguments[index]
    return not _mentions(argument[skip_type(argument, 0) :], divergent)

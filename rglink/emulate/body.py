"""The body of a function: instructions with their registers, labels and variables bound to their scopes.

Inner blocks, as inline assembly writes them, have names of their own: a register, label or parameter `x` of the
third block becomes `x@3`.

Source: PTX ISA, "Syntax" (statements), "Control Flow Directives", "Parameterized Variable Names".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from rglink.demangle import demangle
from rglink.emulate.constants import TokenStream, constant_of, constant_of_sum
from rglink.emulate.declarations import LINKAGE, parameters_of, read_variable, type_of
from rglink.emulate.lines import LineReader
from rglink.emulate.ptx import (
    Address,
    Arguments,
    Function,
    Instruction,
    Label,
    Negated,
    Operand,
    Pair,
    Prototype,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)

NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)


class Scope:
    """The names of one block: registers, numbered families of registers, parameters, labels."""

    def __init__(self, number: int, outer: Scope | None) -> None:
        self.number, self.outer = number, outer
        self.registers: dict[str, str] = {}
        self.families: dict[str, tuple[int, str]] = {}
        self.variables: set[str] = set()
        self.labels: set[str] = set()

    def bound(self, name: str) -> str:
        """`name` as the function knows it."""
        return name if self.number == 0 else f"{name}@{self.number}"

    def find_register(self, name: str) -> tuple[str, str] | None:
        """The bound name and the type of a register of this or an outer block."""
        scope: Scope | None = self
        parts = NUMBERED.fullmatch(name)
        while scope is not None:
            ptx_type = scope.registers.get(name)
            if ptx_type is None and parts is not None and (parts[2] == "0" or parts[2][0] != "0"):
                count, family_type = scope.families.get(parts[1], (0, ""))
                ptx_type = family_type if int(parts[2]) < count else None
            if ptx_type is not None:
                return scope.bound(name), ptx_type
            scope = scope.outer
        return None

    def find_variable(self, name: str) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.bound(name)
            scope = scope.outer
        return None

    def find_label(self, name: str) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.bound(name)
            scope = scope.outer
        return None


class BodyReader:
    """Reads statements up to the brace that closes the body."""

    def __init__(self, stream: TokenStream, head: Function, files: Mapping[int, str]) -> None:
        self.stream, self.head = stream, head
        self.scope = Scope(0, None)
        self.scopes = 0
        self.registers: dict[str, str] = {}
        self.instructions: list[Instruction] = []
        self.scope_of: list[Scope] = []
        self.labels: dict[str, int] = {}
        self.variables: list[Variable] = []
        self.prototypes: dict[str, Prototype] = {}
        self.tables: list[tuple[Scope, str, tuple[str, ...], bool]] = []
        self.lines = LineReader(files)
        for parameter in (*head.parameters, *head.results):
            if parameter.in_register:
                self.scope.registers[parameter.name] = parameter.type
            else:
                self.scope.variables.add(parameter.name)

    def read(self) -> Function:
        """The function with its body."""
        while not (self.scope.outer is None and self.stream.accept("}")):
            self._statement()
        for number, instruction in enumerate(self.instructions):
            if any(isinstance(operand, Label) for operand in instruction.operands):
                operands = tuple(self._bind_label(o, number) for o in instruction.operands)
                self.instructions[number] = replace(instruction, operands=operands)
        tables: dict[str, tuple[str, ...]] = {}
        for scope, name, items, are_labels in self.tables:
            tables[name] = tuple(self._label(scope, item) for item in items) if are_labels else items
        return replace(
            self.head,
            defined=True,
            registers=self.registers,
            instructions=tuple(self.instructions),
            labels=self.labels,
            variables=tuple(self.variables),
            prototypes=self.prototypes,
            tables=tables,
        )

    def _label(self, scope: Scope, name: str) -> str:
        bound = scope.find_label(name)
        if bound is None:
            raise self.stream.error(f"function {demangle(self.head.name)} has no label {name}")
        return bound

    def _bind_label(self, operand: Operand, number: int) -> Operand:
        if not isinstance(operand, Label):
            return operand
        return Label(self._label(self.scope_of[number], operand.name))

    def _statement(self) -> None:
        stream = self.stream
        word, kind = stream.text, stream.kind
        if kind == "name" and stream.tokens[stream.at + 1].text == ":":
            self._label_or_table()
        elif kind == "name" or word == "@":
            self._instruction()
        elif word == "{":
            stream.take()
            self.scopes += 1
            self.scope = Scope(self.scopes, self.scope)
        elif word == "}":
            stream.take()
            assert self.scope.outer is not None
            self.scope = self.scope.outer
        elif word == ";":
            stream.take()
        elif kind == "directive":
            self._directive()
        else:
            what = f"found {word!r}" if word else "the text ends"
            raise stream.error(f"{what} in function {demangle(self.head.name)}")

    def _directive(self) -> None:
        stream = self.stream
        word = stream.take()
        if word == ".reg":
            self._registers()
        elif word == ".loc":
            self.lines.read(self.stream)
        elif word == ".pragma":
            while not stream.accept(";"):
                stream.take()
        elif word in LINKAGE:
            self._declare(stream.take(), word == ".extern")
        elif word in (".param", ".local", ".shared", ".global", ".const"):
            self._declare(word, False)
        elif word == ".file":
            stream.take()
            stream.take()
        else:
            raise stream.error(f"{word!r} is not supported in a function")

    def _declare(self, space: str, external: bool) -> None:
        for variable in read_variable(self.stream, space[1:], external):
            self.scope.variables.add(variable.name)
            self.variables.append(replace(variable, name=self.scope.bound(variable.name)))

    def _registers(self) -> None:
        stream = self.stream
        if stream.text in (".v2", ".v4"):
            raise stream.error("vector registers are not supported")
        ptx_type = type_of(stream)
        while True:
            name = stream.take()
            if stream.accept("<"):
                self.scope.families[name] = (stream.integer_between(), ptx_type)
                stream.expect(">")
            else:
                self.scope.registers[name] = ptx_type
            if not stream.accept(","):
                stream.expect(";")
                return

    def _label_or_table(self) -> None:
        stream = self.stream
        name = stream.take()
        stream.take()
        if stream.accept(".callprototype"):
            results = parameters_of(stream) if stream.text == "(" else ()
            stream.take()
            parameters = parameters_of(stream) if stream.text == "(" else ()
            noreturn = False
            while stream.kind == "directive":
                noreturn = stream.take() == ".noreturn" or noreturn
                if stream.kind == "int":
                    stream.integer()
            self.prototypes[name] = Prototype(results, parameters, noreturn)
            stream.expect(";")
        elif stream.text in (".branchtargets", ".calltargets"):
            are_labels = stream.take() == ".branchtargets"
            items = [stream.take()]
            while stream.accept(","):
                items.append(stream.take())
            stream.expect(";")
            self.tables.append((self.scope, name, tuple(items), are_labels))
        else:
            self.scope.labels.add(name)
            bound = self.scope.bound(name)
            if bound in self.labels:
                raise stream.error(f"label {name} is defined twice")
            self.labels[bound] = len(self.instructions)

    def _instruction(self) -> None:
        stream = self.stream
        guard = None
        line = stream.line
        if stream.accept("@"):
            negated = stream.accept("!")
            register = self._named(stream.take(), False)
            if not isinstance(register, Register) or register.type != "pred":
                raise stream.error("a guard must be a predicate register")
            guard = (register, negated)
        opcode = tuple(stream.take().split("."))
        operands: list[Operand] = []
        while not stream.accept(";"):
            operands.append(self._operand(opcode[0]))
            if not stream.accept(","):
                stream.expect(";")
                break
        self.scope_of.append(self.scope)
        lines = self.lines
        self.instructions.append(
            Instruction(opcode, guard, tuple(operands), line, lines.loc, lines.within, lines.inlined_at)
        )

    def _operand(self, name: str = "") -> Operand:
        stream = self.stream
        word = stream.text
        if stream.kind == "name":
            return self._name_operand(name == "bra")
        if word == "[":
            return self._address()
        if word == "{":
            return Vector(self._items("{", "}"))
        if word == "(" and name == "call":
            return Arguments(self._items("(", ")"))
        if word == "!" and stream.tokens[stream.at + 1].kind == "name":
            stream.take()
            register = self._named(stream.take(), False)
            if not isinstance(register, Register):
                raise stream.error("`!` wants a predicate register")
            return Negated(register)
        return constant_of(stream)

    def _name_operand(self, is_branch: bool) -> Operand:
        stream = self.stream
        operand = self._named(stream.take(), is_branch)
        if stream.text == "|" and isinstance(operand, Register | Sink):
            stream.take()
            second = self._named(stream.take(), False)
            if not isinstance(second, Register | Sink):
                raise stream.error("wanted a register after `|`")
            return Pair(operand, second)
        if isinstance(operand, Symbol) and stream.text in ("+", "-"):
            return Symbol(operand.name, constant_of_sum(stream))
        return operand

    def _named(self, word: str, is_branch: bool) -> Register | Symbol | Label | Special | Sink:
        if word == "_":
            return Sink()
        found = self.scope.find_register(word)
        if found is not None:
            self.registers[found[0]] = found[1]
            return Register(*found)
        if is_branch:
            return Label(word)
        if word[0] == "%" or word == "WARP_SZ":
            return Special(word)
        return Symbol(self.scope.find_variable(word) or word)

    def _address(self) -> Operand:
        stream = self.stream
        stream.expect("[")
        base = None
        offset = 0
        if stream.kind == "name":
            named = self._named(stream.take(), False)
            if not isinstance(named, Register | Symbol):
                raise stream.error("an address wants a register or a variable")
            base = named
            offset = constant_of_sum(stream)
        else:
            offset = stream.integer()
        address = Address(base, offset)
        if stream.text != ",":
            stream.expect("]")
            return address
        items: list[Operand] = [address]  # tensor coordinates, which no instruction of the machine takes
        while stream.accept(","):
            items.append(self._operand())
        stream.expect("]")
        return Vector(tuple(items))

    def _items(self, first: str, last: str) -> tuple[Operand, ...]:
        stream = self.stream
        stream.expect(first)
        found: list[Operand] = []
        while not stream.accept(last):
            found.append(self._operand())
            if not stream.accept(","):
                stream.expect(last)
                break
        return tuple(found)

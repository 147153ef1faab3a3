"""A kernel and all that it can reach, as the machine runs it.

Functions are decoded when a thread first comes to them; what shared memory they need is known before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rglink.emulate.code import Code, Flow
from rglink.emulate.control import leave, result_cells
from rglink.emulate.errors import PtxError, Unsupported
from rglink.emulate.frames import Active, Vector
from rglink.emulate.memory import FUNCTION_BASE
from rglink.emulate.ptx import Address, Arguments, Function, Instruction, Operand, Program, Symbol, Variable
from rglink.emulate.routes import decode_one, refusal, refusing
from rglink.emulate.slots import Cells, SlotTable
from rglink.emulate.special import special_register

# Shared memory that a kernel may ask for on the largest architecture.
LARGEST_SHARED = 227 * 1024
FUNCTION_SPACING = 16


def function_addresses(program: Program) -> dict[str, int]:
    """The address of every function, kernels too."""
    return {name: FUNCTION_BASE + FUNCTION_SPACING * (at + 1) for at, name in enumerate(program.functions)}


def symbols_of(operands: tuple[Operand, ...]) -> list[str]:
    """The names that operands mention."""
    found: list[str] = []
    for operand in operands:
        if isinstance(operand, Symbol):
            found.append(operand.name)
        elif isinstance(operand, Address) and isinstance(operand.base, Symbol):
            found.append(operand.base.name)
        elif isinstance(operand, Arguments):
            found += symbols_of(operand.items)
    return found


def parameter_layout(function: Function) -> tuple[dict[str, int], int]:
    """Where each parameter of a kernel lies in its buffer, and the buffer's size."""
    offsets: dict[str, int] = {}
    end = 0
    for parameter in function.parameters:
        end = -(-end // parameter.align) * parameter.align
        offsets[parameter.name] = end
        end += parameter.size
    return offsets, end


class Image:
    """One kernel's code. `addresses` are those of global and constant variables, by (function or "", name)."""

    def __init__(self, program: Program, kernel: Function, addresses: Mapping[tuple[str, str], int]) -> None:
        self.program, self.kernel, self.addresses = program, kernel, addresses
        self.functions = function_addresses(program)
        self.names_at = {address: name for name, address in self.functions.items()}
        self.parameters, self.parameter_bytes = parameter_layout(kernel)
        self.shared: dict[tuple[str, str], int] = {}
        self.static_shared = self._lay_out_shared()
        self.codes: dict[str, tuple[Code, SlotTable]] = {}
        # What a thread will be told that comes to an instruction that the machine does not know.
        self.refused: list[PtxError] = []
        self.by_number: dict[int, Function] = {}

    def entry(self) -> Code:
        """The code of the kernel."""
        return self.code(self.kernel.name)[0]

    def resolved(self, name: str) -> str | None:
        """The name of the definition behind a name, aliases followed; None if there is none."""
        name = self.program.aliases.get(name, name)
        function = self.program.functions.get(name)
        return name if function is not None and function.defined else None

    def function_at(self, address: int) -> str | None:
        """The function at an address."""
        name = self.names_at.get(address)
        return None if name is None else self.resolved(name)

    def callee(self, name: str) -> tuple[Code, tuple[list[Cells], list[Cells]]]:
        """A function's code and the cells of its parameters and results."""
        code, table = self.code(name)
        return code, ([table.cells[p.name] for p in table.function.parameters], result_cells(table))

    def instruction(self, number: int) -> Callable[[int], Instruction]:
        """The instructions of a function by its number."""
        return self.by_number[number].instructions.__getitem__

    def code(self, name: str) -> tuple[Code, SlotTable]:
        """A function's code, decoded on first use."""
        found = self.codes.get(name)
        if found is not None:
            return found
        function = self.program.functions[name]
        code = Code(name, len(self.codes))
        self.by_number[code.number] = function
        count = len(function.instructions)
        code.steps, code.controls, code.flows = [None] * (count + 1), [None] * (count + 1), []
        table = SlotTable(function, code, FunctionNames(self, function))
        self.codes[name] = (code, table)
        for at, instruction in enumerate(function.instructions):
            self._decode(table, instruction, at)
        # A body may end without ret: after a call that does not return, or in a kernel.
        code.controls[count] = leave
        reads = sum(1 << slot for cells in result_cells(table) for slot in cells.values())
        code.flows.append(Flow(reads=reads, falls=False))
        code.finish(table.registers)
        return code, table

    def _decode(self, table: SlotTable, instruction: Instruction, at: int) -> None:
        table.begin()
        try:
            found = decode_one(table, instruction, at, self)
            if instruction.opcode[0] == "bra":
                table.code.controls[at] = found  # type: ignore[assignment]
        except (Unsupported, ValueError, IndexError, KeyError) as error:
            reason = error if isinstance(error, Unsupported) else Unsupported(f"instruction {instruction.text}")
            table.flow = Flow()
            table.code.controls[at] = None
            refused = refusal(self.program.name, table.function.name, instruction, reason)
            self.refused.append(refused)
            table.code.steps[at] = refusing(refused)
        table.code.flows.append(table.flow)

    def _lay_out_shared(self) -> int:
        """Give the shared variables that the kernel can reach their offsets; returns where dynamic memory begins."""
        end, dynamic, align = 0, [], 16
        for key, variable in self._reachable_shared():
            if variable.external and variable.size == 0:
                dynamic.append(key)
                align = max(align, variable.align)
                continue
            end = -(-end // variable.align) * variable.align
            self.shared[key] = end
            end += variable.size
        if dynamic:
            end = -(-end // align) * align
        for key in dynamic:
            self.shared[key] = end
        return end

    def _reachable_shared(self) -> list[tuple[tuple[str, str], Variable]]:
        program = self.program
        seen: set[str] = set()
        pending = [self.kernel.name]
        found: dict[tuple[str, str], Variable] = {}
        while pending:
            name = pending.pop()
            name = program.aliases.get(name, name)
            if name in seen:
                continue
            seen.add(name)
            if name in program.functions:
                function = program.functions[name]
                own = {v.name: v for v in function.variables}
                for instruction in function.instructions:
                    for symbol in symbols_of(instruction.operands):
                        if symbol in own and own[symbol].space == "shared":
                            found[name, symbol] = own[symbol]
                        elif symbol not in own:
                            pending.append(symbol)
            elif name in program.variables:
                variable = program.variables[name]
                if variable.space == "shared":
                    found["", name] = variable
                pending += [relocation.symbol for relocation in variable.relocations]
        order = {name: at for at, name in enumerate([*program.variables, *program.functions])}
        return sorted(found.items(), key=lambda item: (order[item[0][0] or item[0][1]], item[0]))


class FunctionNames:
    """What one function's operands may name (`slots.Names`)."""

    def __init__(self, image: Image, function: Function) -> None:
        self.image, self.function = image, function

    def address(self, symbol: str) -> int | None:
        """The address of a variable in its own space, or of a function."""
        image = self.image
        for key in ((self.function.name, symbol), ("", symbol)):
            for table in (image.shared, image.addresses):
                if key in table:
                    return table[key]
        return image.functions.get(image.program.aliases.get(symbol, symbol))

    def parameter_offset(self, name: str) -> int | None:
        """Where a parameter of the kernel lies in its buffer."""
        return self.image.parameters.get(name) if self.function is self.image.kernel else None

    def parameter_address(self, name: str) -> Callable[[Active], Vector] | None:
        """How to find the address of a parameter of the kernel."""
        offset = self.parameter_offset(name)
        if offset is None:
            return None
        return lambda active: np.array([active.wave.parameter_address + offset], np.uint64)

    def special(self, name: str) -> Callable[[Active], Vector]:
        """A special register."""
        return special_register(name)

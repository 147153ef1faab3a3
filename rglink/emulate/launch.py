"""Programs that are loaded, and launches of their kernels on NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rglink.demangle import demangle
from rglink.emulate.arguments import Argument, Buffers, pack_arguments
from rglink.emulate.errors import KernelFault, LaunchError
from rglink.emulate.image import LARGEST_SHARED, Image, function_addresses
from rglink.emulate.machine import run_wave
from rglink.emulate.memory import Arena
from rglink.emulate.names import nearest_name, symbols_called
from rglink.emulate.observer import Observer
from rglink.emulate.ptx import Function, Program, Variable
from rglink.emulate.wave import Budget, Scheduler, Wave

Extent: TypeAlias = int | Sequence[int]
# Lanes that run at the same time: enough to outweigh the cost of a step, few enough for the caches.
WAVE_LANES = 32 * 1024
MOST_THREADS = 1 << 28
STEP_BUDGET = 10_000_000


@dataclass(frozen=True)
class Launched:
    """What a launch left besides memory: `output` is what vprintf wrote; `executed` counts lane-instructions."""

    output: str
    executed: int


class DeviceVariable:
    """A `.global` or `.const` variable of a loaded program, as the host reads and writes it by name."""

    def __init__(self, arena: Arena, variable: Variable, address: int) -> None:
        self._arena, self.name, self.size, self.address = arena, variable.name, variable.size, address

    def read(self, dtype: Any = np.uint8) -> NDArray[Any]:
        """A copy of its bytes as elements of `dtype`, shape (size / itemsize,)."""
        return self._arena.slice(self.address, self.size).copy().view(dtype)

    def write(self, values: Any) -> None:
        """Overwrite its first bytes by those of `values`.

        Raises:
            LaunchError: more bytes than it has.
        """
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        if len(data) > self.size:
            raise LaunchError(f"variable {self.name} has {self.size} bytes, {len(data)} were to be written")
        self._arena.slice(self.address, len(data))[:] = data


class Variables(Mapping[str, DeviceVariable]):
    """The variables of a program by symbol, Rust path or the end of one."""

    def __init__(self, arena: Arena, program: Program, addresses: Mapping[tuple[str, str], int]) -> None:
        self._found = {
            name: DeviceVariable(arena, variable, addresses["", name])
            for name, variable in program.variables.items()
            if ("", name) in addresses
        }

    def __getitem__(self, name: str) -> DeviceVariable:
        known = tuple(self._found)
        symbols = symbols_called(name, known)
        if len(symbols) == 1:
            return self._found[symbols[0]]
        if symbols:
            raise LaunchError(f"several variables are called {name}: {', '.join(map(demangle, symbols))}")
        near = nearest_name(name, known)
        raise LaunchError(f"the program has no variable {name}{f', did you mean {near}' if near else ''}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class LoadedProgram:
    """A program in the machine's memory. `program["saxpy"][grid, block](x, y, 3.0)` runs a kernel."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.arena = Arena()
        self.addresses = _place_variables(program, self.arena)
        self.variables = Variables(self.arena, program, self.addresses)
        self.kernels = tuple(sorted(f.name for f in program.functions.values() if f.is_kernel and f.defined))
        self._images: dict[str, Image] = {}

    def __getitem__(self, name: str) -> Kernel:
        """The kernel called `name`: its symbol (`saxpy`), its Rust path (`blocks::smooth`) or the end of one.

        Raises:
            LaunchError: there is none, or there are several.
        """
        symbol = self._symbol(name)
        if symbol not in self._images:
            self._images[symbol] = Image(self.program, self.program.functions[symbol], self.addresses)
        return Kernel(self, self._images[symbol])

    def _symbol(self, name: str) -> str:
        found = symbols_called(name, self.kernels)
        if len(found) == 1:
            return found[0]
        if found:
            among = ", ".join(map(demangle, found))
            raise LaunchError(f"{self.program.name}: several kernels are called {name}: {among}")
        near = nearest_name(name, self.kernels)
        hint = f", did you mean {near}" if near else ""
        known = ", ".join(map(demangle, self.kernels)) or "none"
        raise LaunchError(f"{self.program.name}: no kernel {name}{hint}; it has: {known}")


@dataclass(frozen=True)
class Configured:
    """A kernel with its grid and block."""

    kernel: Kernel
    grid: Extent
    block: Extent

    def __call__(self, *args: Argument) -> Launched:
        """Run it; arrays are read and written in place."""
        return self.kernel.launch(self.grid, self.block, args)


class Kernel:
    """One kernel of a loaded program."""

    def __init__(self, owner: LoadedProgram, image: Image) -> None:
        self.owner, self.image = owner, image

    @property
    def function(self) -> Function:
        """Its head and body."""
        return self.image.kernel

    def __getitem__(self, shape: tuple[Extent, Extent]) -> Configured:
        """`kernel[grid, block]`, each a number or up to three of them."""
        return Configured(self, *shape)

    def launch(
        self,
        grid: Extent,
        block: Extent,
        args: Sequence[Argument],
        *,
        shared: int = 0,
        seed: int | None = None,
        observer: Observer | None = None,
        steps: int = STEP_BUDGET,
        wave_lanes: int = WAVE_LANES,
        most_threads: int = MOST_THREADS,
    ) -> Launched:
        """Run the kernel to its end: `Configured` with all that may be said.

        `shared` are bytes of dynamic shared memory for each block; the same `seed` repeats one random order of
        threads; `steps` is how many instructions one thread may execute; at most `wave_lanes` threads (whole blocks,
        at least one) run at the same time; more than `most_threads` are refused. Raises LaunchError, KernelFault or
        PtxError.
        """
        grid3, block3 = _extent("grid", grid), _extent("block", block)
        _check_shape(self.function, grid3, block3, most_threads)
        size, arena = _shared_size(self.image.static_shared + shared), self.owner.arena
        count = len(arena.allocations)
        buffers, output = Buffers(arena), list[str]()
        try:
            data = pack_arguments(self.function, args, buffers)
            shape = Shape(grid3, block3, (size, shared), data, self._place_parameters(data))
            budget = Budget(steps)
            for wave in shape.waves(self.function.name, arena, budget, output, wave_lanes):
                wave.observer = observer
                wave.scheduler = Scheduler(None if seed is None else seed + wave.first_block)
                run_wave(wave, self.image)
            buffers.copy_back()
        except KernelFault as fault:
            fault.output = "".join(output)
            raise
        finally:
            _release(arena, count)
        return Launched("".join(output), budget.executed)

    def _place_parameters(self, data: bytes) -> int:
        """Put the parameter bytes into memory, where a kernel may take their addresses."""
        arena = self.owner.arena
        address = arena.allocate(f"parameters of {demangle(self.function.name)}", "param", max(len(data), 1))
        arena.slice(address, len(data))[:] = np.frombuffer(data, np.uint8)
        return address


@dataclass(frozen=True)
class Shape:
    """One launch: grid and block, (all, dynamic) shared bytes of a block, the parameters and where they lie."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: tuple[int, int]
    parameters: bytes
    address: int

    def waves(self, kernel: str, arena: Arena, budget: Budget, output: list[str], most_lanes: int) -> Iterator[Wave]:
        """The waves of the grid in order, each made when it is its turn."""
        blocks = max(1, most_lanes // (-(-math.prod(self.block) // 32) * 32))
        total = math.prod(self.grid)
        for first in range(0, total, blocks):
            yield Wave(
                kernel=kernel,
                arena=arena,
                grid=self.grid,
                block=self.block,
                first_block=first,
                blocks=min(blocks, total - first),
                shared_bytes=self.shared[0],
                dynamic_shared=self.shared[1],
                parameters=self.parameters,
                parameter_address=self.address,
                budget=budget,
                output=output,
            )


def _release(arena: Arena, count: int) -> None:
    """Give back a launch's memory, unless blocks of the device heap outlive it."""
    if any(a.kind == "heap" and not a.freed for a in arena.allocations[count:]):
        for allocation in arena.allocations[count:]:
            allocation.freed = allocation.freed or allocation.kind != "heap"
        return
    arena.release_from(count)


def _extent(what: str, extent: Extent) -> tuple[int, int, int]:
    numbers = (extent,) if isinstance(extent, int | np.integer) else tuple(extent)
    if not 1 <= len(numbers) <= 3 or any(int(n) < 1 for n in numbers):
        raise LaunchError(f"{what} is {extent}, wanted one to three positive numbers")
    x, y, z = (int(n) for n in (*numbers, 1, 1)[:3])
    return x, y, z


def _shared_size(size: int) -> int:
    if size > LARGEST_SHARED:
        raise LaunchError(f"{size} bytes of shared memory, a block may have {LARGEST_SHARED}")
    return size


def _check_shape(
    function: Function, grid: tuple[int, int, int], block: tuple[int, int, int], most_threads: int
) -> None:
    name, threads = demangle(function.name), block[0] * block[1] * block[2]
    if threads > 1024 or block[2] > 64:
        raise LaunchError(f"block {block} has {threads} threads, a block may have 1024 (and 64 in z)")
    if grid[0] > 2**31 - 1 or max(grid[1:]) > 65535:
        raise LaunchError(f"grid {grid} is larger than a device takes (2147483647, 65535, 65535)")
    required = function.directives.get("reqntid")
    if required and (*required, 1, 1)[:3] != block:
        raise LaunchError(f"{name}: block is {block}, the kernel requires {(*required, 1, 1)[:3]}")
    most = function.directives.get("maxntid")
    if most and threads > math.prod(most):
        raise LaunchError(f"{name}: block has {threads} threads, the kernel allows {math.prod(most)}")
    cluster = math.prod(function.directives.get("reqnctapercluster", (1,)))
    if cluster > 1:
        raise LaunchError(f"{name}: the kernel requires clusters of {cluster} blocks, the machine has those of 1")
    total = threads * grid[0] * grid[1] * grid[2]
    if total > most_threads:
        seconds = total * len(function.instructions) / 100e6
        raise LaunchError(
            f"{name}: {total} threads, the machine takes {most_threads};"
            f" at 100 million instructions a second this would be {seconds / 60:.0f} minutes and more"
        )


def _place_variables(program: Program, arena: Arena) -> dict[tuple[str, str], int]:
    """Put every variable into memory and write what it starts with."""
    placed: list[tuple[str, Variable]] = [("", variable) for variable in program.variables.values()]
    placed += [(function.name, v) for function in program.functions.values() for v in function.variables]
    addresses: dict[tuple[str, str], int] = {}
    for owner, variable in placed:
        if variable.space not in ("global", "const") or variable.external:
            continue
        address = arena.allocate(demangle(variable.name), variable.space, variable.size, max(variable.align, 16))
        addresses[owner, variable.name] = address
        arena.slice(address, len(variable.initial))[:] = np.frombuffer(variable.initial, np.uint8)
    functions = function_addresses(program)
    for owner, variable in placed:
        for relocation in variable.relocations:
            symbol = program.aliases.get(relocation.symbol, relocation.symbol)
            target = addresses.get((owner, symbol), addresses.get(("", symbol), functions.get(symbol)))
            if target is None:
                raise LaunchError(
                    f"{program.name}: variable {demangle(variable.name)} holds the address of {demangle(symbol)},"
                    " which is not there"
                )
            value = (target + relocation.addend) >> relocation.shift & ((1 << 8 * relocation.width) - 1)
            data = np.frombuffer(value.to_bytes(relocation.width, "little"), np.uint8)
            arena.slice(addresses[owner, variable.name] + relocation.offset, relocation.width)[:] = data
    return addresses

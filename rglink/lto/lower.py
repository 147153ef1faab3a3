"""Operations that no route to machine code gets right, as calls of compiler_builtins' functions.

LLVM 22's NVPTX back end and libNVVM lower `frem` inexactly (x - y * trunc(x / y), where Rust's `%` is exact), abort
on conversions between floats and 128-bit integers, on transcendental intrinsics and on fences of one thread, and turn
`llvm.exp2.f32` into the approximate `ex2.approx`. Rust's own functions for them are exact (`__fix*ti` saturates and
maps NaN to 0 as Rust's `as` does) or as good as a CPU's libm, so the link defines them from compiler_builtins.

Calls are marked `nobuiltin`, so that no pass turns `fmodf` back into `frem`. Half precision goes through float:
- `frem`: the result of an exact remainder is representable in the operands' own format (IEEE 754-2019, 5.3.1), so
  the remainder of the two extended operands is the same real number and the truncation back is exact.
- 128-bit integer to half: rounding to float first would round twice. Every magnitude from 65,520 on is infinity in
  half, so the integer is clamped to 131,071 and converted from 32 bits, which rounds once.
- half to 128-bit integer: a finite half fits in 32 bits, so the conversion goes through i32; only the saturating
  form sees infinities, and takes the exact extension to float.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rglink.irinst import Call, Instruction, instructions, read_call
from rglink.irtext import Item, ModuleText, expect_equal, skip_type, split_commas

_MATH = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "exp2", "log", "log2", "log10",
    "pow", "atan2",
)  # fmt: skip
_FLOAT_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}
_FLOATS = {suffix: name for name, suffix in _FLOAT_SUFFIX.items()}
_CALL_ATTRIBUTES = "nobuiltin nounwind willreturn memory(none)"

# Which lines may hold such an operation: words first, because a program has many lines; the parser decides.
_WORDS = ("frem ", "i128", "singlethread", "@llvm.")
_CANDIDATE = re.compile(
    r"\bfrem |\b[su]itofp .*i128|\bfpto[su]i .*i128|syncscope\(\"singlethread\"\)|@llvm\.fpto[su]i\.sat\.[v0-9]*i128"
    rf"|@llvm\.(?:{'|'.join(_MATH)}|powi)\."
)
_INTRINSIC = re.compile(rf"llvm\.({'|'.join(_MATH)}|powi|fpto[su]i\.sat)\.([a-z0-9.]+)")
_FLAGS = re.compile(r"(?:(?:nnan|ninf|nsz|arcp|contract|afn|reassoc|fast|nneg) )*")
_VECTOR = re.compile(r"<(\d+) x (.+)>")


@dataclass(frozen=True)
class _Operation:
    """`name`: "frem", "sitofp", "fptosi.sat", "sin", ...; `types` are the operands' types."""

    name: str
    result_type: str
    types: tuple[str, ...]
    operands: tuple[str, ...]


@dataclass
class _Site:
    """Where the lines of one operation go: names of temporaries, and the `!dbg` that every line carries."""

    number: int
    location: str
    lines: list[str] = field(default_factory=list)
    called: dict[str, str] = field(default_factory=dict)
    temporaries: int = 0

    def fresh(self) -> str:
        self.temporaries += 1
        return f"%rglink.lower.{self.number}.{self.temporaries}"

    def add(self, result: str, code: str) -> str:
        self.lines.append(f"  {result} = {code}{self.location}")
        return result

    def call(self, result: str, name: str, result_type: str, *arguments: str) -> str:
        types = ", ".join(argument[: skip_type(argument, 0)] for argument in arguments)
        self.called[name] = f"declare {result_type} @{name}({types})"
        attributes = "" if name.startswith("llvm.") else f" {_CALL_ATTRIBUTES}"
        return self.add(result, f"call {result_type} @{name}({', '.join(arguments)}){attributes}")


def lower_operations(text: ModuleText) -> frozenset[str]:
    """Rewrite every operation named above, and say which functions are now called but not defined.

    Operations on types that Rust does not compile for the device (fp128, bfloat conversions) stay as they are:
    `intrinsics.check_operations` refuses them.

    Raises:
        EditMismatch: a rewritten operation is still there, which is a bug.
    """
    called: dict[str, str] = {}
    number = 0
    for item in text.of_kind("define"):
        if not any(_is_candidate(line) for line in item.body):
            continue
        number = _lower_function(text, item, number, called)
    named = text.named()
    text.add(*(called[name] for name in sorted(called) if name not in named))
    defined = {item.name for item in text.of_kind("define", "alias")}
    return frozenset(name for name in called if name not in defined and not name.startswith("llvm."))


def _is_candidate(line: str) -> bool:
    return any(word in line for word in _WORDS) and _CANDIDATE.search(line) is not None


def _lower_function(text: ModuleText, item: Item, number: int, called: dict[str, str]) -> int:
    replaced: dict[int, list[str]] = {}
    for instruction in list(instructions(item.body)):
        if not _is_candidate(item.body[instruction.index]):
            continue
        if instruction.opcode == "fence" and 'syncscope("singlethread")' in instruction.rest:
            # A compiler fence orders this thread's own accesses: nothing for the machine to do.
            location = _location(text, item, instruction)
            replaced[instruction.index] = [f'  call void asm sideeffect "", "~{{memory}}"(){location}']
            continue
        operation = _read_operation(instruction)
        if operation is None:
            continue
        number += 1
        site = _Site(number, _location(text, item, instruction))
        _lower(site, operation, instruction.result)
        replaced[instruction.index] = site.lines
        called.update(site.called)
    item.body = [line for index, old in enumerate(item.body) for line in replaced.get(index, [old])]
    left = [i for i in instructions(item.body) if i.opcode != "call" and _read_operation(i) is not None]
    expect_equal(f"lowering in {item.name}", len(replaced), len(replaced) + len(left))
    return number


def _location(text: ModuleText, item: Item, instruction: Instruction) -> str:
    """`, !dbg !N` of the instruction; line 0 of its function where it has none but the function has."""
    own = re.search(r", !dbg (!\d+)", item.body[instruction.index])
    if own:
        return own[0]
    scope = re.search(r" !dbg (!\d+)", item.head)
    if scope is None:
        return ""
    # LLVM's verifier wants a location on every call that may be inlined into a function with debug info.
    node = f"!DILocation(line: 0, scope: {scope[1]})"
    for known in text.of_kind("metadata"):
        name, _, content = known.head.partition(" = ")
        if content == node:
            return f", !dbg {name}"
    numbers = [int(m[1]) for known in text.of_kind("metadata") if (m := re.match(r"!(\d+) = ", known.head))]
    name = f"!{max(numbers, default=-1) + 1}"
    text.add(f"{name} = {node}")
    return f", !dbg {name}"


def _read_operation(instruction: Instruction) -> _Operation | None:
    if not instruction.result:
        return None
    if instruction.opcode == "frem":
        return _read_frem(instruction.rest)
    if instruction.opcode in ("sitofp", "uitofp", "fptosi", "fptoui"):
        return _read_cast(instruction.opcode, instruction.rest)
    if instruction.opcode == "call" and "@llvm." in instruction.rest:
        return _read_intrinsic(read_call(instruction))
    return None


def _read_frem(rest: str) -> _Operation | None:
    match = _FLAGS.match(rest)
    start = match.end() if match else 0
    end = skip_type(rest, start)
    kind = rest[start:end]
    if _scalar(kind) not in ("half", "bfloat", "float", "double"):
        return None
    left, right = split_commas(rest[end:])[:2]
    return _Operation("frem", kind, (kind, kind), (left, right))


def _read_cast(opcode: str, rest: str) -> _Operation | None:
    match = _FLAGS.match(rest)
    start = match.end() if match else 0
    end = skip_type(rest, start)
    operand, _, after = rest[end:].rpartition(" to ")
    target = after[: skip_type(after, 0)]
    source = rest[start:end]
    integer, real = (source, target) if opcode.endswith("fp") else (target, source)
    if _scalar(integer) != "i128" or _scalar(real) not in _FLOAT_SUFFIX:
        return None
    return _Operation(opcode, target, (source,), (operand.strip(),))


def _read_intrinsic(call: Call) -> _Operation | None:
    match = _INTRINSIC.fullmatch(call.callee)
    if match is None:
        return None
    types = tuple(argument[: skip_type(argument, 0)] for argument in call.arguments)
    if _scalar(types[0]) not in _FLOAT_SUFFIX or (match[1].startswith("fpto") and _scalar(call.return_type) != "i128"):
        return None
    # The operand is the last word, or a constant expression or vector, which may hold spaces.
    operands = tuple(_operand(argument) for argument in call.arguments)
    return _Operation(match[1], call.return_type, types, operands)


def _operand(argument: str) -> str:
    """The value of a printed argument: "float noundef %x" gives "%x"."""
    rest = argument[skip_type(argument, 0) :].strip()
    while match := re.match(r"[a-z_]+(?:\([^()]*(?:\([^()]*\)[^()]*)*\))? (?=[^\s(])", rest):
        rest = rest[match.end() :]
    return rest


def _scalar(kind: str) -> str:
    match = _VECTOR.fullmatch(kind)
    return match[2] if match else kind


def _lower(site: _Site, operation: _Operation, result: str) -> None:
    vector = _VECTOR.fullmatch(operation.result_type)
    if vector is None:
        _lower_scalar(site, operation, result)
        return
    count, element = int(vector[1]), vector[2]
    whole = "poison"
    for lane in range(count):
        operands: list[str] = []
        for kind, operand in zip(operation.types, operation.operands, strict=True):
            # `powi` has a scalar exponent for all lanes.
            scalar = _VECTOR.fullmatch(kind) is None
            code = f"extractelement {kind} {operand}, i64 {lane}"
            operands.append(operand if scalar else site.add(site.fresh(), code))
        types = tuple(_scalar(kind) for kind in operation.types)
        value = site.fresh()
        _lower_scalar(site, _Operation(operation.name, element, types, tuple(operands)), value)
        target = result if lane == count - 1 else site.fresh()
        code = f"insertelement {operation.result_type} {whole}, {element} {value}, i64 {lane}"
        whole = site.add(target, code)


def _lower_scalar(site: _Site, operation: _Operation, result: str) -> None:
    if operation.name in ("sitofp", "uitofp"):
        _integer_to_float(site, operation, result)
    elif operation.name.startswith("fpto"):
        _float_to_integer(site, operation, result)
    else:
        _real_function(site, operation, result)


def _real_function(site: _Site, operation: _Operation, result: str) -> None:
    """A function of reals, in half precision (and `frem` in bfloat) by way of float."""
    kind = operation.result_type
    wide = "double" if kind == "double" else "float"
    arguments: list[str] = []
    for argument_type, operand in zip(operation.types, operation.operands, strict=True):
        if argument_type in ("half", "bfloat"):
            operand = site.add(site.fresh(), f"fpext {argument_type} {operand} to float")
            argument_type = "float"
        arguments.append(f"{argument_type} {operand}")
    value = result if kind == wide else site.fresh()
    site.call(value, _function_name(operation.name, wide), wide, *arguments)
    if kind != wide:
        site.add(result, f"fptrunc float {value} to {kind}")


def _function_name(operation: str, kind: str) -> str:
    if operation == "powi":
        return "__powidf2" if kind == "double" else "__powisf2"
    base = "fmod" if operation == "frem" else operation
    return base if kind == "double" else f"{base}f"


def _integer_to_float(site: _Site, operation: _Operation, result: str) -> None:
    kind, operand = operation.result_type, operation.operands[0]
    signed = operation.name == "sitofp"
    if kind != "half":
        letter = "d" if kind == "double" else "s"
        name = f"__float{'' if signed else 'un'}ti{letter}f"
        site.call(result, name, kind, f"i128 {operand}")
        return
    minimum = "smin" if signed else "umin"
    value = site.call(site.fresh(), f"llvm.{minimum}.i128", "i128", f"i128 {operand}", "i128 131071")
    if signed:
        value = site.call(site.fresh(), "llvm.smax.i128", "i128", f"i128 {value}", "i128 -131071")
    narrow = site.add(site.fresh(), f"trunc i128 {value} to i32")
    site.add(result, f"sitofp i32 {narrow} to half")


def _float_to_integer(site: _Site, operation: _Operation, result: str) -> None:
    kind, operand = operation.types[0], operation.operands[0]
    signed = operation.name.startswith("fptosi")
    if kind == "half" and not operation.name.endswith(".sat"):
        narrow = site.add(site.fresh(), f"{operation.name} half {operand} to i32")
        site.add(result, f"{'sext' if signed else 'zext'} i32 {narrow} to i128")
        return
    if kind == "half":
        operand = site.add(site.fresh(), f"fpext half {operand} to float")
        kind = "float"
    name = f"__fix{'' if signed else 'uns'}{'d' if kind == 'double' else 's'}fti"
    site.call(result, name, "i128", f"{kind} {operand}")

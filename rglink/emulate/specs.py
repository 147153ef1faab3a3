"""Arguments of a launch as text: `f32[1024]=random`, `out:f32[1024]`, `slice:u32[8]=arange`, `f32=1.5`, `@x.npy`.

SPEC  := { PREFIX ":" } BODY
PREFIX := "out" | "slice" | FILE ".npy" | NAME
BODY  := TYPE "[" EXTENT { "," EXTENT } "]" [ "=" INIT ] | TYPE "=" NUMBER | "@" FILE | "hex=" DIGITS
INIT  := "zeros" | "ones" | "arange" [ ":" START [ ":" STEP ] ] | "random" [ ":" LOW ":" HIGH ]
       | NUMBER { "," NUMBER } | "@" FILE
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rglink.diagnostics import InputError
from rglink.emulate.arguments import Argument
from rglink.emulate.errors import LaunchError

TYPES = {
    **{f"{kind}{8 * size}": f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)},
    **{f"f{8 * size}": f"f{size}" for size in (2, 4, 8)},
    "usize": "u8",
    "isize": "i8",
    "bool": "?",
}
WIDE_INTEGERS = {"u128": False, "i128": True}  # scalars alone; the value says whether they are signed
PREFIX = re.compile(r"([^:=@\[]+):")
ARRAY = re.compile(r"(\w+)\[([^\]]*)\](?:=(.*))?", re.DOTALL)
SCALAR = re.compile(r"(\w+)=(.*)", re.DOTALL)
NAME = re.compile(r"[A-Za-z_]\w*")
# Elements of an array that are printed before it is cut in the middle.
MOST_SHOWN = 32
# Arrays are held three times: here, as they were, and in the machine's memory.
LARGEST_ARRAY = 1 << 30
EXAMPLE = "wanted for example f32[1024]=random, out:f32[1024], slice:u32[8]=arange, u64=1024 or @x.npy"


@dataclass(frozen=True)
class ArgumentSpec:
    """One argument as it was asked for.

    `number` counts from 1; `name` is how it is called in what is printed. `out` says that it is printed afterwards,
    `sliced` that it is passed as pointer and length, `save` names the NumPy file for its result ("" for none). An array
    has a `shape`, or is all in a `file`; `type` is Rust's name, "" where a file or bytes say it; `init` is the text
    after `=`.
    """

    text: str
    number: int
    name: str
    type: str
    shape: tuple[int, ...] | None
    init: str
    out: bool = False
    sliced: bool = False
    save: str = ""
    file: str = ""

    @property
    def is_array(self) -> bool:
        return self.shape is not None or bool(self.file)

    @property
    def unwritten(self) -> bool:
        """Whether it holds nothing until the kernel writes it: an output that was given nothing to begin with."""
        return self.out and self.shape is not None and not self.init


@dataclass(frozen=True)
class Prepared:
    """A spec with what is passed for it; of an array also the array, and a copy of what it began with."""

    spec: ArgumentSpec
    value: Argument
    array: NDArray[Any] | None = None
    before: NDArray[Any] | None = None

    @property
    def changed(self) -> bool:
        """Whether the kernel left other bytes than it was given."""
        if self.array is None or self.before is None:
            return False
        return self.array.tobytes() != self.before.tobytes()

    @property
    def size(self) -> int:
        """Bytes that are passed: of an array those of its pointer, of a slice pointer and length."""
        if self.array is not None:
            return 16 if self.spec.sliced else 8
        return len(self.value) if isinstance(self.value, bytes) else int(np.asarray(self.value).nbytes)

    @property
    def type(self) -> str:
        """`f32[1024]`, `u64`, `hex of 8 bytes`."""
        if self.array is None:
            return self.spec.type or f"hex of {self.size} bytes"
        extents = ",".join(map(str, self.array.shape))
        return f"{'slice:' if self.spec.sliced else ''}{type_name(self.array.dtype)}[{extents}]"


def parse_specs(texts: Sequence[str]) -> tuple[ArgumentSpec, ...]:
    """The arguments of a launch in order.

    Raises:
        LaunchError: one that is not of the grammar, or two of one name.
    """
    specs = tuple(_parse_spec(text, number) for number, text in enumerate(texts, 1))
    names = [spec.name for spec in specs]
    for spec in specs:
        if names.count(spec.name) > 1:
            raise LaunchError(f"--arg {spec.text}: two arguments are called {spec.name}")
    return specs


def with_saves(specs: Sequence[ArgumentSpec], saves: Sequence[str]) -> tuple[ArgumentSpec, ...]:
    """The specs with `--save INDEX=FILE` or `NAME=FILE` applied.

    Raises:
        LaunchError: not of that form, or no such argument, or one that is no array.
    """
    found = list(specs)
    for text in saves:
        key, equals, path = text.partition("=")
        if not equals or not path:
            raise LaunchError(f"--save {text}: wanted INDEX=FILE or NAME=FILE")
        for at, spec in enumerate(found):
            if key in (str(spec.number), spec.name):
                if not spec.is_array:
                    raise LaunchError(f"--save {text}: argument {spec.number} ({spec.text}) is no array")
                found[at] = replace(spec, save=path, out=True)
                break
        else:
            known = ", ".join(spec.name for spec in specs) or "none"
            raise LaunchError(f"--save {text}: no argument {key}; the arguments are {known}")
    return tuple(found)


def prepare(specs: Sequence[ArgumentSpec], seed: int) -> tuple[Prepared, ...]:
    """Make what the specs say; equal seeds make equal random data.

    Raises:
        LaunchError: a value that its type cannot hold, or another number of values than elements.
        InputError: a file that is no array or cannot be read.
    """
    return tuple(_prepare(spec, np.random.default_rng([seed & (2**63 - 1), spec.number])) for spec in specs)


def shown(array: NDArray[Any]) -> str:
    """An array as NumPy prints it, long ones cut in the middle."""
    return np.array2string(array, threshold=MOST_SHOWN, edgeitems=4, max_line_width=110)


def values_of(array: NDArray[Any]) -> list[Any]:
    """An array as nested lists of what JSON has; NaN and infinities as text."""
    plain = array.astype(object) if array.dtype.kind == "f" and not np.isfinite(array).all() else array
    if plain is not array:
        plain = np.vectorize(lambda value: value if np.isfinite(value) else str(value), otypes=[object])(array)
    listed: list[Any] = plain.tolist()
    return listed


def save(array: NDArray[Any], path: str) -> None:
    """Write a NumPy file, under exactly this name.

    Raises:
        InputError: it cannot be written.
    """
    try:
        with open(path, "wb") as file:
            np.save(file, array)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def type_name(dtype: np.dtype[Any]) -> str:
    """Rust's name of an element type."""
    return {"b": "bool"}.get(dtype.kind, f"{dtype.kind}{8 * dtype.itemsize}")


def _parse_spec(text: str, number: int) -> ArgumentSpec:
    rest, out, sliced, path, name = text, False, False, "", ""
    while (prefix := PREFIX.match(rest)) is not None:
        word, rest = prefix[1], rest[prefix.end() :]
        if word == "out":
            out = True
        elif word == "slice":
            sliced = True
        elif word.endswith(".npy"):
            out, path = True, word
        elif NAME.fullmatch(word) and word not in TYPES and not name:
            name = word
        else:
            raise LaunchError(f"--arg {text}: {word!r} before the colon means nothing, {EXAMPLE}")
    name = name or f"arg{number}"
    spec = ArgumentSpec(text, number, name, "", None, "", out, sliced, path)
    if rest.startswith("@") and len(rest) > 1:
        return replace(spec, file=rest[1:])
    array = ARRAY.fullmatch(rest)
    if array is not None:
        return replace(spec, type=_known(text, array[1]), shape=_extents(text, array[2]), init=array[3] or "")
    scalar = SCALAR.fullmatch(rest)
    if scalar is None or not scalar[2]:
        raise LaunchError(f"--arg {text}: is no argument, {EXAMPLE}")
    if out or sliced:
        raise LaunchError(f"--arg {text}: a number cannot be {'a slice' if sliced else 'an output'}, an array can")
    kind = "" if scalar[1] == "hex" else scalar[1]
    return replace(spec, type=kind if kind in ("", *WIDE_INTEGERS) else _known(text, kind), init=scalar[2])


def _known(text: str, kind: str) -> str:
    if kind not in TYPES:
        raise LaunchError(f"--arg {text}: unknown type {kind}, known are {', '.join(sorted(TYPES))}")
    return kind


def _extents(text: str, extents: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part, 0) for part in re.split("[,x]", extents))
    except ValueError:
        raise LaunchError(f"--arg {text}: [{extents}] is no shape, wanted for example [1024] or [32,32]") from None
    if any(extent < 0 for extent in shape):
        raise LaunchError(f"--arg {text}: [{extents}] has a negative extent")
    return shape


def _prepare(spec: ArgumentSpec, source: np.random.Generator) -> Prepared:
    if spec.file:
        return _array_argument(spec, _read(spec, spec.file))
    if spec.shape is None:
        return Prepared(spec, _scalar(spec))
    size = math.prod(spec.shape) * np.dtype(TYPES[spec.type]).itemsize
    if size > LARGEST_ARRAY:
        raise LaunchError(f"--arg {spec.text}: {size} bytes, an array may have {LARGEST_ARRAY}")
    return _array_argument(spec, _filled(spec, spec.shape, source))


def _array_argument(spec: ArgumentSpec, array: NDArray[Any]) -> Prepared:
    return Prepared(spec, (array, array.size) if spec.sliced else array, array, array.copy())


def _read(spec: ArgumentSpec, path: str) -> NDArray[Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        raise InputError(f"{path}: is no NumPy array (--arg {spec.text}): {error}") from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iufb":
        kind = array.dtype if isinstance(array, np.ndarray) else "an archive of several"
        raise InputError(f"{path}: is {kind}, wanted one array of numbers (--arg {spec.text})")
    return np.ascontiguousarray(array)


def _scalar(spec: ArgumentSpec) -> Argument:
    if not spec.type:
        try:
            return bytes.fromhex(spec.init)
        except ValueError:
            raise LaunchError(f"--arg {spec.text}: wanted pairs of hexadecimal digits") from None
    if spec.type in WIDE_INTEGERS:
        value = _number(spec, spec.init, "i")
        try:
            return int(value).to_bytes(16, "little", signed=WIDE_INTEGERS[spec.type])
        except OverflowError:
            raise LaunchError(f"--arg {spec.text}: {value} does not fit into {spec.type}") from None
    return _elements(spec, [spec.init])[0]  # type: ignore[no-any-return]


def _filled(spec: ArgumentSpec, shape: tuple[int, ...], source: np.random.Generator) -> NDArray[Any]:
    dtype = np.dtype(TYPES[spec.type])
    word, _, rest = (spec.init or "zeros").partition(":")
    numbers = rest.split(":") if rest else []
    count = math.prod(shape)
    if word in ("zeros", "ones") and not numbers:
        return np.full(shape, word == "ones", dtype)
    if word == "arange" and len(numbers) <= 2:
        given = _numbers(spec, numbers)
        start, step = given + [0, 1][len(given) :]
        places: NDArray[Any] = np.arange(count).astype(np.float64 if dtype.kind == "f" else np.int64)
        return np.reshape((places * step + start).astype(dtype), shape)
    if word == "random" and len(numbers) in (0, 2):
        return _random(spec, dtype, shape, _numbers(spec, numbers), source)
    if spec.init.startswith("@"):
        array = _read(spec, spec.init[1:])
        if array.dtype != dtype or array.size != count:
            raise InputError(f"{spec.init[1:]}: holds {type_name(array.dtype)}[{array.size}], --arg {spec.text}")
        return np.reshape(array, shape)
    values = _elements(spec, spec.init.split(","))
    if len(values) not in (1, count):
        raise LaunchError(f"--arg {spec.text}: {len(values)} values for {count} elements")
    return np.resize(values, shape)


def _random(
    spec: ArgumentSpec, dtype: np.dtype[Any], shape: tuple[int, ...], bounds: list[Any], source: np.random.Generator
) -> NDArray[Any]:
    """Floats from -1 to 1, integers from the whole range of their type, or from `bounds` (the high one left out)."""
    if dtype.kind == "f":
        low, high = bounds or (-1.0, 1.0)
        return source.uniform(low, high, shape).astype(dtype)
    if dtype.kind == "b":
        return source.integers(0, 2, shape).astype(dtype)
    info = np.iinfo(dtype)
    low, high = bounds or (int(info.min), int(info.max) + 1)
    if not info.min <= low < high <= int(info.max) + 1:
        raise LaunchError(f"--arg {spec.text}: {low} to {high} is no range of {spec.type}")
    integers: Any = source.integers  # NumPy types it by dtype, which only the spec knows
    drawn: NDArray[Any] = integers(low, high, shape, dtype=dtype)
    return drawn


def _numbers(spec: ArgumentSpec, texts: list[str]) -> list[Any]:
    return [_number(spec, text, np.dtype(TYPES[spec.type]).kind) for text in texts]


def _number(spec: ArgumentSpec, text: str, kind: str) -> int | float:
    try:
        return float(text) if kind == "f" else int(text, 0)
    except ValueError:
        wanted = "a number" if kind == "f" else "an integer"
        raise LaunchError(f"--arg {spec.text}: {text!r} is not {wanted}, {EXAMPLE}") from None


def _elements(spec: ArgumentSpec, texts: list[str]) -> NDArray[Any]:
    """Numbers as elements of the spec's type."""
    dtype = np.dtype(TYPES[spec.type])
    if dtype.kind == "b":
        texts = [{"true": "1", "false": "0"}.get(text, text) for text in texts]
    numbers = [_number(spec, text, dtype.kind) for text in texts]
    for number in numbers:
        fits = dtype.kind == "f" or (
            number in (0, 1) if dtype.kind == "b" else np.iinfo(dtype).min <= number <= np.iinfo(dtype).max
        )
        if not fits:
            raise LaunchError(f"--arg {spec.text}: {number} does not fit into {spec.type}")
    return np.array(numbers, dtype)

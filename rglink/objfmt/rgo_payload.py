"""Contents of `.rgo` sections: producer and summary as JSON, metadata as names and bytes.

JSON because its C parser reads a summary as fast as anything in the standard library does, and because it is
readable in a dump. Strings may hold bytes that are not UTF-8 as lone surrogates, as `surrogateescape` makes them.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeVar, cast, get_args

from rglink.diagnostics import InputError
from rglink.objfmt.summary import Binding, Kind, ModuleSummary, Symbol

METADATA_HEAD = struct.Struct("<HHH")  # lengths of crate name, hash, file name; then these, then the metadata
# The file is unpacked into a folder that rustc searches: nothing but a plain name may leave it.
METADATA_FILE = re.compile(r"lib[A-Za-z0-9_][A-Za-z0-9_-]*\.rmeta", re.ASCII)

KINDS = frozenset(get_args(Kind))
BINDINGS = frozenset(get_args(Binding))

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Producer:
    """Who made the file and how.

    `rustc`, `llvm` and `rglink` are versions; `flags` what rustc was given that changes code; `protected` whether
    barriers and shared memory are intact (device-abi.md).
    """

    rustc: str
    llvm: str
    rglink: str
    flags: tuple[str, ...]
    protected: bool
    crate_name: str


@dataclass(frozen=True)
class CrateMetadata:
    """Rust metadata of one crate: `hash` tells crates of one name apart, `file_name` ("libdep-1f2e.rmeta") is what
    rustc looks for."""

    crate: str
    hash: str
    file_name: str
    data: bytes


class _Malformed(Exception):
    """The contents are not of the documented form; the text says where."""


def encode_producer(producer: Producer) -> bytes:
    """JSON: [rustc, llvm, rglink, [flags], protected, crate name]."""
    return _dump(
        [
            producer.rustc,
            producer.llvm,
            producer.rglink,
            list(producer.flags),
            producer.protected,
            producer.crate_name,
        ]
    )


def decode_producer(file: str, data: bytes) -> Producer:
    """The reverse of `encode_producer`.

    Raises:
        InputError: malformed contents.
    """
    try:
        rustc, llvm, rglink, flags, protected, crate_name = _fields(_load(data), 6)
        return Producer(
            _of(str, rustc),
            _of(str, llvm),
            _of(str, rglink),
            _texts(flags),
            _of(bool, protected),
            _of(str, crate_name),
        )
    except _Malformed as error:
        raise InputError(f"{file}: producer section is malformed: {error}") from None


def encode_summary(summary: ModuleSummary) -> bytes:
    """JSON: [triple, ident, protected, [used], [symbols]].

    A symbol is [name, kind, binding, type, addrspace, constant, section, align, [refs]]; a ref is the number of a
    symbol of the list, or a name when it is none of them.
    """
    numbers = {symbol.name: number for number, symbol in enumerate(summary.symbols)}
    symbols: list[JsonValue] = [_row(symbol, numbers) for symbol in summary.symbols]
    return _dump([summary.triple, summary.ident, summary.protected, list(summary.used), symbols])


def decode_summary(file: str, data: bytes) -> ModuleSummary:
    """The reverse of `encode_summary`.

    Raises:
        InputError: malformed contents.
    """
    try:
        triple, ident, protected, used, rows = _fields(_load(data), 5)
        fields = [_fields(row, 9) for row in _of(list, rows)]
        names = [_of(str, row[0]) for row in fields]
        return ModuleSummary(
            triple=_of(str, triple),
            ident=_of(str, ident),
            protected=None if protected is None else _of(bool, protected),
            symbols=tuple(_symbol(row, names) for row in fields),
            used=_texts(used),
        )
    except _Malformed as error:
        raise InputError(f"{file}: summary section is malformed: {error}") from None


def encode_metadata(entry: CrateMetadata) -> bytes:
    """Three lengths, three names, then the metadata's bytes.

    Raises:
        ValueError: the file name is not of the form `lib<name>.rmeta`, or a name has more than 65,535 bytes.
    """
    if not METADATA_FILE.fullmatch(entry.file_name):
        raise ValueError(f"not a metadata file name: {entry.file_name!r}")
    names = [name.encode() for name in (entry.crate, entry.hash, entry.file_name)]
    if any(len(name) > 0xFFFF for name in names):
        raise ValueError(f"a name of crate {entry.crate[:40]!r} is longer than 65,535 bytes")
    return METADATA_HEAD.pack(*map(len, names)) + b"".join(names) + entry.data


def decode_metadata(file: str, data: bytes) -> CrateMetadata:
    """The reverse of `encode_metadata`.

    Raises:
        InputError: names reach outside, are not UTF-8, or the file name is not a plain one.
    """
    lengths = METADATA_HEAD.unpack_from(data) if len(data) >= METADATA_HEAD.size else (len(data),) * 3
    ends = list(accumulate(lengths, initial=METADATA_HEAD.size))
    if ends[-1] > len(data):
        raise InputError(f"{file}: metadata section of {len(data)} bytes is too short for its names")
    try:
        crate, hash_, file_name = (data[start:end].decode() for start, end in pairwise(ends))
    except UnicodeDecodeError:
        raise InputError(f"{file}: metadata section has a name that is not UTF-8") from None
    if not METADATA_FILE.fullmatch(file_name):
        raise InputError(f"{file}: metadata section names the file {file_name!r}, wanted lib<name>.rmeta")
    return CrateMetadata(crate, hash_, file_name, data[ends[-1] :])


def _row(s: Symbol, numbers: Mapping[str, int]) -> list[JsonValue]:
    refs: list[JsonValue] = [numbers.get(ref, ref) for ref in s.refs]
    return [s.name, s.kind, s.binding, s.type, s.addrspace, s.constant, s.section, s.align, refs]


def _symbol(row: list[JsonValue], names: list[str]) -> Symbol:
    name, kind, binding, type_, addrspace, constant, section, align, refs = row
    if _of(str, kind) not in KINDS or _of(str, binding) not in BINDINGS:
        raise _Malformed(f"symbol {name!r} is of kind {kind!r} and binding {binding!r}")
    return Symbol(
        name=_of(str, name),
        kind=cast(Kind, kind),
        binding=cast(Binding, binding),
        type=_of(str, type_),
        addrspace=_of(int, addrspace),
        constant=_of(bool, constant),
        section=_of(str, section),
        align=_of(int, align),
        refs=tuple(_ref(ref, names) for ref in _of(list, refs)),
    )


def _ref(ref: JsonValue, names: list[str]) -> str:
    if type(ref) is int:
        if not 0 <= ref < len(names):
            raise _Malformed(f"reference to symbol {ref} of {len(names)}")
        return names[ref]
    return _of(str, ref)


def _dump(value: JsonValue) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _load(data: bytes) -> JsonValue:
    try:
        value: JsonValue = json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise _Malformed("not JSON") from None
    return value


def _of(wanted: type[_T], value: object) -> _T:
    """`value`, which must be of exactly that type: True is no number here."""
    if type(value) is not wanted:
        raise _Malformed(f"found {type(value).__name__}, wanted {wanted.__name__}")
    return value


def _fields(value: JsonValue, count: int) -> list[JsonValue]:
    fields = _of(list, value)
    if len(fields) != count:
        raise _Malformed(f"found {len(fields)} fields, wanted {count}")
    return fields


def _texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(_of(str, item) for item in _of(list, value))

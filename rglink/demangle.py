"""Rust symbol names made readable, for messages and patterns.

v0 names follow RFC 2603 ("Rust Symbol Name Mangling v0") and the rustc book's "v0 Symbol Format"; legacy names are
the Itanium-like ones with a hash. The text is that of rustc's own short form: no hashes, no types of integer
constants. A name that is not mangled, or not as the grammar says, is returned as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

Style = Literal["full", "path"]

MAX_DEPTH = 300  # nested productions, as deep as rustc's own demangler would go
MAX_LENGTH = 16_384  # characters of output: back references can make a short name expand exponentially

_BASIC = {
    "a": "i8", "b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32", "h": "u8", "i": "isize", "j": "usize",
    "l": "i32", "m": "u32", "n": "i128", "o": "u128", "p": "_", "s": "i16", "t": "u16", "u": "()", "v": "...",
    "x": "i64", "y": "u64", "z": "!",
}  # fmt: skip
_UNSIGNED = frozenset("htmyoj")
_SIGNED = frozenset("aslxni")
_LEGACY = re.compile(r"_?_ZN((?:\d+[^\d].*?)+)17h[0-9a-f]{16}E")
_LEGACY_ESCAPE = re.compile(r"\$(SP|BP|RF|LT|GT|LP|RP|C|u[0-9a-f]{1,6})\$|\.\.|\.")
_LEGACY_CHAR = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}


class _Malformed(Exception):
    """The name is not of the grammar, or too deep or too long."""


def demangle(name: str) -> str:
    """The readable form of a v0 or legacy Rust name: `dep::scale::<f32>`; other names come back unchanged."""
    return _demangled(name, "full")


def path_of(name: str) -> str:
    """As `demangle`, without generic arguments: `dep::scale`."""
    return _demangled(name, "path")


def crate_of(name: str) -> str:
    """The crate in which a Rust name was written (of a generic's instance: the generic's), "" for other names."""
    if name.startswith("_R"):
        reader = _V0(name[2:], "path")
        try:
            reader.symbol()
        except _Malformed:
            return ""
        return reader.crate
    readable = _legacy(name)
    match = re.search(r"[A-Za-z_][A-Za-z0-9_]*(?=::)", readable) if readable else None
    return match[0] if match else ""


def instance_of(name: str) -> str:
    """A v0 name without the crate that made the instance: equal for one generic with equal arguments, whichever
    crates instantiated it. Other names come back unchanged."""
    if not name.startswith("_R"):
        return name
    reader = _V0(name[2:], "path")
    try:
        reader.symbol()
    except _Malformed:
        return name
    return name[: 2 + reader.path_end]


def is_mangled(name: str) -> bool:
    """Whether `name` is a Rust compiler's v0 or legacy name."""
    return _demangled(name, "full") != name


@lru_cache(maxsize=65_536)
def _demangled(name: str, style: Style) -> str:
    if name.startswith("_R"):
        try:
            return _V0(name[2:], style).symbol()
        except _Malformed:
            return name
    readable = _legacy(name)
    if readable is None:
        return name
    return _without_generics(readable) if style == "path" else readable


def _legacy(name: str) -> str | None:
    match = _LEGACY.match(name)
    if match is None:
        return None
    parts: list[str] = []
    rest = match[1]
    while rest:
        length = re.match(r"\d+", rest)
        if length is None:
            return None
        end = length.end() + int(length[0])
        if end > len(rest) or int(length[0]) == 0:
            return None
        parts.append(_legacy_part(rest[length.end() : end]))
        rest = rest[end:]
    return "::".join(parts)


def _legacy_part(part: str) -> str:
    if part.startswith("_$"):
        part = part[1:]

    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if code is None:
            return "::" if match[0] == ".." else "."
        if code.startswith("u"):
            number = int(code[1:], 16)
            return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else match[0]
        return _LEGACY_CHAR[code]

    return _LEGACY_ESCAPE.sub(replace, part)


def _without_generics(text: str) -> str:
    """Drop `<...>` that follows a name; one that begins a path (`<T as Trait>`) stays, emptied of inner ones."""
    out: list[str] = []
    dropped: list[bool] = []
    for index, char in enumerate(text):
        if char == "<":
            before = text[index - 1] if index else ""
            dropped.append(before.isalnum() or (before in "_:" and index > 1))
        if not any(dropped):
            out.append(char)
        if char == ">" and text[index - 1 : index] != "-" and dropped:
            dropped.pop()
    return "".join(out).replace("::::", "::").removesuffix("::")


class _V0:
    """A reader of one v0 name (without `_R`). Positions count from after the prefix, as back references do."""

    def __init__(self, text: str, style: Style) -> None:
        self.text = text
        self.style = style
        self.at = 0
        self.depth = 0
        self.written = 0
        self.lifetimes = 0
        self.path_end = 0
        self.crate = ""  # the root that was met first

    def symbol(self) -> str:
        if not self.text[:1].isupper():
            raise _Malformed  # a decimal here would be an encoding version newer than the grammar
        readable = self.path(value=True)
        self.path_end = self.at
        if self.text[self.at : self.at + 1].isupper():
            self.path(value=False)  # the instantiating crate
        suffix = self.text[self.at :]
        if suffix and suffix[0] not in ".$":
            raise _Malformed
        return readable if suffix.startswith(".llvm.") or not suffix else f"{readable} ({suffix})"

    # Lexical parts

    def take(self) -> str:
        if self.at >= len(self.text):
            raise _Malformed
        self.at += 1
        return self.text[self.at - 1]

    def accept(self, char: str) -> bool:
        if self.text[self.at : self.at + 1] != char:
            return False
        self.at += 1
        return True

    def base_62(self) -> int:
        end = self.text.find("_", self.at)
        digits = self.text[self.at : end] if end >= 0 else "!"
        if not re.fullmatch(r"[0-9a-zA-Z]{0,12}", digits):
            raise _Malformed
        self.at = end + 1
        value = 0
        for char in digits:
            value = value * 62 + "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ".index(char)
        return value + 1 if digits else 0

    def disambiguator(self) -> int:
        return self.base_62() + 1 if self.accept("s") else 0

    def identifier(self) -> str:
        """An identifier without its disambiguator."""
        encoded = self.accept("u")
        match = re.compile(r"0|[1-9]\d{0,5}").match(self.text, self.at)
        if match is None:
            raise _Malformed
        self.at = match.end()
        self.accept("_")
        end = self.at + int(match[0])
        if end > len(self.text):
            raise _Malformed
        raw, self.at = self.text[self.at : end], end
        return self.sized(_from_punycode(raw) if encoded else raw)

    def sized(self, text: str) -> str:
        self.written += len(text)
        if self.written > MAX_LENGTH:
            raise _Malformed
        return text

    def back_reference_target(self) -> int:
        start = self.at - 1
        target = self.base_62()
        if target >= start:
            raise _Malformed
        return target

    # Nested productions

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Malformed

    def path(self, value: bool) -> str:
        """A path; `value` says that generic arguments are written after `::`."""
        self.enter()
        tag = self.take()
        if tag == "C":
            self.disambiguator()
            text = self.identifier()
            self.crate = self.crate or text
        elif tag == "N":
            text = self.nested(value)
        elif tag in "MXY":
            text = self.qualified(tag)
        elif tag == "I":
            text = self.path(value)
            arguments = self.list_until_end(self.generic_argument)
            if self.style == "full":
                text += f"{'::' if value else ''}<{', '.join(arguments)}>"
        elif tag == "B":
            text = self.jump(lambda: self.path(value))
        else:
            raise _Malformed
        self.depth -= 1
        return self.sized(text)

    def nested(self, value: bool) -> str:
        namespace = self.take()
        outer = self.path(value)
        number = self.disambiguator()
        name = self.identifier()
        if namespace.isupper():
            kind = {"C": "closure", "S": "shim"}.get(namespace, namespace)
            return f"{outer}::{{{kind}{':' if name else ''}{name}#{number}}}"
        if not namespace.islower():
            raise _Malformed
        return f"{outer}::{name}" if name else outer

    def qualified(self, tag: str) -> str:
        if tag in "MX":
            self.disambiguator()
            self.path(value=False)  # where the impl stands
        of = self.type()
        return f"<{of}>" if tag == "M" else f"<{of} as {self.path(value=False)}>"

    def list_until_end(self, read: Callable[[], str]) -> list[str]:
        parts: list[str] = []
        while not self.accept("E"):
            parts.append(read())
        return parts

    def jump(self, read: Callable[[], str]) -> str:
        target = self.back_reference_target()
        back, self.at = self.at, target
        text = read()
        self.at = back
        return self.sized(text)

    def generic_argument(self) -> str:
        if self.accept("L"):
            return self.lifetime()
        return self.constant() if self.accept("K") else self.type()

    def lifetime(self) -> str:
        index = self.base_62()
        if index == 0:
            return "'_"
        depth = self.lifetimes - index
        if depth < 0:
            raise _Malformed
        return f"'{chr(ord('a') + depth)}" if depth < 26 else f"'z{depth - 25}"

    def type(self) -> str:
        self.enter()
        tag = self.take()
        text = _BASIC.get(tag) or self.compound(tag)
        self.depth -= 1
        return self.sized(text)

    def compound(self, tag: str) -> str:
        if tag in "RQ":
            lifetime = self.lifetime() if self.accept("L") else "'_"
            shown = "" if lifetime == "'_" else f"{lifetime} "
            return f"&{shown}{'mut ' if tag == 'Q' else ''}{self.type()}"
        if tag in "PO":
            return f"*{'const' if tag == 'P' else 'mut'} {self.type()}"
        if tag == "A":
            return f"[{self.type()}; {self.constant()}]"
        if tag == "S":
            return f"[{self.type()}]"
        if tag == "T":
            parts = self.list_until_end(self.type)
            return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
        if tag == "F":
            return self.bound(self.signature)
        if tag == "D":
            return self.dynamic()
        if tag == "B":
            return self.jump(self.type)
        self.at -= 1
        return self.path(value=False)

    def bound(self, read: Callable[[], str]) -> str:
        """A production that may introduce lifetimes (`for<'a> ...`)."""
        count = self.base_62() + 1 if self.accept("G") else 0
        if count > 64:
            raise _Malformed
        names: list[str] = []
        for _ in range(count):
            self.lifetimes += 1
            depth = self.lifetimes - 1
            names.append(f"'{chr(ord('a') + depth)}" if depth < 26 else f"'z{depth - 25}")
        text = read()
        self.lifetimes -= count
        return f"for<{', '.join(names)}> {text}" if names else text

    def signature(self) -> str:
        unsafe = "unsafe " if self.accept("U") else ""
        abi = ""
        if self.accept("K"):
            abi = "C" if self.accept("C") else self.identifier().replace("_", "-")
            abi = f'extern "{abi}" '
        inputs = ", ".join(self.list_until_end(self.type))
        output = self.type()
        return f"{unsafe}{abi}fn({inputs}){'' if output == '()' else f' -> {output}'}"

    def dynamic(self) -> str:
        bounds = self.bound(lambda: " + ".join(self.list_until_end(self.dynamic_trait)))
        if not self.accept("L"):
            raise _Malformed
        lifetime = self.lifetime()
        return f"dyn {bounds}" + ("" if lifetime == "'_" else f" + {lifetime}")

    def dynamic_trait(self) -> str:
        self.enter()
        text, is_open = self.open_path()
        while self.accept("p"):
            name = self.identifier()
            text += ", " if is_open else "<"
            is_open = True
            text += f"{name} = {self.type()}"
        self.depth -= 1
        return text + (">" if is_open else "")

    def open_path(self) -> tuple[str, bool]:
        """A trait's path; when it has generic arguments their `>` is left to the caller."""
        if self.accept("B"):
            target = self.back_reference_target()
            back, self.at = self.at, target
            found = self.open_path()
            self.at = back
            return found
        text = self.path(value=False)
        if text.endswith(">") and not text.startswith("<"):
            return text[:-1], True
        return text, False

    def constant(self, braces: bool = True) -> str:
        self.enter()
        tag = self.take()
        if tag == "p":
            text = "_"
        elif tag == "B":
            text = self.jump(lambda: self.constant(braces))
        elif tag in _UNSIGNED or tag in _SIGNED:
            text = self.integer(tag in _SIGNED)
        elif tag == "b":
            text = {0: "false", 1: "true"}.get(self.hexadecimal(), "")
            if not text:
                raise _Malformed
        elif tag == "c":
            text = _quoted(self.hexadecimal())
        else:
            text = self.structured(tag)
            text = f"{{{text}}}" if braces and tag != "R" and tag != "e" and not text.startswith('"') else text
        self.depth -= 1
        return self.sized(text)

    def structured(self, tag: str) -> str:
        if tag == "e":
            return f"*{self.string()}"
        if tag in "RQ":
            if tag == "R" and self.accept("e"):
                return self.string()
            return f"&{'mut ' if tag == 'Q' else ''}{self.constant(braces=False)}"
        if tag == "A":
            return f"[{', '.join(self.list_until_end(lambda: self.constant(braces=False)))}]"
        if tag == "T":
            parts = self.list_until_end(lambda: self.constant(braces=False))
            return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
        if tag == "V":
            return self.variant()
        raise _Malformed

    def variant(self) -> str:
        path = self.path(value=True)
        form = self.take()
        if form == "U":
            return path
        if form == "T":
            return f"{path}({', '.join(self.list_until_end(lambda: self.constant(braces=False)))})"
        if form == "S":
            return f"{path} {{ {', '.join(self.list_until_end(self.field))} }}"
        raise _Malformed

    def field(self) -> str:
        self.disambiguator()
        return f"{self.identifier()}: {self.constant(braces=False)}"

    def integer(self, signed: bool) -> str:
        minus = "-" if signed and self.accept("n") else ""
        return f"{minus}{self.hexadecimal()}"

    def digits(self) -> str:
        end = self.text.find("_", self.at)
        text = self.text[self.at : end] if end >= 0 else "!"
        if not re.fullmatch(r"[0-9a-f]*", text):
            raise _Malformed
        self.at = end + 1
        return text

    def hexadecimal(self) -> int:
        text = self.digits()
        if len(text) > 32 or not text:
            raise _Malformed
        return int(text, 16)

    def string(self) -> str:
        text = self.digits()
        if len(text) % 2:
            raise _Malformed
        try:
            value = bytes.fromhex(text).decode("utf-8")
        except UnicodeDecodeError:
            raise _Malformed from None
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _quoted(code: int) -> str:
    if code >= 0x110000 or 0xD800 <= code < 0xE000:
        raise _Malformed
    special = {0: "\\0", 9: "\\t", 10: "\\n", 13: "\\r", 39: "\\'", 92: "\\\\"}
    char = chr(code)
    text = special.get(code) or (char if char.isprintable() else f"\\u{{{code:x}}}")
    return f"'{text}'"


def _from_punycode(raw: str) -> str:
    """RFC 3492 with `_` in place of the last `-` (RFC 2603, "Punycode identifiers")."""
    head, mark, tail = raw.rpartition("_")
    try:
        return (f"{head}-{tail}" if mark else tail).encode("ascii").decode("punycode")
    except (UnicodeError, ValueError, OverflowError, IndexError):
        raise _Malformed from None

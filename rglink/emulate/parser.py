"""PTX text to `Program`.

Directives of debug sections are skipped; `.loc` gives each instruction its source line. An instruction is read by
its shape only: whether the machine knows it is found out when it is decoded.

Source: PTX ISA, "Syntax", "Directives", "Abstracting the ABI".
"""

from __future__ import annotations

import os
from pathlib import Path

from rglink.diagnostics import InputError
from rglink.emulate.body import BodyReader
from rglink.emulate.constants import TokenStream
from rglink.emulate.declarations import LINKAGE, parameters_of, read_variable
from rglink.emulate.lexer import tokens_of
from rglink.emulate.ptx import Function, Parameter, Program, Variable

NEWEST_VERSION = (9, 9)
# Directives between a function's head and its body, all with numbers, or none, after them.
PERFORMANCE = frozenset(
    (
        ".maxntid .reqntid .minnctapersm .maxnctapersm .maxnreg .reqnctapercluster .explicitcluster .maxclusterrank"
        " .noreturn .blocksareclusters .abi_preserve .abi_preserve_control .unified"
    ).split()
)


def parse_ptx(name: str, data: bytes | str) -> Program:
    """Read a PTX module; a NUL at its end does not count.

    Raises:
        PtxError: text that is not PTX, truncated, or of a version that is not known.
    """
    if isinstance(data, bytes):
        try:
            data = data.rstrip(b"\0").decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InputError(f"{name}: is not PTX: not UTF-8 text") from None
    return ModuleReader(name, TokenStream(name, tokens_of(name, data))).read()


class ModuleReader:
    """Reads the directives of module scope."""

    def __init__(self, name: str, stream: TokenStream) -> None:
        self.name, self.stream = name, stream
        self.version, self.target = (0, 0), ""
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, Function] = {}
        self.aliases: dict[str, str] = {}
        self.files = _source_files(stream)

    def read(self) -> Program:
        """The whole module."""
        stream = self.stream
        if stream.text != ".version":
            raise InputError(f"{self.name}: is not PTX: no .version directive")
        while stream.kind != "end":
            self._directive()
        if not self.target:
            raise InputError(f"{self.name}: is not PTX: no .target directive")
        return Program(self.name, self.version, self.target, self.variables, self.functions, self.aliases)

    def _directive(self) -> None:
        stream = self.stream
        word = stream.text
        if word == ".version":
            stream.take()
            self._read_version(stream.take())
        elif word == ".target":
            stream.take()
            self.target = stream.take()
            while stream.accept(","):
                stream.take()
        elif word in (".address_size", ".file", ".section", ".pragma", ".loc", ".alias", ";", ".attribute"):
            self._minor(stream.take())
        elif word in LINKAGE or word in (".func", ".entry", ".global", ".const", ".shared", ".local"):
            self._definition()
        elif stream.kind == "name" and stream.tokens[stream.at + 1].text == ":":
            stream.at += 2  # a label of the debug sections
        else:
            raise stream.error(f"{word!r} is not supported at module scope")

    def _read_version(self, text: str) -> None:
        major, _, minor = text.partition(".")
        if not major.isdigit() or not minor.isdigit():
            raise self.stream.error(f"{text!r} is no PTX version")
        self.version = (int(major), int(minor))
        if self.version > NEWEST_VERSION:
            raise InputError(f"{self.name}: PTX version is {text}, the machine reads up to 9.9")

    def _minor(self, word: str) -> None:
        stream = self.stream
        if word == ".address_size":
            if stream.take() != "64":
                raise stream.error("only 64-bit addresses are supported")
        elif word == ".file":
            _skip_file(stream)
        elif word == ".section":
            stream.take()
            _skip_braces(stream)
        elif word == ".alias":
            new = stream.take()
            stream.expect(",")
            self.aliases[new] = stream.take()
        elif word == ".loc":
            skip_loc(stream)
        elif word == ".pragma":
            while stream.text != ";":
                stream.take()
        elif word == ".attribute":
            skip_attribute(stream)

    def _definition(self) -> None:
        stream = self.stream
        external = False
        while stream.text in LINKAGE:
            external = stream.take() in (".extern", ".common") or external
        if stream.accept(".attribute"):
            skip_attribute(stream)
        if stream.text in (".func", ".entry"):
            self._function(stream.take() == ".entry")
            return
        for variable in read_variable(stream, stream.take()[1:], external):
            if variable.external and variable.name in self.variables:
                continue
            self.variables[variable.name] = variable

    def _function(self, is_kernel: bool) -> None:
        stream = self.stream
        if stream.accept(".attribute"):
            skip_attribute(stream)
        results: tuple[Parameter, ...] = parameters_of(stream) if stream.text == "(" else ()
        line, name = stream.line, stream.take()
        parameters = parameters_of(stream) if stream.text == "(" else ()
        directives: dict[str, tuple[int, ...]] = {}
        while stream.text in PERFORMANCE:
            word = stream.take()[1:]
            directives[word] = _numbers(stream)
        noreturn = "noreturn" in directives
        head = Function(name, is_kernel, parameters, results, noreturn, line, directives=directives)
        if stream.accept("{"):
            known = self.functions.get(name)
            if known is not None and known.defined:
                raise stream.error(f"function {name} is defined twice")
            self.functions[name] = BodyReader(stream, head, self.files).read()
        else:
            stream.accept(";")
            self.functions.setdefault(name, head)


def _numbers(stream: TokenStream) -> tuple[int, ...]:
    if stream.accept("("):  # .unified(1, 2)
        while not stream.accept(")"):
            stream.take()
        return ()
    found: list[int] = []
    while stream.kind == "int":
        found.append(stream.integer())
        if not stream.accept(","):
            break
    return tuple(found)


def _source_files(stream: TokenStream) -> dict[int, str]:
    """The files that `.file` numbers; it may stand at the end of the text."""
    found: dict[int, str] = {}
    tokens = stream.tokens
    for at, token in enumerate(tokens[:-2]):
        if token.text == ".file" and tokens[at + 1].kind == "int" and tokens[at + 2].kind == "string":
            text = tokens[at + 2].text[1:-1].replace("\\\\", "\\").replace('\\"', '"')
            found[int(tokens[at + 1].text)] = os.path.normpath(Path(text))
    return found


def _skip_file(stream: TokenStream) -> None:
    stream.take()
    stream.take()
    while stream.accept(","):
        stream.take()


def _skip_braces(stream: TokenStream) -> None:
    stream.expect("{")
    depth = 1
    while depth:
        word = stream.take()
        depth += (word == "{") - (word == "}")


def skip_attribute(stream: TokenStream) -> None:
    """Skip `(.managed)` or `(.unified(1, 2))`."""
    stream.expect("(")
    depth = 1
    while depth:
        word = stream.take()
        depth += (word == "(") - (word == ")")


def skip_loc(stream: TokenStream) -> None:
    """Skip what follows `.loc` outside of a function."""
    for _ in range(3):
        stream.take()

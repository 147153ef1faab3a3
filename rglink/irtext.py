"""The text of an LLVM module as a list of items, for the edits that llvmlite's API does not reach.

The printer of LLVM 22 (`AsmWriter.cpp`) is the only producer this reader has to understand: a module is parsed
and printed by LLVM first, so there is one item a line, apart from function bodies and `switch` tables. Names and
strings are told apart by the lexical rules of the LLVM LangRef ("Identifiers", "String constants").

Every edit counts what it saw and what it changed; `expect_equal` turns a difference into an error, because an edit
of text that is silently incomplete changes the meaning of somebody's program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

ItemKind = Literal[
    "blank",
    "target",
    "asm",
    "type",
    "comdat",
    "variable",
    "alias",
    "define",
    "declare",
    "attributes",
    "metadata",
]

# Quoted names escape `"` as a hex pair, so a quote always ends a string.
_TOKEN = re.compile(
    r"""(?P<global>@(?:"[^"]*"|[-a-zA-Z$._0-9]+))
      | (?P<local>%(?:"[^"]*"|[-a-zA-Z$._0-9]+))
      | (?P<string>[c!]?"[^"]*")
      | (?P<comment>;.*)""",
    re.VERBOSE,
)
# AsmWriter.cpp quotes names with `$` too, though the reader takes them bare.
_PLAIN_NAME = re.compile(r"[-a-zA-Z._][-a-zA-Z._0-9]*\Z")
_ESCAPE = re.compile(r"\\(\\|[0-9a-fA-F]{2})")
_LINKAGE = {
    "private": "internal",
    "internal": "internal",
    "available_externally": "available_externally",
    "linkonce": "linkonce",
    "linkonce_odr": "linkonce",
    "weak": "weak",
    "weak_odr": "weak",
    "common": "common",
    "appending": "appending",
    "extern_weak": "extern_weak",
    "external": "external",
}
_PREFIX_WORDS = {
    "dso_local", "dso_preemptable", "default", "hidden", "protected", "dllimport", "dllexport",
    "unnamed_addr", "local_unnamed_addr", "externally_initialized", "thread_local",
}  # fmt: skip


class EditMismatch(AssertionError):
    """An edit of IR text changed another number of places than it saw: a bug of ours, never the user's."""


def expect_equal(what: str, seen: int, changed: int) -> None:
    """Fail unless an edit changed exactly what it saw.

    Raises:
        EditMismatch: `seen` and `changed` differ.
    """
    if seen != changed:
        raise EditMismatch(f"{what}: saw {seen}, changed {changed}")


def unquote(token: str) -> str:
    """The name behind a `@name`, `%name` or quoted token (bytes that are not UTF-8 become surrogates)."""
    name = token[1:] if token[:1] in "@%$" else token
    if not name.startswith('"'):
        return name
    raw = _ESCAPE.sub(lambda match: "\\" if match[1] == "\\" else chr(int(match[1], 16)), name[1:-1])
    if raw.isascii() or any(ord(char) > 255 for char in raw):
        return raw
    return raw.encode("latin-1").decode("utf-8", "surrogateescape")


def quote(name: str, sigil: str = "@") -> str:
    """The token that LLVM prints for a name, with its sigil (`@`, `%` or `$`)."""
    if _PLAIN_NAME.match(name):
        return sigil + name
    raw = name.encode("utf-8", "surrogateescape")
    safe = "".join(_printed(byte) for byte in raw)
    return f'{sigil}"{safe}"'


def _printed(byte: int) -> str:
    """One byte of a quoted name, as LLVM's `printEscapedString` writes it."""
    if byte == ord("\\"):
        return "\\\\"
    return chr(byte) if 32 <= byte < 127 and byte != ord('"') else f"\\{byte:02X}"


def code_of(line: str) -> str:
    """The line without its comment."""
    if ";" not in line:
        return line
    for match in _TOKEN.finditer(line):
        if match.lastgroup == "comment":
            return line[: match.start()].rstrip()
    return line


def global_names(line: str) -> Iterator[str]:
    """Names of the globals that a line mentions, in order, with repeats."""
    if "@" not in line:
        return
    for match in _TOKEN.finditer(line):
        if match.lastgroup == "global":
            yield unquote(match[0])


def rename_globals(line: str, renamed: Callable[[str], str | None]) -> str:
    """The line with each global's token replaced where `renamed(name)` gives a new name."""
    if "@" not in line:
        return line

    def replace(match: re.Match[str]) -> str:
        if match.lastgroup != "global":
            return match[0]
        new = renamed(unquote(match[0]))
        return match[0] if new is None else quote(new)

    return _TOKEN.sub(replace, line)


def skip_type(text: str, start: int) -> int:
    """End of the first-class type that begins at `start` (LangRef, "Type System").

    Raises:
        ValueError: no type begins there.
    """
    match = re.compile(
        r"""(?:i\d+|half|bfloat|float|double|fp128|x86_fp80|ppc_fp128|void|label|metadata|token|opaque
          | ptr(?:\ addrspace\((?:\d+|"[^"]*")\))?
          | %(?:"[^"]*"|[-a-zA-Z$._0-9]+))""",
        re.VERBOSE,
    ).match(text, start)
    if match:
        end = match.end()
    elif text.startswith("target(", start):
        end = skip_balanced(text, start + len("target"))
    elif text[start : start + 1] in ("[", "{", "<"):
        end = skip_balanced(text, start)
    else:
        raise ValueError(f"no type at {start} in {text!r}")
    return end


def skip_balanced(text: str, start: int) -> int:
    """End of the bracketed group that opens at `start`; strings inside are skipped.

    Raises:
        ValueError: the group is not closed.
    """
    depth = 0
    position = start
    while position < len(text):
        char = text[position]
        if char == '"':
            position = text.index('"', position + 1)
        elif char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
            if depth == 0:
                return position + 1
        position += 1
    raise ValueError(f"unclosed {text[start]!r} in {text!r}")


def next_comma(text: str, start: int = 0) -> int:
    """Position of the first comma at or after `start` that is outside brackets and strings; the end without one."""
    depth = 0
    quoted = False
    for position in range(start, len(text)):
        char = text[position]
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
        elif char == "," and depth == 0:
            return position
    return len(text)


def split_commas(text: str) -> list[str]:
    """Split at the commas outside brackets and strings; parts are stripped, an empty text gives no part."""
    parts: list[str] = []
    begin = 0
    while (end := next_comma(text, begin)) < len(text):
        parts.append(text[begin:end].strip())
        begin = end + 1
    last = text[begin:].strip()
    return [*parts, last] if last or parts else []


@dataclass
class Item:
    """One top-level item. `name` is unquoted ("" for items without one); `body` holds a definition's lines."""

    kind: ItemKind
    name: str
    head: str
    body: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield self.head
        if self.kind == "define":
            yield from self.body
            yield "}"


@dataclass(frozen=True)
class Variable:
    """A global variable's line. `initializer` is None for a declaration."""

    name: str
    linkage: str  # a value of LLVM's, normalised: internal, external, weak, linkonce, common, appending, ...
    prefix: str  # everything between `=` and `global`/`constant`, addrspace(...) removed
    addrspace: int
    constant: bool
    type: str
    initializer: str | None
    suffix: str  # ", section ..., align ..., !dbg ..." as printed

    @property
    def section(self) -> str:
        match = re.search(r', section "([^"]*)"', self.suffix)
        return match[1] if match else ""

    @property
    def align(self) -> int:
        match = re.search(r", align (\d+)", self.suffix)
        return int(match[1]) if match else 0

    def render(self) -> str:
        space = f"addrspace({self.addrspace}) " if self.addrspace else ""
        words = " ".join(self.prefix.split())
        # LangRef order: linkage ... unnamed_addr addrspace(N) externally_initialized global|constant
        late = "externally_initialized" in words.split()
        words = " ".join(word for word in words.split() if word != "externally_initialized")
        front = f"{words} " if words else ""
        late_word = "externally_initialized " if late else ""
        keyword = "constant" if self.constant else "global"
        value = "" if self.initializer is None else f" {self.initializer}"
        return f"{quote(self.name)} = {front}{space}{late_word}{keyword} {self.type}{value}{self.suffix}"


@dataclass(frozen=True)
class Parameter:
    """A formal parameter: `attributes` as printed (may hold parentheses), `name` with `%`, "" in declarations."""

    type: str
    attributes: str
    name: str


@dataclass(frozen=True)
class Function:
    """A function's first line, taken apart. `suffix` is all that follows the parameter list, `{` not included."""

    name: str
    defined: bool
    linkage: str
    calling_convention: str  # "" for ccc, "ptx_kernel", "fastcc", ...
    prefix: str  # between `define`/`declare` and the return type, calling convention included
    return_type: str
    parameters: tuple[Parameter, ...]
    vararg: bool
    suffix: str

    @property
    def type(self) -> str:
        args = [parameter.type for parameter in self.parameters] + (["..."] if self.vararg else [])
        return f"{self.return_type} ({', '.join(args)})"

    @property
    def attribute_group(self) -> int | None:
        match = re.search(r"(?:^| )#(\d+)\b", self.suffix)
        return int(match[1]) if match else None

    @property
    def section(self) -> str:
        match = re.search(r'(?:^| )section "([^"]*)"', self.suffix)
        return match[1] if match else ""

    def render(self) -> str:
        """The line again (for a definition with ` {`)."""
        args = [" ".join(filter(None, (p.type, p.attributes, p.name))) for p in self.parameters]
        args += ["..."] if self.vararg else []
        word = "define" if self.defined else "declare"
        front = f"{self.prefix} " if self.prefix else ""
        tail = f" {self.suffix}" if self.suffix else ""
        brace = " {" if self.defined else ""
        return f"{word} {front}{self.return_type} {quote(self.name)}({', '.join(args)}){tail}{brace}"


def read_variable(line: str) -> Variable:
    """Take a printed global variable apart.

    Raises:
        ValueError: the line is not a global variable.
    """
    token, _, rest = line.partition(" = ")
    words: list[str] = []
    linkage, addrspace = "external", 0
    while True:
        match = re.match(r'(?:[a-z_]+(?:\((?:[a-z]+|\d+|"[^"]*")\))?) ', rest)
        if match is None:
            raise ValueError(f"not a global variable: {line!r}")
        word, rest = match[0].strip(), rest[match.end() :]
        if word in ("global", "constant"):
            break
        if word.startswith("addrspace("):
            addrspace = int(word[len("addrspace(") : -1])
            continue
        linkage = _LINKAGE.get(word, linkage)
        words.append(word)
    end = skip_type(rest, 0)
    comma = next_comma(rest, end)
    value, suffix = rest[end:comma].strip(), rest[comma:]
    declared = linkage in ("external", "extern_weak") and not value
    name = unquote(token)
    return Variable(
        name,
        linkage,
        " ".join(words),
        addrspace,
        word == "constant",
        rest[:end],
        None if declared else value,
        suffix,
    )


_CONVENTION = re.compile(
    r"(?:^| )(fastcc|coldcc|ptx_kernel|ptx_device|cc\d+|[a-z0-9_]+cc|spir_kernel|spir_func)(?: |$)"
)


@lru_cache(maxsize=1 << 14)
def read_function(line: str) -> Function:
    """Take the first line of a printed definition or declaration apart.

    Raises:
        ValueError: the line is neither.
    """
    defined = line.startswith("define ")
    if not defined and not line.startswith("declare "):
        raise ValueError(f"not a function: {line!r}")
    code = code_of(line).removesuffix("{").rstrip()
    match = _function_name(code)
    opening = match.end()
    closing = skip_balanced(code, opening)
    before = code[len("define " if defined else "declare ") : match.start()].rstrip()
    prefix, return_type = _split_return_type(before)
    words = prefix.split()
    linkage = next((_LINKAGE[word] for word in words if word in _LINKAGE), "external")
    convention = _CONVENTION.search(prefix)
    parameters, vararg = _read_parameters(code[opening + 1 : closing - 1])
    return Function(
        unquote(match[0]), defined, linkage, convention[1] if convention else "", prefix, return_type,
        parameters, vararg, code[closing:].strip(),
    )  # fmt: skip


def _function_name(code: str) -> re.Match[str]:
    for match in _TOKEN.finditer(code):
        if match.lastgroup == "global" and code[match.end() : match.end() + 1] == "(":
            return match
    raise ValueError(f"no function name in {code!r}")


def _split_return_type(before: str) -> tuple[str, str]:
    """Split "internal noundef range(i32 0, 9) i32" before the last complete type that ends the text."""
    for start in _word_starts(before):
        try:
            if skip_type(before, start) == len(before):
                return before[:start].rstrip(), before[start:]
        except ValueError:
            continue
    raise ValueError(f"no return type in {before!r}")


def _word_starts(text: str) -> Iterator[int]:
    """Positions where a space-separated word begins outside brackets and strings."""
    depth, quoted, fresh = 0, False, True
    for position, char in enumerate(text):
        if fresh and depth == 0 and not quoted and char != " ":
            yield position
        fresh = char == " "
        if char == '"':
            quoted = not quoted
        elif not quoted and char in "([{<":
            depth += 1
        elif not quoted and char in ")]}>":
            depth -= 1


def _read_parameters(text: str) -> tuple[tuple[Parameter, ...], bool]:
    parameters: list[Parameter] = []
    vararg = False
    for part in split_commas(text):
        if part == "...":
            vararg = True
            continue
        end = skip_type(part, 0)
        rest = part[end:].strip()
        name = re.search(r'(?:^| )(%(?:"[^"]*"|[-a-zA-Z$._0-9]+))$', rest)
        attributes = rest[: name.start()].strip() if name else rest
        parameters.append(Parameter(part[:end], attributes, name[1] if name else ""))
    return tuple(parameters), vararg


@dataclass
class ModuleText:
    """A printed module as items in their order."""

    items: list[Item]

    @classmethod
    def parse(cls, text: str) -> ModuleText:
        """Read what LLVM printed.

        Raises:
            ValueError: a line is of no known kind.
        """
        items: list[Item] = []
        lines = iter(text.splitlines())
        for line in lines:
            item = Item(*_classify(line))
            if item.kind == "define" and line.endswith("{"):
                for inner in lines:
                    if inner == "}":
                        break
                    item.body.append(inner)
            items.append(item)
        return cls(items)

    def render(self) -> str:
        """The text again, for LLVM to parse."""
        return "\n".join(line for item in self.items for line in item.lines()) + "\n"

    def of_kind(self, *kinds: ItemKind) -> list[Item]:
        return [item for item in self.items if item.kind in kinds]

    def named(self) -> dict[str, Item]:
        """Variables, aliases and functions by name."""
        return {item.name: item for item in self.items if item.kind in ("variable", "alias", "define", "declare")}

    def add(self, *lines: str) -> None:
        """Append one-line items (declarations, attributes, metadata, variables)."""
        self.items += [Item(*_classify(line)) for line in lines]

    def attribute_groups(self) -> dict[int, str]:
        """`attributes #N = { ... }` by N, the text between the braces."""
        groups: dict[int, str] = {}
        for item in self.of_kind("attributes"):
            match = re.match(r"attributes #(\d+) = \{(.*)\}\s*$", item.head)
            if match:
                groups[int(match[1])] = match[2].strip()
        return groups

    def add_attribute_group(self, attributes: str) -> int:
        """A group with exactly these attributes, an existing one if there is one; returns its number."""
        groups = self.attribute_groups()
        for number, text in groups.items():
            if text == attributes:
                return number
        number = max(groups, default=-1) + 1
        self.add(f"attributes #{number} = {{ {attributes} }}")
        return number

    def idents(self) -> tuple[str, ...]:
        """The strings of `!llvm.ident`, which name the compilers of a module, each once."""
        nodes = {item.head.partition(" = ")[0]: item.head for item in self.of_kind("metadata")}
        references = re.findall(r"!\d+", nodes.get("!llvm.ident", "").partition(" = ")[2])
        values = (value for node in references for value in re.findall(r'!"([^"]*)"', nodes.get(node, "")))
        return tuple(dict.fromkeys(values))

    def fresh_metadata(self) -> int:
        """The lowest number above those of all metadata nodes."""
        numbers = (re.match(r"!(\d+) = ", item.head) for item in self.of_kind("metadata"))
        return max((int(match[1]) for match in numbers if match), default=-1) + 1

    def rename(self, renamed: Callable[[str], str | None]) -> None:
        """Give globals new names wherever they stand."""
        for item in self.items:
            item.head = rename_globals(item.head, renamed)
            item.body = [rename_globals(line, renamed) for line in item.body]
            if item.kind in ("variable", "alias", "define", "declare"):
                item.name = renamed(item.name) or item.name


_FIRST_WORD: dict[str, ItemKind] = {
    "target": "target",
    "source_filename": "target",
    "module": "asm",
    "define": "define",
    "declare": "declare",
    "attributes": "attributes",
    "uselistorder": "blank",
}


def _classify(line: str) -> tuple[ItemKind, str, str]:
    first = line[:1]
    if not line.strip() or first == ";":
        return "blank", "", line
    if first == "@":
        token = _TOKEN.match(line)
        assert token is not None
        after = line[token.end() :]
        aliased = re.match(r" = (?:[a-z_]+ )*(?:alias|ifunc) ", after)
        return ("alias" if aliased else "variable"), unquote(token[0]), line
    if first == "%":
        return "type", "", line
    if first == "$":
        return "comdat", "", line
    if first in "!^":
        return "metadata", "", line
    kind = _FIRST_WORD.get(line.split(" ", 1)[0])
    if kind is None:
        raise ValueError(f"unexpected line in printed IR: {line!r}")
    name = unquote(_function_name(code_of(line))[0]) if kind in ("define", "declare") else ""
    return kind, name, line

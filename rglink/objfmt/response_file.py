"""`@file` arguments: response files as rustc writes them and as GNU tools quote them.

rustc writes one argument a line and puts a backslash before each blank and backslash, nothing else: an apostrophe
in a path stays as it is. GNU tools (libiberty's buildargv) separate arguments by white space, quote them by ' or "
and put a backslash before any character. A line that rustc could have written is read as rustc's, unless it is
one quoted string; every other line is read by GNU's rules, quotes ending on their line.

Source: `exec_linker` in rustc_codegen_ssa/src/back/link.rs; "@file" in the manual of GNU ld.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rglink.diagnostics import InputError

DEEPEST = 8
MOST_FILES = 1000
MOST_ARGUMENTS = 1_000_000
LARGEST_FILE = 1 << 28

# No bare blank, and a backslash only before a blank or a backslash.
RUSTC_LINE = re.compile(r"(?:[^\s\\]|\\[ \\])*")
QUOTED_LINE = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")


@dataclass
class _Budget:
    files: int = 0
    arguments: int = 0


def expand_response_files(argv: Sequence[str]) -> list[str]:
    """Arguments with each `@file` replaced by what the file holds, which may be `@file` again.

    A relative name is looked up from the working folder, as GNU tools do. "@" alone stays as it is.

    Raises:
        InputError: a response file is missing, unreadable, names itself, is nested too deeply or too large, or has
            a quote that its line does not close.
    """
    return list(_expand(argv, (), _Budget()))


def _expand(argv: Sequence[str], within: tuple[str, ...], budget: _Budget) -> Iterator[str]:
    for argument in argv:
        if len(argument) > 1 and argument.startswith("@"):
            yield from _expand_file(argument[1:], within, budget)
            continue
        budget.arguments += 1
        if budget.arguments > MOST_ARGUMENTS:
            raise InputError(f"response files hold more than {MOST_ARGUMENTS} arguments")
        yield argument


def _expand_file(path: str, within: tuple[str, ...], budget: _Budget) -> Iterator[str]:
    real = os.path.realpath(path)
    if real in within:
        raise InputError(f"{path}: response file names itself", *within)
    if len(within) == DEEPEST:
        raise InputError(f"{path}: response files are nested more than {DEEPEST} deep", *within)
    budget.files += 1
    if budget.files > MOST_FILES:
        raise InputError(f"{path}: more than {MOST_FILES} response files")
    yield from _expand(list(split_response(path, _text(path))), (*within, real), budget)


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{path}: response file cannot be read: {reason.lower()}") from None
    if len(data) > LARGEST_FILE:
        raise InputError(f"{path}: response file is larger than {LARGEST_FILE} bytes")
    # Tools on Windows write UTF-16 with a byte order mark.
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    # As sys.argv does, so that a path that is not UTF-8 still opens.
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


def split_response(path: str, text: str) -> Iterator[str]:
    """The arguments in a response file's text; `path` is for messages.

    Raises:
        InputError: a quote is not closed on its line.
    """
    for number, line in enumerate(re.split(r"\r?\n", text), 1):
        # rustc's escaped blank may end the line, so only what is bare may go.
        if RUSTC_LINE.fullmatch(line) and not QUOTED_LINE.fullmatch(line):
            if line:
                yield re.sub(r"\\(.)", r"\1", line)
            continue
        yield from _split_gnu(path, number, line)


def _split_gnu(path: str, number: int, line: str) -> Iterator[str]:
    argument: list[str] | None = None
    quote = ""
    characters = iter(line)
    for character in characters:
        if character == "\\":
            argument = [*(argument or []), next(characters, "\\")]
        elif quote:
            if character == quote:
                quote = ""
            elif argument is not None:
                argument.append(character)
        elif character in "\"'":
            quote = character
            argument = argument or []
        elif character.isspace():
            if argument is not None:
                yield "".join(argument)
            argument = None
        else:
            argument = [*(argument or []), character]
    if quote:
        raise InputError(f"{path}: line {number} of the response file does not close its {quote}")
    if argument is not None:
        yield "".join(argument)

"""Writing results: all of them or none, and never half of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rglink.diagnostics import InputError, UsageError


@dataclass(frozen=True)
class OutputFile:
    """`path` and what is to stand there; with `link_to`, a second name for the same file."""

    path: str
    data: bytes
    link_to: str = ""


def check_output(path: str, inputs: Sequence[str]) -> None:
    """Find out before any work what would stop a file from being written.

    Raises:
        InputError: the folder is missing, or the path is a folder.
        UsageError: the path is one of the inputs.
    """
    output = Path(path)
    if not output.parent.is_dir():
        raise InputError(f"{output}: output folder {output.parent} does not exist", slug="output")
    if output.is_dir():
        raise InputError(f"{output}: is a folder, wanted a file", slug="output")
    if output.exists() and any(os.path.exists(name) and os.path.samefile(name, output) for name in inputs):
        raise UsageError(f"-o {output}: is an input")


def write_outputs(files: Sequence[OutputFile]) -> None:
    """Write each to a temporary file beside its path, then rename all; on failure older files stay as they are.

    Raises:
        InputError: a file cannot be written; the message names it and the reason.
    """
    written: list[tuple[str, OutputFile]] = []
    current = ""
    try:
        for file in files:
            current = file.path
            written.append((_write_beside(file), file))
        while written:
            partial, file = written[0]
            current = file.path
            os.replace(partial, file.path)
            written.pop(0)
            if file.link_to:
                current = file.link_to
                _link(file.path, file.link_to)
    except OSError as error:
        raise InputError(f"{current}: cannot be written: {error.strerror}", slug="output") from None
    finally:
        for partial, _ in written:
            Path(partial).unlink(missing_ok=True)


def _write_beside(file: OutputFile) -> str:
    path = Path(file.path)
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(file.data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(partial, 0o666 & ~mask)
    except BaseException:
        os.unlink(partial)
        raise
    return partial


def _link(path: str, other: str) -> None:
    """A hard link like the ones cargo makes, or a copy where the file system has none; replaced in one step."""
    target = Path(other)
    partial = target.parent / f".{target.name}.{os.getpid()}"
    try:
        os.link(path, partial)
    except OSError:
        partial.write_bytes(Path(path).read_bytes())
    os.replace(partial, target)

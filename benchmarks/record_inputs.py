#!/usr/bin/env python3
"""A stand-in for the linker that links nothing: it keeps what rustc hands over.

Beside the output that rustc names (`app.ptx`) it leaves `app.ptx.inputs.json` with the argument list and
`app.ptx.inputs/` with copies of the objects, which rustc deletes after the link.
"""

import json
import shlex
import shutil
import sys
from pathlib import Path


def expand(arguments: list[str]) -> list[str]:
    """The arguments with every `@file` replaced by what the file lists, one quoted argument a line."""
    expanded: list[str] = []
    for argument in arguments:
        if argument.startswith("@"):
            expanded += shlex.split(Path(argument[1:]).read_text())
        else:
            expanded.append(argument)
    return expanded


def main() -> None:
    arguments = expand(sys.argv[1:])
    output = Path(arguments[arguments.index("-o") + 1])
    kept = output.with_name(output.name + ".inputs")
    kept.mkdir(exist_ok=True)
    recorded: list[str] = []
    for argument in arguments:
        path = Path(argument)
        if path.suffix not in {".o", ".rlib"} or not path.is_file():
            recorded.append(argument)
            continue
        recorded.append(str(shutil.copy(path, kept)))
    record = output.with_name(output.name + ".inputs.json")
    record.write_text(json.dumps({"arguments": recorded}, indent=1))
    output.write_bytes(b"")


if __name__ == "__main__":
    main()

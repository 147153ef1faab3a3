"""`rgdump FILE`: what is in an .rgo, rlib, cubin, fat binary or any other link input.

One description of the file, made of JSON values, is printed as it is or as text with tables.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence

from rglink.demangle import demangle, is_mangled
from rglink.diagnostics import EXIT_BUG, EXIT_DONE, Diagnostic, InputError, RglinkError
from rglink.objfmt.archive import Member, read_archive
from rglink.objfmt.bitcode import read_bitcode
from rglink.objfmt.cubin import Cubin, CubinKernel, read_cubin
from rglink.objfmt.fatbin import READABLE, FatEntry, read_fatbin
from rglink.objfmt.host_object import read_host_object
from rglink.objfmt.input_file import InputKind, open_input, recognise
from rglink.objfmt.ltoir import read_ltoir
from rglink.objfmt.ptx import read_ptx
from rglink.objfmt.rgo import RgoReader, read_rgo
from rglink.objfmt.summary import Symbol

JsonValue = str | int | bool | None | list["JsonValue"] | dict[str, "JsonValue"]
Description = dict[str, JsonValue]

ONE_OF = {"entries": "entry", "device_code": "section"}  # what one row of a list is called
IR_TRIPLE = re.compile(rb'^target\s+triple\s*=\s*"([^"\n]*)"', re.MULTILINE)


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Prints to stdout; an error is one line on stderr.

    Returns:
        The exit code of interface.md; argparse itself exits with 2 on wrong usage.
    """
    arguments = _parser().parse_args(argv)
    try:
        description = describe_file(arguments.file)
        print(json.dumps(description, indent=2) if arguments.json else render(description))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, `head` or `less`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except RglinkError as error:
        print(error.diagnostic.render("rgdump"), file=sys.stderr)
        return error.exit_code
    except Exception as error:
        bug = Diagnostic("error", "bug", f"{arguments.file}: {type(error).__name__}: {error}")
        print(bug.render("rgdump"), file=sys.stderr)
        return EXIT_BUG
    return EXIT_DONE


def describe_file(path: str) -> Description:
    """What is in a file: always "file" and "kind", the rest by kind.

    Raises:
        InputError: no link input, or damaged.
    """
    file = open_input(path)
    return {"file": path, "kind": str(file.kind), **_describe(path, file.kind, file.data)}


def render(description: Description) -> str:
    """Text for a terminal: `key: value` lines, then one table for each list, indented where nested."""
    return "\n".join(_render_lines(description))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rgdump", description="Show what is in an .rgo, rlib, cubin, fat binary or other link input."
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _describe(name: str, kind: InputKind, data: memoryview) -> Description:
    describers: dict[InputKind, Callable[[str, memoryview], Description]] = {
        InputKind.RGO: _describe_rgo,
        InputKind.ARCHIVE: _describe_archive,
        InputKind.BITCODE: _describe_bitcode,
        InputKind.TEXTUAL_IR: _describe_ir,
        InputKind.PTX: _describe_ptx,
        InputKind.CUBIN: lambda name, data: _describe_cubin(read_cubin(name, data)),
        InputKind.FATBIN: _describe_fatbin,
        InputKind.LTOIR: _describe_ltoir,
        InputKind.HOST_OBJECT: _describe_host_object,
    }
    describer = describers.get(kind)
    return {} if describer is None else describer(name, data)


def _describe_rgo(name: str, data: memoryview) -> Description:
    reader = read_rgo(name, data)
    producer, summary = reader.producer(), reader.summary()
    return {
        "version": reader.version,
        "crate": producer.crate_name,
        "rustc": producer.rustc,
        "llvm": producer.llvm,
        "rglink": producer.rglink,
        "flags": list(producer.flags),
        "protected": producer.protected,
        "triple": summary.triple,
        "kernels": [symbol.name for symbol in summary.symbols if symbol.kind == "kernel"],
        "sections": _rgo_sections(reader),
        "metadata": [
            {"crate": entry.crate, "hash": entry.hash, "file": entry.file_name, "size": len(entry.data)}
            for entry in reader.metadata()
        ],
        "symbols": [_describe_symbol(symbol) for symbol in summary.symbols],
    }


def _rgo_sections(reader: RgoReader) -> list[JsonValue]:
    return [
        {
            "index": section.index,
            "type": section.type_name,
            "arch": f"sm_{section.arch}" if section.arch else "any",
            "critical": section.critical,
            "compression": "zstd" if section.compressed else "none",
            "offset": section.offset,
            "stored": len(section.stored),
            "size": section.length,
            "digest": section.digest.hex(),
        }
        for section in reader.sections
    ]


def _named(name: str) -> Description:
    """A name, with the path that it stands for where Rust mangled it."""
    return {"name": name, "path": demangle(name)} if is_mangled(name) else {"name": name}


def _describe_symbol(symbol: Symbol) -> Description:
    return {
        **_named(symbol.name),
        "kind": symbol.kind,
        "binding": symbol.binding,
        "type": symbol.type,
        "addrspace": symbol.addrspace,
        "section": symbol.section,
    }


def _describe_archive(name: str, data: memoryview) -> Description:
    archive = read_archive(name, data)
    by_member = archive.symbols.items() if archive.symbols is not None else ()
    return {
        "rust_metadata": archive.metadata.size if archive.metadata is not None else None,
        "members": [_describe_member(name, member) for member in archive.members],
        "symbols": [{**_named(symbol), "member": member.name} for symbol, member in sorted(by_member)],
    }


def _describe_member(archive: str, member: Member) -> Description:
    kind = recognise(member.data)
    described: Description = {
        "name": member.name,
        "kind": str(kind),
        "offset": member.offset,
        "size": member.size,
    }
    if kind is InputKind.BITCODE:
        described |= _describe_bitcode(f"{archive}({member.name})", member.data)
    return described


def _describe_bitcode(name: str, data: memoryview) -> Description:
    info = read_bitcode(name, data)
    return {"producer": info.producer, "triple": info.triple}


def _describe_ir(_: str, data: memoryview) -> Description:
    triple = IR_TRIPLE.search(data)
    return {"triple": triple[1].decode("utf-8", "backslashreplace") if triple else ""}


def _describe_ptx(name: str, data: memoryview) -> Description:
    ptx = read_ptx(name, data)
    return {"version": "{}.{}".format(*ptx.version), "arch": ptx.arch, "kernels": list(ptx.kernels)}


def _describe_ltoir(name: str, data: memoryview) -> Description:
    info = read_ltoir(name, data)
    return {"arch": f"compute_{info.sm}", "llvm": info.llvm_major}


def _describe_cubin(cubin: Cubin) -> Description:
    return {
        "arch": cubin.arch,
        "relocatable": cubin.relocatable,
        "constant_banks": [{"bank": bank, "size": size} for bank, size in cubin.constant_banks],
        "undefined": list(cubin.undefined),
        "kernels": [_describe_kernel(kernel) for kernel in cubin.kernels],
        "functions": [
            {**_named(f.name), "binding": f.binding, "registers": f.registers, "stack": f.frame, "code": f.code}
            for f in cubin.functions
        ],
        "variables": [
            {**_named(v.name), "binding": v.binding, "space": v.space, "size": v.size} for v in cubin.variables
        ],
    }


def _describe_kernel(kernel: CubinKernel) -> Description:
    return {
        **_named(kernel.name),
        "registers": kernel.registers,
        "shared": kernel.shared,
        "stack": kernel.frame,
        "constant": kernel.constant,
        "barriers": kernel.barriers,
        "spills": kernel.spills,
        "code": kernel.code,
        "max_threads": list(kernel.max_threads) if kernel.max_threads else None,
        "required_threads": list(kernel.required_threads) if kernel.required_threads else None,
        "parameters": [parameter.size for parameter in kernel.parameters],
    }


def _describe_fatbin(name: str, data: memoryview) -> Description:
    return {"entries": [_describe_entry(name, entry) for entry in read_fatbin(name, data)]}


def _describe_entry(name: str, entry: FatEntry) -> Description:
    described: Description = {
        "index": entry.index,
        "kind": entry.kind,
        "arch": entry.arch,
        "identifier": entry.identifier,
        "compression": entry.compression,
        "stored": len(entry.stored),
        "size": entry.size,
    }
    if entry.compression not in READABLE:
        return described
    payload = memoryview(entry.payload())
    kind = recognise(payload)
    if entry.kind != "unknown" and kind in (InputKind.CUBIN, InputKind.PTX, InputKind.LTOIR):
        described["image"] = _describe(f"{name}: entry {entry.index}", kind, payload)
    elif entry.kind in ("elf", "ptx", "ltoir"):
        raise InputError(f"{name}: entry {entry.index} ({entry.kind} {entry.arch}) holds something else")
    return described


def _describe_host_object(name: str, data: memoryview) -> Description:
    host = read_host_object(name, data)
    return {
        "machine": host.machine,
        "device_code": [
            {"section": section, "size": len(contents), **_describe_fatbin(f"{name}({section})", contents)}
            for section, contents in host.device_code
        ],
    }


def _render_lines(description: Description) -> list[str]:
    lines: list[str] = []
    later: list[str] = []
    for key, value in description.items():
        rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
        if rows:
            later += ["", f"{key}:", *(f"  {line}" for line in _table(rows))]
            for row in rows:
                later += _render_nested(key, row)
        elif isinstance(value, dict):
            later += _render_lines(value)
        elif value not in ([], ""):
            lines.append(f"{key}: {_cell(value)}")
    return lines + later


def _render_nested(key: str, row: Description) -> list[str]:
    """What does not fit in a table's cell: an entry's image, the entries of a section."""
    nested: Description = {name: value for name, value in row.items() if not _fits_cell(value)}
    if not nested:
        return []
    titles = [str(row[name]) for name in ("index", "kind", "arch", "section") if name in row]
    return [
        "",
        f"{ONE_OF.get(key, key)} {' '.join(titles)}:",
        *(f"  {line}" if line else "" for line in _render_lines(nested)),
    ]


def _table(rows: list[Description]) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows for key, value in row.items() if _fits_cell(value)))
    cells = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]


def _fits_cell(value: JsonValue) -> bool:
    if isinstance(value, list):
        return not any(isinstance(item, dict) for item in value)
    return not isinstance(value, dict)


def _cell(value: JsonValue) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(_cell, value)) or "-"
    return str(value) or "-"


if __name__ == "__main__":
    sys.exit(main())

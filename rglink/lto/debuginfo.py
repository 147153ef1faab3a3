"""Debug information at the level that machine code can carry without becoming slower.

`emissionKind: FullDebug` and `LineTablesOnly` make `.target ..., debug` in PTX: ptxas refuses that above -O0 and
nvJitLink compiles it without optimization and without a word. `DebugDirectivesOnly` gives `.loc` and `.file` alone.
Records of variables then have no reader, and LLVM's DWARF writer dies on them (`#dbg_*`, `retainedNodes`).
"""

from __future__ import annotations

import re

from rglink.irtext import ModuleText

_UNIT = re.compile(r"distinct !DICompileUnit\(")
_EMISSION = re.compile(r"emissionKind: (?:FullDebug|LineTablesOnly)")
# Fields of compile units and subprograms that lead to types and variables only.
_UNIT_FIELDS = re.compile(r", (?:enums|retainedTypes|globals|imports|macros): (?:!\d+|!\{\})")
_SUBPROGRAM_FIELDS = re.compile(r", (?:retainedNodes|declaration|templateParams|thrownTypes): (?:!\d+|!\{\})")
_SUBPROGRAM_TYPE = re.compile(r", type: !\d+")
_SUBPROGRAM_SCOPE = re.compile(r", scope: !\d+(?=.*?, file: (!\d+))")
_RECORD = re.compile(r"\s+#dbg_(?:value|declare|assign|label|declare_value)\(")
_DBG_CALL = re.compile(r"\s+(?:tail )?call void @llvm\.dbg\.")
_STRING_OR_ATTACHMENT = re.compile(r'"[^"]*"|,? !dbg !\d+')
_DEBUG_FLAGS = ('!"Debug Info Version"', '!"Dwarf Version"')
_NODE = re.compile(r"(!\d+) = (.*)")


def has_line_tables(text: ModuleText) -> bool:
    """Whether any compile unit asks for line tables or more."""
    return any(
        _UNIT.search(item.head) and "emissionKind: NoDebug" not in item.head for item in text.of_kind("metadata")
    )


def to_line_directives(text: ModuleText) -> None:
    """Keep lines, function names and inlined-at chains, drop all that describes variables and types.

    Types hang on subprograms by their signatures and, for methods, by their scopes. They have to go: nvJitLink's
    reader fails on enumerators, and they are most of the text.
    """
    if not has_line_tables(text):
        return
    fresh = text.fresh_metadata()
    subroutine, types = f"!{fresh}", f"!{fresh + 1}"
    for item in text.of_kind("metadata"):
        if _UNIT.search(item.head):
            item.head = _UNIT_FIELDS.sub("", _EMISSION.sub("emissionKind: DebugDirectivesOnly", item.head))
        elif "!DISubprogram(" in item.head:
            head = _SUBPROGRAM_TYPE.sub(f", type: {subroutine}", _SUBPROGRAM_FIELDS.sub("", item.head))
            item.head = _SUBPROGRAM_SCOPE.sub(r", scope: \1", head)
    text.add(f"{subroutine} = !DISubroutineType(types: {types})", f"{types} = !{{}}")
    for item in text.of_kind("variable", "declare"):
        item.head = _without_attachments(item.head)
    _drop_records(text)


def strip_debug(text: ModuleText) -> None:
    """Remove every trace of debug information."""
    _drop_records(text)
    for item in text.of_kind("define", "declare", "variable"):
        item.head = _without_attachments(item.head)
        item.body = [_without_attachments(line) if "!dbg" in line else line for line in item.body]
    _strip_loop_locations(text)
    units = [item for item in text.of_kind("metadata") if item.head.startswith("!llvm.dbg.cu")]
    flags = [item for item in text.of_kind("metadata") if any(flag in item.head for flag in _DEBUG_FLAGS)]
    gone = {id(item) for item in [*units, *flags]}
    flag_names = {match[1] for item in flags if (match := _NODE.match(item.head))}
    text.items = [item for item in text.items if id(item) not in gone]
    for item in text.of_kind("metadata"):
        if item.head.startswith("!llvm.module.flags"):
            item.head = _without_operands(item.head, flag_names)


def _drop_records(text: ModuleText) -> None:
    for item in text.of_kind("define"):
        if any("dbg" in line for line in item.body):
            item.body = [line for line in item.body if not _RECORD.match(line) and not _DBG_CALL.match(line)]
    text.items = [i for i in text.items if not (i.kind == "declare" and i.name.startswith("llvm.dbg."))]


def _without_attachments(line: str) -> str:
    if "!dbg" not in line:
        return line
    return _STRING_OR_ATTACHMENT.sub(lambda match: match[0] if match[0].startswith('"') else "", line)


def _strip_loop_locations(text: ModuleText) -> None:
    """Loop metadata names source locations, which would keep compile units alive that nobody lists."""
    locations = {
        match[1]
        for item in text.of_kind("metadata")
        if (match := _NODE.match(item.head)) and "!DILocation(" in match[2]
    }
    for item in text.of_kind("metadata"):
        if " = distinct !{" in item.head:
            item.head = _without_operands(item.head, locations)


def _without_operands(line: str, names: set[str]) -> str:
    """A `!{!1, !2}` tuple without some of its operands."""
    front, brace, operands = line.partition("!{")
    kept = [operand for operand in operands.rstrip().removesuffix("}").split(", ") if operand not in names]
    return f"{front}{brace}{', '.join(kept)}}}" if brace else line

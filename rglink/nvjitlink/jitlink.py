"""Door to nvJitLink: PTX or LTO-IR in, one cubin or PTX out.

nvJitLink reports success for links that failed and prints the reason on fd 2, crashes on damaged input, and hangs
on some second links of one process: call `link_image` once per supervised child.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rglink import worker
from rglink.diagnostics import ToolError
from rglink.nvjitlink.libraries import load, no_nul

InputKind = Literal["ptx", "ltoir"]
_KINDS: dict[InputKind, str] = {"ptx": "PTX", "ltoir": "LTOIR"}
_ERROR = re.compile(r"\berror\s*:", re.IGNORECASE)
_SHOWN_LINES = 12


@dataclass(frozen=True)
class JitInput:
    """One input; `name` is what nvJitLink's messages call it."""

    name: str
    kind: InputKind
    data: bytes


def link_image(what: str, inputs: Sequence[JitInput], options: Sequence[str]) -> tuple[bytes, str]:
    """The cubin (with `-ptx` among the options: the PTX, without its NUL) and nvJitLink's log.

    Raises:
        ToolError: nvJitLink failed or wrote an error; places hold its words and the options to repeat the call.
    """
    library = load("nvjitlink")
    printed_before = len(worker.captured_output())
    try:
        session = library.create(len(options), list(options))
    except library.nvJitLinkError as error:
        raise _failure(what, f"refused its options ({error})", "", options) from None
    try:
        image = _complete(library, session, inputs, "-ptx" in options)
        log = _log(library, session)
    except library.nvJitLinkError as error:
        raise _failure(what, str(error), _log(library, session), options) from None
    finally:
        library.destroy(session)
    printed = worker.captured_output()[printed_before:]
    if _ERROR.search(printed):
        raise _failure(what, "reported success but printed an error", printed, options)
    if not image:
        raise _failure(what, "reported success but made nothing", log, options)
    return image, log


def _complete(library: Any, session: int, inputs: Sequence[JitInput], ptx: bool) -> bytes:
    kinds = library.InputType
    for item in inputs:
        library.add_data(session, getattr(kinds, _KINDS[item.kind]), item.data, len(item.data), item.name)
    library.complete(session)
    size = library.get_linked_ptx_size(session) if ptx else library.get_linked_cubin_size(session)
    buffer = bytearray(size)
    if ptx:
        library.get_linked_ptx(session, buffer)
        return no_nul(bytes(buffer))
    library.get_linked_cubin(session, buffer)
    return bytes(buffer)


def _log(library: Any, session: int) -> str:
    texts: list[str] = []
    for size_of, read in (
        (library.get_error_log_size, library.get_error_log),
        (library.get_info_log_size, library.get_info_log),
    ):
        buffer = bytearray(size_of(session))
        if buffer:
            read(session, buffer)
        texts.append(no_nul(bytes(buffer)).decode("utf-8", "replace").strip())
    return "\n".join(filter(None, texts))


def _failure(what: str, fact: str, log: str, options: Sequence[str]) -> ToolError:
    lines = [line.rstrip() for line in log.splitlines() if line.strip()][:_SHOWN_LINES]
    return ToolError(f"{what}: nvJitLink: {fact}", *lines, f"nvJitLink options: {' '.join(options)}", slug="nvjitlink")

"""Door to libNVVM: textual LLVM IR in, LTO-IR for nvJitLink out."""

from __future__ import annotations

from typing import Any

from rglink.arch import Arch
from rglink.diagnostics import ToolError
from rglink.nvjitlink.libraries import load, no_nul, require_latest_ir

# `-gen-lto` runs no optimization: LLVM has already optimized, and libNVVM's own -opt=3 does not end on some of core.
# `-fma=0`: Rust forbids contraction. nvJitLink needs the same flag, because LTO-IR does not keep it.
_OPTIONS = ("-gen-lto", "-nvvm-latest", "-opt=0")
_SHOWN_LINES = 12


def compile_ltoir(what: str, ir: str, arch: Arch, fma: bool) -> bytes:
    """LTO-IR for `arch` from IR that `nvvm_ir.prepare` made. `what` names the program in errors.

    Raises:
        ToolError: libNVVM refused the program (places hold its log), or is older than 13.5.
    """
    library = load("nvvm")
    options = [f"-arch={arch.compute}", *_OPTIONS, f"-fma={int(fma)}"]
    program = library.create_program()
    try:
        data = ir.encode("utf-8", "surrogateescape")
        library.add_module_to_program(program, data, len(data), what)
        library.compile_program(program, len(options), options)
        buffer = bytearray(library.get_compiled_result_size(program))
        library.get_compiled_result(program, buffer)
    except library.nvvmError as error:
        log = _log(library, program)
        require_latest_ir("nvvm", "-nvvm-latest is an unsupported option" in log)
        lines = [line.rstrip() for line in log.splitlines() if line.strip()][:_SHOWN_LINES]
        message = f"{what}: libNVVM: {error}"
        raise ToolError(message, *lines, f"libNVVM options: {' '.join(options)}", slug="nvvm") from None
    finally:
        library.destroy_program(program)
    return bytes(buffer)


def _log(library: Any, program: int) -> str:
    buffer = bytearray(library.get_program_log_size(program))
    if buffer:
        library.get_program_log(program, buffer)
    return no_nul(bytes(buffer)).decode("utf-8", "replace")

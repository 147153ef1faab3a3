"""Module: LLVM IR in memory, and the only door to llvmlite.

Everything here runs inside LLVM, which may abort the process on malformed IR; callers run it in a supervised
child (`rglink.worker`). LLVM's own messages become `InputError` with the name of the input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from rglink.diagnostics import InputError, ToolError

TRIPLE = "nvptx64-nvidia-cuda"
LLVM_MAJOR = 22
LAST_RUSTC = "1.98"  # the last release with that LLVM: nightlies moved on in August 2026
# LLVM's layout for the target (`NVPTXTargetInfo`), which rustc writes too.
DATA_LAYOUT = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"

Pass = Literal["always-inline", "sroa", "globaldce", "instcombine", "simplifycfg", "strip-dead-prototypes", "verify"]

_PASSES: dict[Pass, str] = {
    "always-inline": "add_always_inliner_pass",
    "sroa": "add_sroa_pass",
    "globaldce": "add_global_dead_code_eliminate_pass",
    "instcombine": "add_instruction_combine_pass",
    "simplifycfg": "add_simplify_cfg_pass",
    "strip-dead-prototypes": "add_strip_dead_prototype_pass",
    "verify": "add_verifier",
}


def _binding() -> Any:
    """llvmlite, imported when IR is first touched (60 ms), with the NVPTX back end registered."""
    from llvmlite import binding

    if not _initialized:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        if binding.llvm_version_info[0] != LLVM_MAJOR:
            raise ToolError(
                f"llvmlite: LLVM {binding.llvm_version_info[0]}, wanted {LLVM_MAJOR}",
                cure="pip install 'llvmlite>=0.50,<0.51'",
            )
        _initialized.append(True)
    return binding


_initialized: list[bool] = []


def preload() -> None:
    """Load LLVM now, so that children forked later need not; no input is touched.

    Raises:
        ToolError: llvmlite brings another LLVM.
    """
    _binding()


# Told what LLVM is about to work on, so that a crash in it can be reported with the name.
watchers: list[Callable[[str], None]] = []


def _tell(what: str) -> None:
    for watcher in watchers:
        watcher(what)


def versions() -> tuple[str, str]:
    """llvmlite's version and its LLVM's.

    Raises:
        ToolError: the LLVM is another than the one this rglink was made for.
    """
    import llvmlite

    return str(llvmlite.__version__), ".".join(str(part) for part in _binding().llvm_version_info)


@dataclass(frozen=True)
class Global:
    """What llvmlite tells of a global without printing it. `linkage` is LLVM's word."""

    name: str
    is_function: bool
    is_declaration: bool
    linkage: str
    visibility: str
    type: str


class Module:
    """One LLVM module, changed in place. `name` is what messages call it (file, or archive(member))."""

    def __init__(self, ref: Any, name: str) -> None:
        self._ref = ref
        self.name = name

    @classmethod
    def parse_bitcode(cls, data: bytes | memoryview, name: str) -> Module:
        """Read bitcode.

        Raises:
            InputError: LLVM refuses it; the message holds LLVM's own words.
        """
        _tell(f"reading {name}")
        try:
            return cls(_binding().parse_bitcode(bytes(data)), name)
        except RuntimeError as error:
            raise InputError(f"{name}: damaged bitcode: {_one_line(error)}") from None

    @classmethod
    def parse_text(cls, text: str, name: str) -> Module:
        """Read textual IR.

        Raises:
            InputError: LLVM refuses it; the message holds LLVM's own words.
        """
        _tell(f"reading {name}")
        try:
            return cls(_binding().parse_assembly(text), name)
        except RuntimeError as error:
            raise InputError(f"{name}: {_one_line(error)}", slug="bad-ir") from None

    @property
    def triple(self) -> str:
        return str(self._ref.triple)

    @triple.setter
    def triple(self, value: str) -> None:
        self._ref.triple = value

    def text(self) -> str:
        """The IR as LLVM prints it (about 20 MB/s)."""
        return str(self._ref)

    def texts(self) -> Callable[[str], str | None]:
        """A way to print one function or variable by its name (None when there is none), while nothing changes."""
        # llvmlite finds no local variable by name.
        variables = {ref.name: ref for ref in self._ref.global_variables}

        def text_of(name: str) -> str | None:
            if name in variables:
                return str(variables[name])
            try:
                return str(self._ref.get_function(name))
            except NameError:
                return None

        return text_of

    def bitcode(self) -> bytes:
        return bytes(self._ref.as_bitcode())

    def replace(self, text: str) -> None:
        """Put parsed `text` in place of the content.

        Raises:
            InputError: LLVM refuses the text.
        """
        new = Module.parse_text(text, self.name)
        self._ref = new._ref

    def verify(self) -> None:
        """Run LLVM's verifier.

        Raises:
            InputError: the IR is invalid; the message holds LLVM's own words.
        """
        try:
            self._ref.verify()
        except RuntimeError as error:
            raise InputError(f"{self.name}: invalid IR: {_one_line(error)}", slug="bad-ir") from None

    def globals(self) -> Iterator[Global]:
        """Functions, then variables, in module order (aliases are not listed: llvmlite has no way to)."""
        for ref in self._ref.functions:
            yield self._global(ref, True)
        for ref in self._ref.global_variables:
            yield self._global(ref, False)

    @staticmethod
    def _global(ref: Any, is_function: bool) -> Global:
        return Global(
            ref.name,
            is_function,
            ref.is_declaration,
            ref.linkage.name,
            ref.visibility.name,
            str(ref.global_value_type),
        )

    def undefined_names(self) -> set[str]:
        """Declared, not defined, LLVM's intrinsics left out."""
        refs = [*self._ref.functions, *self._ref.global_variables]
        return {ref.name for ref in refs if ref.is_declaration and not ref.name.startswith("llvm.")}

    def internalize(self, preserved: Collection[str]) -> None:
        """Make every definition local that is not in `preserved` (nor one of LLVM's own, `llvm.*`)."""
        for ref in [*self._ref.functions, *self._ref.global_variables]:
            if ref.is_declaration or ref.name in preserved or ref.name.startswith("llvm."):
                continue
            if ref.linkage.name in ("internal", "private", "available_externally", "appending"):
                continue
            ref.visibility = "default"
            ref.linkage = "internal"

    def set_linkage(self, names: Iterable[str], linkage: str) -> None:
        """Give definitions an LLVM linkage ("external", "available_externally", ...)."""
        wanted = set(names)
        for ref in [*self._ref.functions, *self._ref.global_variables]:
            if ref.name in wanted and not ref.is_declaration:
                if linkage != "external":
                    ref.visibility = "default"
                ref.linkage = linkage

    def run(self, *passes: Pass) -> None:
        """Run module passes in the order given."""
        binding = _binding()
        manager = binding.create_new_module_pass_manager()
        for name in passes:
            getattr(manager, _PASSES[name])()
        builder = self._pass_builder(binding, 3, "")
        manager.run(self._ref, builder)

    def optimize(self, level: int, cpu: str = "") -> None:
        """LLVM's default pipeline for `level` (0 to 3), with the NVPTX target's costs when `cpu` is given."""
        _tell(f"optimizing {self.name}")
        binding = _binding()
        builder = self._pass_builder(binding, level, cpu)
        manager = builder.getModulePassManager()
        manager.run(self._ref, builder)

    @staticmethod
    def _pass_builder(binding: Any, level: int, cpu: str) -> Any:
        tuning = binding.create_pipeline_tuning_options(level)
        # A GPU thread has no vector units: these two only make code larger.
        tuning.loop_vectorization = False
        tuning.slp_vectorization = False
        machine = _target_machine(cpu or "sm_75", "", 3)
        return binding.create_pass_builder(machine, tuning)

    def link_in(self, other: Module) -> None:
        """Move `other` into this module; `other` is gone afterwards.

        Raises:
            InputError: LLVM's IR linker refuses, with its words.
        """
        _tell(f"merging {other.name}")
        try:
            self._ref.link_in(other._ref)
        except RuntimeError as error:
            raise InputError(f"{other.name}: cannot be merged: {_one_line(error)}", slug="merge-failed") from None

    def clone(self) -> Module:
        return Module(self._ref.clone(), self.name)

    def emit_ptx(self, cpu: str, features: str, level: int) -> str:
        """Run the NVPTX back end for `cpu` ("sm_90a") and `features` ("+ptx80"); `level` 0 to 3."""
        return str(_target_machine(cpu, features, level).emit_assembly(self._ref))


def _target_machine(cpu: str, features: str, level: int) -> Any:
    target = _binding().Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=cpu, features=features, opt=level)


def _one_line(error: Exception) -> str:
    return re.sub(r"\s*\n\s*", " | ", str(error).strip())

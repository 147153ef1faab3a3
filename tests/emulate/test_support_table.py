"""docs/ptx-support.md is true: every form in it is decoded or refused as it says, and ptxas knows every form."""

from __future__ import annotations

import itertools
import re
from functools import cache

import numpy as np
import pytest

from rglink.emulate import LoadedProgram, PtxError, load
from rglink.emulate.routes import CONTROLS, EFFECTS, PURE
from rglink.emulate.signatures import OPERANDS
from rglink.emulate.special import CLOCKS, PER_WAVE
from tests.emulate.support import PTXAS, assembled
from tests.emulate.support_table import DEPRECATED, DOCUMENT, SPECIAL, Form, module_of, read_table, rendered

TABLE = read_table()
ROWS = [row for chapter in TABLE for row in chapter.rows]
KNOWN = [form for row in ROWS for form in row.known]
REFUSED = [form for row in ROWS for form in row.refused]
TARGETS = sorted({form.target for form in (*KNOWN, *REFUSED)})


def of_target(target: str) -> list[Form]:
    return [form for form in (*KNOWN, *REFUSED) if form.target == target]


@cache
def program_of(target: str) -> tuple[LoadedProgram, list[int]]:
    text, lines = module_of(of_target(target))
    return load(text.encode()), lines


def place_of(form: Form) -> tuple[LoadedProgram, str, int]:
    """The program that holds a form, its kernel and its line."""
    program, lines = program_of(form.target)
    number = of_target(form.target).index(form)
    return program, f"k{number}", lines[number]


def test_the_document_is_written_from_the_table() -> None:
    assert DOCUMENT.read_text() == rendered(TABLE), "run python -m tests.emulate.support_table"


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in DEPRECATED])
def test_ptxas_knows_every_form(target: str) -> None:
    if not PTXAS.exists():
        pytest.skip("ptxas is not installed; the dev extra brings it (nvidia-cuda-nvcc)")
    assembled(module_of(of_target(target))[0])


@pytest.mark.parametrize("form", KNOWN, ids=lambda form: form.text)
def test_what_is_said_to_be_supported_is_decoded(form: Form) -> None:
    program, kernel, _ = place_of(form)
    image = program[kernel].image
    image.entry()
    assert not [str(error) for error in image.refused]


@pytest.mark.parametrize("form", REFUSED, ids=lambda form: form.text)
def test_what_is_said_to_be_refused_is_refused_by_name(form: Form) -> None:
    program, kernel, line = place_of(form)
    with pytest.raises(PtxError) as caught:
        program[kernel][1, 32](np.zeros(64, np.uint32))
    special = SPECIAL.search(form.text)
    what = f"register {special[0]}" if special else f"instruction {form.opcode}"
    assert str(caught.value).startswith(f"program: line {line}: in {kernel}: unsupported {what}")
    assert caught.value.diagnostic.slug == "unsupported-instruction"


def test_every_instruction_that_the_machine_decodes_is_in_the_table() -> None:
    decoded = {*OPERANDS, *PURE, *EFFECTS, *CONTROLS, "bra", "call"}
    assert {form.opcode.split(".")[0] for form in KNOWN} == decoded


def test_every_special_register_of_the_machine_is_in_the_table() -> None:
    read = {match[0] for form in KNOWN for match in SPECIAL.finditer(form.text)}

    def family(name: str) -> str:
        return re.sub(r"\.[xyz]$", "", re.sub(r"(?<=envreg)\d+$", "", name))

    assert {family(name) for name in (*PER_WAVE, *CLOCKS)} <= {family(name) for name in read}


def test_no_form_is_there_twice() -> None:
    repeated = [
        key for key, group in itertools.groupby(sorted(f.text for f in (*KNOWN, *REFUSED))) if len([*group]) > 1
    ]
    assert not repeated

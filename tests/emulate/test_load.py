"""What `load` gives: checked launches unless told otherwise, kernels and variables by their Rust names."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from rglink.emulate import CheckedProgram, CheckFailed, Checks, KernelFault, LaunchError, PtxError, load
from rglink.emulate.checks import launch_checked
from rglink.emulate.explain import explained
from rglink.emulate.profile import ProfileObserver
from tests.emulate.support import assembled, module

# `app::meet`: every thread stores its number to the shared static `app::CELL`, and the last to come is added to the
# global static `app::SEEN`. `app::scale::<f32>` and `app::scale::<f64>` do nothing; `wild` stores past `app::SEEN`.
MEET, CELL, SEEN = "_RNvCs1_3app4meet", "_RNvCs1_3app4CELL", "_RNvCs1_3app4SEEN"
TEXT = module(
    f"""
.file 1 "src/lib.rs"
.shared .align 4 .u32 {CELL};
.visible .global .align 4 .u32 {SEEN};
.visible .entry {MEET}()
{{
.reg .b32 %r<3>;
.loc 1 4 5
mov.u32 %r0, %tid.x; st.shared.u32 [{CELL}], %r0;
.loc 1 6 5
bar.sync 0; ld.shared.u32 %r1, [{CELL}]; red.global.add.u32 [{SEEN}], %r1;
ret;
}}
.visible .entry _RINvCs1_3app5scalefE() {{ ret; }}
.visible .entry _RINvCs1_3app5scaledE() {{ ret; }}
.visible .entry wild() {{ .reg .b32 %r<2>; mov.b32 %r0, 1; st.global.b32 [{SEEN}+8], %r0; ret; }}
.visible .entry unrolled()
{{
.reg .b32 %r<2>;
.loc 1 9 5
mov.u32 %r0, %tid.x; st.shared.u32 [{CELL}], %r0; st.shared.u32 [{CELL}], %r0; st.shared.u32 [{CELL}], %r0;
ret;
}}
"""
)


def text() -> bytes:
    assembled(TEXT)
    return TEXT.encode()


def test_a_launch_is_checked_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_bytes(text())
    checked = load(tmp_path / "k.ptx")
    assert isinstance(checked, CheckedProgram)
    with pytest.raises(CheckFailed, match="data race on shared app::CELL\\+0"):
        checked[MEET][1, 32]()
    with pytest.raises(CheckFailed, match="data race"):
        checked[MEET].launch(1, 32, ())
    bare = load(tmp_path / "k.ptx", checks=None)
    assert not isinstance(bare, CheckedProgram)
    bare[MEET][1, 32]()
    assert bare.variables[SEEN].read(np.uint32).tolist() == [32 * 31]


def test_some_checks_alone_and_a_seed() -> None:
    load(text(), checks=Checks(frozenset(("uninitialised-read",))))[MEET][1, 32]()
    with pytest.raises(CheckFailed) as caught:
        load(text())[MEET].launch(1, 32, (), seed=7)
    assert caught.value.seed == 7


def test_an_observer_of_ones_own_takes_the_place_of_the_checks() -> None:
    observer = ProfileObserver()
    load(text())[MEET].launch(1, 32, (), observer=observer)
    assert observer.profile().threads == 32


@pytest.mark.parametrize("name", [MEET, "app::meet", "meet"])
def test_a_kernel_goes_by_its_symbol_and_its_rust_path(name: str) -> None:
    program = load(text(), checks=None)
    assert program[name].function.name == MEET
    program[name][1, 1]()


@pytest.mark.parametrize("name", [SEEN, "app::SEEN", "SEEN"])
def test_a_variable_goes_by_its_symbol_and_its_rust_path(name: str) -> None:
    program = load(text())
    program.variables[name].write(np.array([5], np.uint32))
    assert program.variables[SEEN].read(np.uint32).tolist() == [5]


def test_a_generic_kernel_goes_by_its_types() -> None:
    program = load(text())
    assert program["app::scale::<f64>"].function.name == "_RINvCs1_3app5scaledE"
    with pytest.raises(
        LaunchError, match="several kernels are called app::scale: app::scale::<f64>, app::scale::<f32>"
    ):
        program["app::scale"]


@pytest.mark.parametrize(
    ("name", "near"), [("app::meat", "app::meet"), ("meat", "app::meet"), ("wyld", "wild"), ("quite_other", "")]
)
def test_a_name_that_is_not_there(name: str, near: str) -> None:
    with pytest.raises(LaunchError) as caught:
        load(text(), name="k.ptx")[name]
    hint = f", did you mean {near}" if near else ""
    known = "app::scale::<f64>, app::scale::<f32>, app::meet, unrolled, wild"
    assert str(caught.value) == f"k.ptx: no kernel {name}{hint}; it has: {known}"


def test_reports_and_faults_tell_rust_names() -> None:
    with pytest.raises(CheckFailed) as race:
        load(text())["meet"][1, 32]()
    assert str(race.value).startswith("rgrun: error: kernel app::meet: data race on shared app::CELL+0: ")
    assert race.value.reports[0].kernel == MEET, "reports hold symbols"
    with pytest.raises(KernelFault) as fault:
        load(text(), checks=None)["wild"][1, 1]()
    assert re.search(r"past the end of app::SEEN \(4 bytes\)$", str(fault.value))
    with pytest.raises(LaunchError, match=r"^app::meet takes 0 arguments"):
        load(text())["meet"][1, 1](1)


def test_a_mistake_that_was_unrolled_is_told_once() -> None:
    with pytest.raises(CheckFailed) as caught:
        load(text())["unrolled"][1, 32]()
    assert len(caught.value.reports) > 1
    shown = explained(caught.value, (), "rgrun")
    assert shown.count("data race on") == 1
    more = len(caught.value.reports) - 1
    assert f"rgrun: note: {more} more reports name the same source lines" in shown


def test_the_limit_of_threads_is_the_callers() -> None:
    kernel = load(text(), checks=None)["app::scale::<f32>"]
    kernel.launch(2, 32, (), most_threads=64)
    refused = r"app::scale::<f32>: 65 threads, the machine takes 64"
    with pytest.raises(LaunchError, match=refused):
        kernel.launch(65, 1, (), most_threads=64)
    with pytest.raises(LaunchError, match=refused):
        launch_checked(kernel, 65, 1, (), most_threads=64)
    with pytest.raises(LaunchError, match="the machine takes 268435456"):
        kernel.launch(1 << 20, 512, ())
    with pytest.raises(LaunchError, match="the machine takes 536870911"):
        launch_checked(kernel, 1 << 20, 512, (), most_threads=1 << 40)


def test_an_instruction_that_is_not_known_is_told_with_the_rust_name_of_its_function() -> None:
    text = module(f".visible .entry {MEET}() {{ .reg .b32 %r<2>; frobnicate.u32 %r0, %r1; ret; }}")
    with pytest.raises(PtxError, match=r"k\.ptx: line \d+: in app::meet: unsupported instruction frobnicate"):
        load(text.encode(), name="k.ptx")["meet"][1, 1]()

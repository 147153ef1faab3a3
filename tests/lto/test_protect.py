"""Which crates rustc may have broken, on what the real rustc writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.protect import Protection, check_unprotected, classify
from tests.lto.rustc_output import PROTECTING, compile_crate

COLLECTIVES = """
#[unsafe(link_section = ".rglink.shared")]
static FLAG: Shared<[u32; 4]> = Shared::uninit();
#[inline(never)]
pub fn sum(x: &[u32]) -> u32 { x.iter().sum() }
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn early(x: &[u32], out: *mut u32) {
    let t = _thread_idx_x() as usize;
    *(FLAG.get() as *mut u32).add(t & 3) = sum(x);
    _syncthreads();
    asm!("bar.warp.sync 0xffffffff;");
    *out.add(t) = *(FLAG.get() as *mut u32).add(1);
}
"""
PLAIN = """
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn add(x: *const u32, out: *mut u32) {
    let t = _thread_idx_x() as usize;
    *out.add(t) = *x.add(t) + 1;
}
"""
RUSTC = '!llvm.ident = !{!0}\n!0 = !{!"rustc version 1.96.0"}\n'
HEAD = 'target triple = "nvptx64-nvidia-cuda"\n'


def checked(
    text: ModuleText, unprotected_crates: tuple[str, ...] = (), levels: Diagnostics | None = None
) -> Diagnostics:
    diags = levels or Diagnostics()
    check_unprotected(text, classify(text), diags, unprotected_crates)
    return diags


def read(module: Module) -> ModuleText:
    return ModuleText.parse(module.text())


@pytest.mark.rust
@pytest.mark.parametrize("level", ["0", "1", "2", "3", "s"])
def test_the_protecting_flags_leave_the_mark(tmp_path: Path, level: str) -> None:
    text = read(compile_crate(tmp_path, "k", COLLECTIVES, (*PROTECTING, f"-Copt-level={level}")))
    assert classify(text) == Protection("protected", "k", "`noredzone` on every definition")
    assert not checked(text).items


@pytest.mark.rust
@pytest.mark.parametrize("level", ["1", "2", "3", "s"])
def test_what_rustc_optimized_is_told_and_refused(tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUSTC_WRAPPER", "/opt/sccache")
    text = read(compile_crate(tmp_path, "k", COLLECTIVES, (f"-Copt-level={level}", "-Cdebuginfo=line-tables-only")))
    protection = classify(text)
    assert (protection.state, protection.crate) == ("unprotected", "k")
    (item,) = checked(text).items
    assert (item.level, item.slug) == ("error", "unprotected-crate")
    assert item.message == (
        "crate `k` was optimized by rustc without protection: its barriers may have been copied into the arms of"
        " branches, its shared statics made private to each thread, and nothing shows it"
    )
    assert "shared static `k::FLAG`" in item.places
    places = [place for place in item.places if " in early of crate k (k.rs:" in place]
    assert {place.split("`")[1] for place in places} == {
        "llvm.nvvm.barrier.cta.sync.aligned.all",
        "bar.warp.sync",
    }
    assert item.places[-1].startswith("told by: `")
    assert item.cure is not None
    for part in (
        "`rglink cargo-config --write`",
        "the device crate",
        "--allow=unprotected-crate",
        "RUSTC_WRAPPER=/opt/sccache is set and replaces the wrapper",
    ):
        assert part in item.cure


@pytest.mark.rust
def test_what_no_optimizer_touched_is_protected(tmp_path: Path) -> None:
    text = read(compile_crate(tmp_path, "k", COLLECTIVES, ("-Copt-level=0",)))
    assert classify(text) == Protection("protected", "k", "no sign of an optimizer")
    assert not checked(text).items


@pytest.mark.rust
def test_an_unprotected_crate_without_collectives_links(tmp_path: Path) -> None:
    text = read(compile_crate(tmp_path, "k", PLAIN, ("-Copt-level=3",)))
    assert classify(text).state == "unprotected"
    assert not checked(text).items


@pytest.mark.rust
def test_allowing_it_leaves_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUSTC_WRAPPER", "/somewhere/rglink-rustc")
    text = read(compile_crate(tmp_path, "k", COLLECTIVES, ("-Copt-level=3",)))
    (item,) = checked(text, levels=Diagnostics({"unprotected-crate": "allow"})).items
    assert item.level == "note"
    assert item.cure is not None
    assert "RUSTC_WRAPPER" not in item.cure  # it is ours


@pytest.mark.rust
def test_an_instance_counts_with_the_crate_that_wrote_the_generic(tmp_path: Path) -> None:
    dep = """
pub unsafe fn step<T: Copy>(p: *mut T, v: T) { _syncthreads(); *p = v; }
"""
    app = """
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn run(p: *mut u32) { dep::step(p, 7); }
"""
    compile_crate(tmp_path, "dep", dep, ("-Copt-level=3", "-Zcross-crate-inline-threshold=never"))
    flags = (*PROTECTING, "-Copt-level=3", "-Zinline-mir=no")
    text = read(compile_crate(tmp_path, "app", app, flags, externs=["dep"]))
    assert classify(text).state == "protected"
    assert not checked(text).items
    (item,) = checked(text, unprotected_crates=("dep",)).items
    assert item.message.startswith("crate `dep` was optimized by rustc")
    assert item.places == ("`llvm.nvvm.barrier.cta.sync.aligned.all` in dep::step::<u32> of crate dep",)


@pytest.mark.parametrize(
    ("definition", "sign"),
    [
        ("define void @f() convergent norecurse {\n  ret void\n}", "is `norecurse`"),
        ("define void @f() convergent memory(none) {\n  ret void\n}", "is `memory(none)`"),
        ("define void @f() {\n  ret void\n}", "is not `convergent`"),
        ("define fastcc void @f() convergent {\n  ret void\n}", "is `fastcc`"),
        ("define void @f(ptr writeonly %p) convergent {\n  ret void\n}", "has a parameter that is `writeonly`"),
        ("define void @f() convergent {\n  tail call void @f()\n  ret void\n}", "has a `tail call`"),
    ],
)
def test_each_sign_of_an_optimizer(definition: str, sign: str) -> None:
    plain = "define void @a() convergent {\n  ret void\n}\n"
    text = read(Module.parse_text(f"{HEAD}{plain}{definition}\n{RUSTC}", "test"))
    assert classify(text) == Protection("unprotected", "", f"`a` is without `noredzone` and `f` {sign}")
    marked = f"{HEAD}{plain}{definition}\n{RUSTC}".replace("convergent", "convergent noredzone")
    marked = marked.replace("@f() {", "@f() noredzone {")
    assert classify(read(Module.parse_text(marked, "test"))).state == "protected"


def test_no_sign_are_captures_readonly_and_noalias() -> None:
    text = read(
        Module.parse_text(
            f"{HEAD}define void @f(ptr noalias readonly captures(none) %p) convergent {{\n  ret void\n}}\n{RUSTC}",
            "test",
        )
    )
    assert classify(text).state == "protected"


def test_what_is_not_rustcs_counts_as_protected() -> None:
    text = read(Module.parse_text(f"{HEAD}define fastcc void @f() norecurse {{\n  ret void\n}}\n", "test"))
    assert classify(text) == Protection("protected", "", "not compiled by rustc")


def test_without_a_definition_nothing_can_be_told() -> None:
    text = read(Module.parse_text(f"{HEAD}@x = global i32 0\n{RUSTC}", "test"))
    assert classify(text) == Protection("unknown", "", "no definition to tell by")


def test_only_live_definitions_count() -> None:
    text = read(
        Module.parse_text(
            HEAD
            + 'define void @f() {\n  call void asm sideeffect "bar.sync 0;", ""()\n  ret void\n}\n'
            + 'define void @g() {\n  call void asm sideeffect "bar.sync 0;", ""()\n  ret void\n}\n'
            + RUSTC,
            "test",
        )
    )
    diags = Diagnostics()
    check_unprotected(text, classify(text), diags, live={"g"})
    assert diags.items[0].places[:1] == ("`bar.sync` in g",)
    assert len(diags.items[0].places) == 2

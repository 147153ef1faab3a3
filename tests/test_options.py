"""What the command line of a link means, rustc's own words included."""

from __future__ import annotations

import pytest

from rglink.arch import Arch, parse_arch, parse_arch_list
from rglink.diagnostics import UsageError
from rglink.options import LinkOptions, parse_options


def parse(*words: str, native: tuple[Arch, ...] = ()) -> LinkOptions:
    return parse_options(words, lambda: native)


def names(options: LinkOptions) -> list[str]:
    return [target.name for target in options.targets]


def refusal(*words: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(*words)
    return caught.value.diagnostic.render()


def test_rustcs_command_line() -> None:
    options = parse(
        *"--export-symbol saxpy --export-symbol TABLE app.rcgu.o libdep.rlib -L deps".split(),
        *"--target nvptx64-nvidia-cuda --target-cpu sm_90 -o deps/app.ptx -O3 --debug".split(),
    )
    assert options.driven_by_rustc
    assert options.exports == ("saxpy", "TABLE")
    assert options.inputs == ("app.rcgu.o", "libdep.rlib")
    assert options.emit == ("ptx", "fatbin")
    assert names(options) == ["sm_90", "compute_90"]
    assert options.debug == "auto", "--debug comes in every build of rustc's"


def test_sm_30_of_rustc_means_that_nobody_chose() -> None:
    options = parse("a.o", "--target", "nvptx64-nvidia-cuda", "--target-cpu", "sm_30", "-o", "a.ptx", "-Os")
    assert names(options) == ["sm_75", "compute_75"]
    assert options.replaced_cpu == "sm_30"
    assert options.opt_level == 2


def test_an_arch_list_wins_over_the_target_cpu() -> None:
    options = parse("a.o", "--target-cpu=sm_30", "-o", "a.fatbin", "--arch", "sm_90,sm_80", "--arch=compute_80,sm_90a")
    assert names(options) == ["sm_80", "compute_80", "sm_90", "sm_90a"]
    assert options.replaced_cpu == ""


@pytest.mark.parametrize(
    ("output", "emit"),
    [("a.fatbin", "fatbin"), ("a.cubin", "cubin"), ("a.b.ptx", "ptx"), ("a.bc", "bc"), ("a.ll", "ll")],
)
def test_the_ending_says_what_is_made(output: str, emit: str) -> None:
    assert parse("a.rgo", "-o", output).emit == (emit,)
    assert parse("a.rgo", "-o", output, "--emit", "ptx,fatbin").emit == ("ptx", "fatbin")


def test_levels_lists_and_joined_values() -> None:
    options = parse(
        *"a.rgo -oa.fatbin -Llib -L other -lm -j3 --keep a* --keep=m::f<A,B> --drop d".split(),
        *"--allow=unprotected-crate --deny recursive-function,renamed-kernel".split(),
    )
    assert (options.library_dirs, options.libraries, options.jobs) == (("lib", "other"), ("m",), 3)
    assert (options.keep, options.drop) == (("a*", "m::f<A,B>"), ("d",))
    assert options.levels == (
        ("unprotected-crate", "allow"),
        ("recursive-function", "deny"),
        ("renamed-kernel", "deny"),
    )


@pytest.mark.parametrize("word", ["--race=warn", "--launch=k=1:2", "-r", "--partitions=4", "--emit=c-header",
                                  "--message-format=json", "--fast-math", "--inline=search"])  # fmt: skip
def test_what_is_not_built_is_refused(word: str) -> None:
    assert refusal("a.rgo", "-o", "a.fatbin", word).endswith("not built in this version [not-built]")


def test_what_is_off_may_be_said() -> None:
    assert parse("a.rgo", "-o", "a.fatbin", "--race=off", "--inline=auto", "--partitions=one", "--no-cache")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "a.fatbin"), "rglink: error: no input files [usage]"),
        (("a.rgo",), "rglink: error: no output: -o OUT is wanted [usage]"),
        (("a.rgo", "-o"), "rglink: error: -o: a value is wanted [usage]"),
        (("a.rgo", "-o", "a.exe"),
         "rglink: error: -o a.exe: unknown output kind, wanted an ending of .fatbin, .cubin, .ptx, .ltoir, .bc, .ll, "
         "or --emit KIND [usage]"),
        (("a.rgo", "-o", "a.fatbin", "--keeep=x"),
         "rglink: error: --keeep: unknown option; did you mean --keep? [unknown-option]"),
        (("a.rgo", "-o", "a.fatbin", "-O4"), "rglink: error: -O4: unknown level, wanted -O0 to -O3 or -Os [usage]"),
        (("a.rgo", "-o", "a.fatbin", "--allow=unprotected"),
         "rglink: error: --allow=unprotected: no diagnostic of that name whose level may be changed; did you mean "
         "unprotected-crate? [usage]"),
        (("a.rgo", "-o", "a.fatbin", "--arch=native"),
         "rglink: error: --arch native: no GPU was found on this machine [unknown-arch]"),
        (("a.o", "-o", "a.ptx", "--target", "amdgcn-amd-amdhsa"),
         "rglink: error: --target amdgcn-amd-amdhsa: unknown target, wanted nvptx64-nvidia-cuda [usage]"),
    ],
)  # fmt: skip
def test_wrong_usage_says_what_was_wanted(words: tuple[str, ...], message: str) -> None:
    assert refusal(*words) == message


def test_an_architecture_that_is_too_old_is_told_with_its_last_toolkit() -> None:
    assert refusal("a.rgo", "-o", "a.fatbin", "--arch=sm_70").startswith(
        "rglink: error: sm_70: CUDA 12.9 was the last toolkit that knew it; supported: sm_75, sm_80, "
    )


def test_an_unknown_architecture_gets_near_misses() -> None:
    text = refusal("a.rgo", "-o", "a.fatbin", "--arch=sm_91")
    assert text.startswith("rglink: error: sm_91: unknown architecture; supported: sm_75, ")
    assert ">>> help: did you mean sm_9" in text


def test_all_native_and_suffixes() -> None:
    assert [t.name for t in parse_arch_list("all-major")] == [
        "sm_75", "sm_80", "sm_90", "sm_100", "sm_110", "sm_120", "compute_120",
    ]  # fmt: skip
    everything = [t.name for t in parse_arch_list("all")]
    assert everything[0] == "sm_75"
    assert everything[-1] == "compute_121"
    assert "sm_90a" not in everything
    assert names(parse("a.rgo", "-o", "a.fatbin", "--arch=native", native=(Arch(90), Arch(75)))) == ["sm_75", "sm_90"]
    assert parse_arch("sm_100f") == Arch(100, "f")

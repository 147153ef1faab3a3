"""The sample workspace from end to end: by rgcc and rglink, and by cargo with rglink as its linker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from rglink.frontend.rustc import Rustc, find_rustc

pytestmark = pytest.mark.rust

SAMPLES = Path(__file__).parents[2] / "samples"
SCRIPTS = Path(sys.executable).parent
CUDA_TOOLS = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"
TARGET = "nvptx64-nvidia-cuda"
# Crate, its dependencies; in the order in which they are compiled.
CRATES = (
    ("vecmath", ()),
    ("blocks", ("vecmath",)),
    ("windows", ("vecmath", "blocks")),
    ("sensor_kernels", ("vecmath", "blocks", "windows")),
)
ARCHITECTURES = "sm_75,sm_80,sm_90,sm_100,sm_120,compute_75"
DROP = ("--drop", "blocks_selftest", "--drop", "dump_histogram")
LIVE = {"block_sum", "calibrate", "gather", "histogram", "moving_median", "seed_noise", "watch"}
# The mangled kernels: their crate and name as they stand in the symbol.
LIVE_MANGLED = {"6blocks6smooth", "6blocks5scalef", "6blocks5scaled"}


def run(
    tool: str | Path, *arguments: str | Path, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [SCRIPTS / tool, *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def checked(
    tool: str | Path, *arguments: str | Path, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = run(tool, *arguments, cwd=cwd, env=env)
    assert done.returncode == 0, f"{tool}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def compile_samples(samples: Path, folder: Path, *flags: str, env: dict[str, str] | None = None) -> list[Path]:
    """Each crate's `.rgo` in `folder`, compiled in the workspace `samples`."""
    objects: list[Path] = []
    for crate, dependencies in CRATES:
        source = f"{crate.replace('_', '-')}/src/lib.rs"
        output = folder / f"{crate}.rgo"
        externs = [part for name in dependencies for part in ("--extern", f"{name}={folder / name}.rgo")]
        checked(
            "rgcc", "-c", source, "-o", output, "--crate-name", crate, "--edition", "2024", *externs, *flags,
            cwd=samples, env=env,
        )  # fmt: skip
        objects.append(output)
    return objects


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return compile_samples(SAMPLES, tmp_path_factory.mktemp("objects"))


@pytest.fixture(scope="module")
def image(objects: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The fat binary for all architectures and what the link reported."""
    folder = tmp_path_factory.mktemp("image")
    done = checked(
        "rglink", *objects, "-o", "app.fatbin", "--arch", ARCHITECTURES, *DROP, "--print-gc", "--print-resources",
        cwd=folder,
    )  # fmt: skip
    return folder / "app.fatbin", done.stdout


def cuobjdump(*arguments: str | Path) -> str:
    done = subprocess.run([CUDA_TOOLS / "cuobjdump", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def symbols_by_arch(fatbin: Path) -> dict[str, list[list[str]]]:
    """The words of each symbol line of cuobjdump, by the architecture of the cubin."""
    found: dict[str, list[list[str]]] = {}
    arch = ""
    for line in cuobjdump("-symbols", fatbin).splitlines():
        if line.startswith("arch = "):
            arch = line.removeprefix("arch = ")
            found.setdefault(arch, [])
        elif re.match(r"(FUNC|OBJECT|NOTYPE) ", line):
            found[arch].append(line.split())
    return found


def kernels(symbols: list[list[str]]) -> list[str]:
    return sorted(words[-1] for words in symbols if words[0] == "FUNC" and "ENTRY" in words)


def without_mangling(names: list[str]) -> set[str]:
    """Names as they are, and the part of a mangled kernel's name that does not depend on hashes."""
    found = set()
    for name in names:
        mangled = re.search(r"6blocks(6smooth|5scale[fd])", name)
        found.add(mangled.group(0) if mangled and name.startswith("_R") else name)
    return found


def entry(ptx: str, kernel: str) -> str:
    """The PTX of one kernel, from its `.entry` to the brace that closes it."""
    found = re.search(rf"\.entry {kernel}\(.*?\n\}}", ptx, re.DOTALL)
    assert found, f"no kernel {kernel} in the PTX"
    return found.group(0)


def barriers(ptx: str) -> int:
    return len(re.findall(r"\bbar(?:rier)?(?:\.cta)?\.sync\b", ptx))


def check_early_exit(ptx: str) -> None:
    """The flag of `calibrate` is in shared memory: written twice, read once, with the source's two barriers.

    The store in the branch may be placed anywhere in the text, so the order is not looked at.
    """
    body = entry(ptx, "calibrate")
    assert barriers(body) == 2
    assert len(re.findall(r"\bst\.(?:volatile\.)?shared", body)) == 2
    assert len(re.findall(r"\bld\.(?:volatile\.)?shared", body)) == 1
    assert re.search(r"\.shared \.align 4 \.u32 \S*REJECTED", ptx)


def test_five_cubins_and_one_ptx(image: tuple[Path, str]) -> None:
    listed = cuobjdump("-lelf", "-lptx", image[0])
    assert re.findall(r"ELF file +\d+: \S*\.(sm_\d+)\.cubin", listed) == ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"]
    assert re.findall(r"PTX file +\d+: \S*\.(sm_\d+)\.ptx", listed) == ["sm_75"]


def test_every_cubin_holds_exactly_the_live_kernels(image: tuple[Path, str]) -> None:
    symbols = symbols_by_arch(image[0])
    assert len(symbols) == 5
    names = {arch: kernels(lines) for arch, lines in symbols.items()}
    for arch, found in names.items():
        assert without_mangling(found) == LIVE | LIVE_MANGLED, arch
        assert found == names["sm_75"]
    assert sum("5scaled" in name for name in names["sm_75"]) == 1


def test_host_statics_are_visible(image: tuple[Path, str]) -> None:
    for lines in symbols_by_arch(image[0]).values():
        assert ["OBJECT", "GLOBAL"] in [words[:2] for words in lines if words[-1] == "SAMPLES_SEEN"]


def test_gc_report_names_what_went(image: tuple[Path, str]) -> None:
    for name in ("blocks_selftest", "dump_histogram", "vecmath_checksum"):
        assert name in image[1]


def test_resource_table_has_every_live_kernel(image: tuple[Path, str]) -> None:
    for name in LIVE:
        assert re.search(rf"\b{name}\b.*\d", image[1]), name


@pytest.mark.parametrize("codegen", ["llvm", "nvvm"])
def test_shared_flag_and_barriers_stay_by_both_routes(objects: list[Path], tmp_path: Path, codegen: str) -> None:
    checked(
        "rglink", *objects, "-o", "app.ptx", "--arch", "compute_75", f"--codegen={codegen}", *DROP, cwd=tmp_path
    )  # fmt: skip
    ptx = (tmp_path / "app.ptx").read_text()
    check_early_exit(ptx)
    assert barriers(entry(ptx, "block_sum")) == 2
    assert "blocks_selftest" not in ptx


def test_bounds_check_survives(objects: list[Path], tmp_path: Path) -> None:
    checked("rglink", *objects, "-o", "app.ptx", "--arch", "compute_75", *DROP, cwd=tmp_path)
    ptx = (tmp_path / "app.ptx").read_text()
    body = entry(ptx, "gather")
    assert "setp." in body
    assert "trap" in body or "call" in body


def test_input_order_and_hash_seed_do_not_matter(objects: list[Path], tmp_path: Path) -> None:
    images = []
    for number, inputs in enumerate([objects, objects[::-1], [*objects[2:], *objects[:2]]]):
        env = os.environ | {"PYTHONHASHSEED": str(number)}
        output = tmp_path / f"{number}.fatbin"
        checked(
            "rglink", *inputs, "-o", output, "--arch", "sm_80,sm_90,compute_75", *DROP, cwd=tmp_path, env=env
        )  # fmt: skip
        images.append(output.read_bytes())
    assert images[1:] == images[:1] * 2


@pytest.mark.parametrize("flags", [(), ("--lineinfo",)], ids=["plain", "lineinfo"])
def test_folder_and_hash_seed_do_not_matter(tmp_path: Path, flags: tuple[str, ...]) -> None:
    images = []
    for number, name in enumerate(("here", "some/where/else")):
        folder = tmp_path / name
        shutil.copytree(SAMPLES, folder, ignore=shutil.ignore_patterns("target"))
        env = os.environ | {"PYTHONHASHSEED": str(number)}
        inputs = compile_samples(folder, folder, *flags, env=env)
        checked("rglink", *inputs, "-o", "app.fatbin", "--arch", "sm_90,compute_75", *DROP, cwd=folder, env=env)
        images.append((folder / "app.fatbin").read_bytes())
    assert images[0] == images[1]


# cargo


@pytest.fixture(scope="module")
def rustc() -> Rustc:
    return find_rustc(22)


def cargo(
    rustc: Rustc, workspace: Path, target: Path, *arguments: str, flags: str = ""
) -> subprocess.CompletedProcess[str]:
    """`cargo build` in `workspace`, with the library's vendored dependencies where it brings them."""
    beside = rustc.path.with_name("cargo")
    program = beside if beside.exists() else Path(shutil.which("cargo") or "cargo")
    vendored = rustc.library / "vendor"
    source: list[str] = []
    if vendored.is_dir():
        source = ["--offline", "--config", 'source.crates-io.replace-with="library"']
        source += ["--config", f'source.library.directory="{vendored}"']
    env = {name: value for name, value in os.environ.items() if name not in ("RUSTC_WRAPPER", "RGLINK_FLAGS")}
    env |= {"RUSTC": str(rustc.path), "RUSTC_BOOTSTRAP": "1", "PATH": f"{SCRIPTS}:{env['PATH']}"}
    if flags:
        env["RGLINK_FLAGS"] = flags
    command: list[str | Path] = [program, "build", "--target-dir", target, *source, *arguments]
    return subprocess.run(command, cwd=workspace, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["release", "debug"])
def test_cargo_build(rustc: Rustc, tmp_path: Path, profile: str) -> None:
    done = cargo(rustc, SAMPLES, tmp_path, *(["--release"] if profile == "release" else []))
    assert done.returncode == 0, done.stderr
    built = tmp_path / TARGET / profile
    ptx = (built / "sensor_kernels.ptx").read_text()
    assert not re.search(r"^\.target .*debug", ptx, re.MULTILINE), "ptxas does not optimize such PTX"
    if profile == "release":
        check_early_exit(ptx)
        assert barriers(entry(ptx, "block_sum")) == 2
    symbols = symbols_by_arch(built / "sensor_kernels.fatbin")
    assert len(symbols) == 5
    for lines in symbols.values():
        assert without_mangling(kernels(lines)) == LIVE | LIVE_MANGLED
    assert (built / "deps/sensor_kernels.fatbin").samefile(built / "sensor_kernels.fatbin")
    assert (built / "sensor_kernels.rglink.txt").is_file()


@pytest.mark.slow
def test_cargo_without_the_wrapper_is_refused_or_allowed(rustc: Rustc, tmp_path: Path) -> None:
    plain = ("--release", "--config", 'build.rustc-wrapper=""')
    refused = cargo(rustc, SAMPLES, tmp_path, *plain)
    assert refused.returncode != 0
    assert "[unprotected-crate]" in refused.stderr
    assert "blocks" in refused.stderr
    assert "rglink cargo-config --write" in refused.stderr
    assert "--allow=unprotected-crate" in refused.stderr
    built = tmp_path / TARGET / "release"
    assert not (built / "deps/sensor_kernels.ptx").exists()
    allowed = cargo(rustc, SAMPLES, tmp_path, *plain, flags="--allow=unprotected-crate")
    assert allowed.returncode == 0, allowed.stderr
    assert "unprotected-crate" in (built / "sensor_kernels.rglink.txt").read_text()


def test_host_tests_of_the_math_crate(rustc: Rustc, tmp_path: Path) -> None:
    """Outside of the workspace's folder its cargo configuration, and with it the target, does not count."""
    beside = rustc.path.with_name("cargo")
    program = beside if beside.exists() else Path(shutil.which("cargo") or "cargo")
    done = subprocess.run(
        [program, "test", "--offline", "--manifest-path", SAMPLES / "vecmath/Cargo.toml", "--target-dir", tmp_path],
        cwd=tmp_path, env=os.environ | {"RUSTC": str(rustc.path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "6 passed" in done.stdout

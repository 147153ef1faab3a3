"""27 kernels over the ecosystem's crates, on both routes: 256 threads equal the host; `run_all` takes 4,096."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from rglink.emulate import LoadedProgram, load
from rglink.frontend.sysroot import device_sysroot
from tests.conformance.crate import CONFIGURATIONS, Configuration, checked
from tests.conformance.real_program.build import KERNELS, build_device, build_host, missing_crates
from tests.conformance.real_program.run import device_results, differing, host_results, inputs
from tests.tools import require_rustc

pytestmark = [pytest.mark.rust, pytest.mark.slow]

THREADS = 256


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """The host's library and the device's rlibs."""
    missing = missing_crates()
    if missing:
        pytest.skip(f"sources of crates are not installed: {' '.join(missing)}")
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    rustc, folder = require_rustc(), tmp_path_factory.mktemp("real")
    return build_host(rustc, folder), build_device(rustc, device_sysroot(rustc, "tests"), folder)


@pytest.fixture(scope="module", params=[c for c in CONFIGURATIONS if c.level == 3 and c.arch == "sm_75"], ids=str)
def program(
    request: pytest.FixtureRequest, built: tuple[Path, list[Path]], tmp_path_factory: pytest.TempPathFactory
) -> LoadedProgram:
    folder = tmp_path_factory.mktemp("linked")
    configuration: Configuration = request.param
    link(built[1], configuration, folder)
    return load(folder / "real.ptx", checks=None)


def link(rlibs: list[Path], configuration: Configuration, folder: Path) -> None:
    """Make `real.ptx` in the folder."""
    route = (f"-O{configuration.level}", f"--codegen={configuration.route}", "--arch", configuration.arch)
    checked(("rglink", *map(str, rlibs), "-o", "real.ptx", *route), folder)


@pytest.mark.parametrize("kernel", KERNELS)
def test_results_equal_the_hosts(program: LoadedProgram, built: tuple[Path, list[Path]], kernel: str) -> None:
    given = inputs(THREADS)
    host = host_results(built[0], kernel, given, THREADS)
    assert len(np.unique(host)) > 5, "inputs that tell nothing"
    device = device_results(program, kernel, given, THREADS)
    assert differing(kernel, host, device).tolist() == []

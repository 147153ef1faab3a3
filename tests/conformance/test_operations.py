"""A sample of the table of operations, two types of each, in every configuration. The whole: `run_all`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.compare import DeviceProgram, HostLibrary, compare
from tests.conformance.crate import CONFIGURATIONS, Configuration, build_device, build_host, crate_source, link_device
from tests.conformance.table import all_operations, sample
from tests.tools import require_rustc

pytestmark = [pytest.mark.rust, pytest.mark.slow]

SEED = 1


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, HostLibrary]:
    rustc = require_rustc()
    folder = tmp_path_factory.mktemp("conformance")
    source = folder / "operations.rs"
    source.write_text(crate_source(sample()))
    build_host(rustc, source, folder / "host.so")
    return source, HostLibrary(folder / "host.so")


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_device_results_equal_the_hosts(built: tuple[Path, HostLibrary], configuration: Configuration) -> None:
    source, host = built
    linked = link_device(build_device(source, configuration.level), configuration)
    found = compare(sample(), host, DeviceProgram(linked), SEED)
    assert [f"{each.operation}: {each.shown}" for each in found] == []


def test_the_table_is_as_large_as_it_says() -> None:
    operations = all_operations()
    assert len({operation.name for operation in operations}) == len(operations)
    assert len({operation.family for operation in operations}) >= 240

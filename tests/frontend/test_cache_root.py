"""The cache folder belongs to the user alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rglink.cache import cache_root
from rglink.diagnostics import ToolError


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RGLINK_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_order_of_the_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "home/.cache/rglink"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_root() == tmp_path / "home/.cache/rglink", "the XDG specification ignores relative paths"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg/rglink"
    monkeypatch.setenv("RGLINK_CACHE_DIR", str(tmp_path / "own/deep"))
    assert cache_root() == tmp_path / "own/deep"
    assert (tmp_path / "own/deep").stat().st_mode & 0o777 == 0o700


def test_an_empty_loose_folder_is_made_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("RGLINK_CACHE_DIR", str(folder))
    assert cache_root() == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_loose_folder_with_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c/planted").mkdir(parents=True)
    (tmp_path / "c").chmod(0o775)
    monkeypatch.setenv("RGLINK_CACHE_DIR", str(tmp_path / "c"))
    with pytest.raises(ToolError) as caught:
        cache_root()
    assert caught.value.diagnostic.render() == (
        f"rglink: error: {tmp_path}/c: other users can write in this cache folder (mode 0775, wanted 0700)"
        f" [cache-folder]\n>>> help: delete it, or if you trust what is in it: chmod 700 {tmp_path}/c"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c").mkdir(mode=0o700)
    os.chown(tmp_path / "c", 12345, 12345)
    monkeypatch.setenv("RGLINK_CACHE_DIR", str(tmp_path / "c"))
    with pytest.raises(ToolError, match="belongs to user 12345, not to user 0"):
        cache_root()


def test_a_file_in_its_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c").write_text("")
    monkeypatch.setenv("RGLINK_CACHE_DIR", str(tmp_path / "c"))
    with pytest.raises(ToolError, match="c: cannot be used as cache folder: File exists"):
        cache_root()

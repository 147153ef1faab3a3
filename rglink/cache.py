"""The per-user cache folder.

Whoever can write here can put code into links, so the folder must belong to the user alone.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rglink.diagnostics import ToolError


def cache_root() -> Path:
    """The cache folder, made (mode 0700) when it is missing.

    `RGLINK_CACHE_DIR` names it; else it is `rglink` in `XDG_CACHE_HOME` or in `~/.cache`.

    Raises:
        ToolError: it cannot be made, belongs to another user, or others can write in it.
    """
    root = _wanted_root()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(root)
    except OSError as error:
        raise ToolError(
            f"{root}: cannot be used as cache folder: {error.strerror}",
            slug="cache-folder",
            cure="set RGLINK_CACHE_DIR to a folder of your own",
        ) from None
    return root


def check_private(folder: Path) -> None:
    """Refuse a folder that another user owns or could write in; an empty one of ours is made private.

    Raises:
        ToolError: naming the folder and what is wrong with it.
        OSError: it cannot be looked at.
    """
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise ToolError(
            f"{folder}: cache folder belongs to user {status.st_uid}, not to user {os.geteuid()}",
            slug="cache-folder",
            cure="set RGLINK_CACHE_DIR to a folder of your own",
        )
    if not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    if any(folder.iterdir()):
        raise ToolError(
            f"{folder}: other users can write in this cache folder (mode {status.st_mode & 0o777:04o}, wanted 0700)",
            slug="cache-folder",
            cure=f"delete it, or if you trust what is in it: chmod 700 {folder}",
        )
    folder.chmod(0o700)


def _wanted_root() -> Path:
    own = os.environ.get("RGLINK_CACHE_DIR")
    if own:
        return Path(own).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    # The XDG base directory specification: a relative path is to be ignored.
    if xdg and os.path.isabs(xdg):
        return Path(xdg) / "rglink"
    try:
        return Path.home() / ".cache" / "rglink"
    except RuntimeError:
        raise ToolError(
            "no cache folder: neither RGLINK_CACHE_DIR, XDG_CACHE_HOME nor a home folder is known",
            slug="cache-folder",
            cure="set RGLINK_CACHE_DIR to a folder of your own",
        ) from None

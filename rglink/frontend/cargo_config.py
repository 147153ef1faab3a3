"""`rglink cargo-config`: the two settings that make cargo link device crates with rglink.

Written settings go into the text of the file that is there; afterwards the file is read again, and unless it
says exactly what it said before plus the settings, nothing is written.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from rglink.diagnostics import EXIT_DONE, InputError, RglinkError, UsageError
from rglink.frontend.sysroot import TARGET

LINKER = "rglink"
WRAPPER = "rglink-rustc"
# The wrapper calls the program that this variable names; cargo's `[env]` sets it for the wrapper too.
CHAIN_VARIABLE = "RGLINK_RUSTC_WRAPPER"

_OVERRIDING = (
    "RUSTC_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    f"CARGO_TARGET_{TARGET.replace('-', '_').upper()}_LINKER",
)

SETTINGS = f"""\
[target.{TARGET}]
linker = "{LINKER}"

[build]
rustc-wrapper = "{WRAPPER}"
"""

# cargo's configuration holds what its reference calls TOML values.
Toml = str | int | float | bool | list["Toml"] | dict[str, "Toml"]
Table = dict[str, Toml]


@dataclass(frozen=True)
class Setting:
    """`path` leads to the key ("build", "rustc-wrapper"); `value` is what is to stand there."""

    path: tuple[str, ...]
    value: Toml

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True)
class _OlderWrapper:
    """A wrapper that ours has to call: as `[env]` takes it, and the file that sets it."""

    value: Toml
    file: Path


def main(argv: list[str]) -> int:
    """Run `rglink cargo-config` with the arguments after that word; returns the exit code."""
    try:
        arguments = _parse(argv)
        if arguments.write:
            _write(Path(arguments.manifest_dir))
        else:
            print(SETTINGS, end="")
    except RglinkError as error:
        print(error.diagnostic.render(), file=sys.stderr)
        return error.exit_code
    return EXIT_DONE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"cargo-config: {message}")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="rglink cargo-config",
        description="Print the settings that make cargo link device crates with rglink.",
        allow_abbrev=False,
    )
    parser.add_argument("--write", action="store_true", help="add them to .cargo/config.toml")
    parser.add_argument("--manifest-dir", default=".", metavar="DIR", help="folder of Cargo.toml (default: here)")
    return parser.parse_args(argv)


def _write(folder: Path) -> None:
    """Add the settings to the configuration of the project in `folder`.

    Raises:
        InputError: no project is there, its configuration is no TOML, or a setting conflicts.
    """
    if not (folder / "Cargo.toml").is_file():
        raise InputError(f"{folder}: no Cargo.toml in this folder", slug="cargo-config", cure="name it: --manifest-dir")
    file = _config_file(folder / ".cargo")
    text = _read(file) if file.exists() else ""
    wanted = wanted_settings(file, _load(file, text), _older_wrapper(folder.absolute(), file))
    new = text
    for setting in wanted:
        new = add_setting(file, new, setting)
    if new != text:
        _replace(file, new)
    print(f"{file}: {'up to date' if new == text else 'written'}")
    _advise()


def _advise() -> None:
    """Say what would make the written settings idle."""
    for variable in _OVERRIDING:
        if os.environ.get(variable):
            print(f"rglink: warning: {variable} is set and overrides what is written [cargo-config]", file=sys.stderr)
    for program in (LINKER, WRAPPER):
        if shutil.which(program) is None:
            print(
                f"rglink: warning: {program} is not on PATH, where cargo looks for it [cargo-config]", file=sys.stderr
            )


def wanted_settings(file: Path, config: Table, older: _OlderWrapper | None) -> list[Setting]:
    """The settings to add to `config`, which `file` holds, in the order of the file.

    Raises:
        InputError: what is there asks for something else.
    """
    settings = []
    linker = Setting(("target", TARGET, "linker"), LINKER)
    if not _names(_lookup(config, linker.path), LINKER):
        _refuse_other(file, config, linker)
        settings.append(linker)
    _refuse_linker_flags(file, config)
    wrapper = Setting(("build", "rustc-wrapper"), WRAPPER)
    if not _names(_lookup(config, wrapper.path), WRAPPER):
        settings.append(wrapper)
    if older is not None:
        chain = Setting(("env", CHAIN_VARIABLE), older.value)
        _refuse_other(file, config, chain)
        settings.append(chain)
    return settings


def _names(value: Toml | None, program: str) -> bool:
    """Whether a setting names a program of ours, by itself or in some folder."""
    return isinstance(value, str) and value.rsplit("/", 1)[-1] == program


def _refuse_other(file: Path, config: Table, setting: Setting) -> None:
    found = _lookup(config, setting.path)
    if found not in (None, setting.value):
        raise InputError(
            f"{file}: {setting.name} is {json.dumps(found)} already, wanted {json.dumps(setting.value)}",
            slug="cargo-config",
            cure=f"take {setting.name} out of {file} and run this again",
        )


def _refuse_linker_flags(file: Path, config: Table) -> None:
    """`-Clinker=` in rustflags would win over `linker`."""
    for path in (("target", TARGET, "rustflags"), ("build", "rustflags")):
        flags = _lookup(config, path) or []
        words = flags.split() if isinstance(flags, str) else flags if isinstance(flags, list) else []
        found = [str(word) for word in words if re.match(r"(-C\s*|--codegen=)?linker=", str(word))]
        if found:
            raise InputError(
                f"{file}: {'.'.join(path)} holds {found[0]}, which overrides target.{TARGET}.linker",
                slug="cargo-config",
                cure=f"take it out of {file} and run this again",
            )


def _older_wrapper(folder: Path, file: Path) -> _OlderWrapper | None:
    """The wrapper that cargo uses today: of the nearest configuration file that names one and is not ours."""
    home = Path(os.environ.get("CARGO_HOME") or Path("~/.cargo").expanduser())
    places = [place / ".cargo" for place in (folder, *folder.parents)]
    for place in dict.fromkeys([*places, home]):
        other = file if place == places[0] else _config_file(place)
        if not other.is_file():
            continue
        found = _lookup(_load(other, _read(other)), ("build", "rustc-wrapper"))
        if _names(found, WRAPPER):
            return None
        if isinstance(found, str) and found:
            return _OlderWrapper(_chained(found, other, file), other)
    return None


def _chained(wrapper: str, found_in: Path, file: Path) -> Toml:
    """How `[env]` names a wrapper: a bare name is looked up on PATH, a path is relative to its `.cargo`'s folder."""
    if "/" not in wrapper or os.path.isabs(wrapper):
        return wrapper
    if found_in == file:
        return {"value": wrapper, "relative": True}
    return str(found_in.absolute().parent.parent / wrapper)


def _config_file(dot_cargo: Path) -> Path:
    """cargo still prefers a `config` without ending when both are there."""
    old = dot_cargo / "config"
    return old if old.is_file() else dot_cargo / "config.toml"


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}", slug="cargo-config") from None


def _load(file: Path, text: str) -> Table:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file}: no TOML: {error}", slug="cargo-config") from None


def _lookup(config: Table, path: tuple[str, ...]) -> Toml | None:
    value: Toml | None = config
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def add_setting(file: Path, text: str, setting: Setting) -> str:
    """`text` with `setting` in it and every other byte as it was, but for an older value of that key.

    Ways to write it are tried until one reads as the old content plus the setting.

    Raises:
        InputError: none does (an inline table, for example); the message says what to write by hand.
    """
    before = _load(file, text)
    if _lookup(before, setting.path) == setting.value:
        return text
    expected = _with_setting(before, setting)
    for candidate in _edits(text, setting):
        try:
            if tomllib.loads(candidate) == expected:
                return candidate
        except tomllib.TOMLDecodeError:
            continue
    raise InputError(
        f"{file}: cannot add {setting.name} to the text that is there",
        slug="cargo-config",
        cure=f"write it by hand: {setting.name} = {_literal(setting.value)}",
    )


def _with_setting(config: Table, setting: Setting) -> Table:
    first, *rest = setting.path
    if not rest:
        return {**config, first: setting.value}
    inner = config.get(first, {})
    return {
        **config,
        first: _with_setting(inner if isinstance(inner, dict) else {}, Setting(tuple(rest), setting.value)),
    }


def _edits(text: str, setting: Setting) -> list[str]:
    """Texts that may hold the setting: its value replaced, its table made longer, a dotted key, a new table."""
    newline = "\r\n" if "\r\n" in text else "\n"
    *table, key = setting.path
    literal = _literal(setting.value)
    line = f"{key} = {literal}{newline}"
    value = re.compile(rf"""^(\s*(?:[\w".-]+\.)?"?{re.escape(key)}"?\s*=\s*)("[^"\n]*"|'[^'\n]*')""", re.MULTILINE)
    edits = [text[: found.start(2)] + literal + text[found.end(2) :] for found in value.finditer(text)]
    dotted = r"\s*\.\s*".join(_key_pattern(each) for each in table)
    header = re.compile(rf"^[ \t]*\[{dotted}\][^\r\n]*(\r?\n|\Z)", re.MULTILINE)
    for found in header.finditer(text):
        start = text[: found.end()]
        edits.append((start if start.endswith("\n") else start + newline) + line + text[found.end() :])
    body = text if not text or text.endswith("\n") else text + newline
    gap = newline if body else ""
    edits.append(f"{body}{gap}[{'.'.join(table)}]{newline}{line}")
    edits.append(f"{'.'.join(table)}.{line}{text}")
    return edits


def _key_pattern(key: str) -> str:
    return rf"""\s*["']?{re.escape(key)}["']?\s*"""


def _literal(value: Toml) -> str:
    """TOML for the values that settings here have; TOML's basic strings escape as JSON's do."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_literal(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


def _replace(file: Path, text: str) -> None:
    # Where a link leads, so that a configuration kept elsewhere stays linked.
    real = file.resolve()
    partial = real.with_name(f"{real.name}.{os.getpid()}.new")
    try:
        real.parent.mkdir(exist_ok=True)
        partial.write_bytes(text.encode())
        if real.exists():
            shutil.copymode(real, partial)
        partial.replace(real)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InputError(f"{file}: cannot be written: {error.strerror}", slug="cargo-config") from None

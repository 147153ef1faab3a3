"""What is said to the user: diagnostics, and the errors that end a run.

A user's mistake is reported with `Diagnostics.error` and the phase goes on with a sound value;
`Diagnostics.checkpoint` stops where more errors would only echo. A corrupt file raises `InputError`,
a missing or failing tool `ToolError`. Only `frontend` prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "note"]

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_TOOL = 3
EXIT_BUG = 4


@dataclass(frozen=True)
class Diagnostic:
    """One message: `slug` names its kind, `places` are lines shown after `>>> `, `cure` is what to do."""

    level: Level
    slug: str
    message: str
    places: tuple[str, ...] = ()
    cure: str | None = None

    def render(self, program: str = "rglink") -> str:
        """The text a person reads, without a final newline."""
        lines = [f"{program}: {self.level}: {self.message} [{self.slug}]"]
        lines += [f">>> {place}" for place in self.places]
        if self.cure is not None:
            lines.append(f">>> help: {self.cure}")
        return "\n".join(lines)


class RglinkError(Exception):
    """Ends a run with one diagnostic and an exit code."""

    exit_code = EXIT_FAILED
    default_slug = "failed"

    def __init__(self, message: str, *places: str, slug: str | None = None, cure: str | None = None) -> None:
        super().__init__(message)
        self.diagnostic = Diagnostic("error", slug or self.default_slug, message, places, cure)


class InputError(RglinkError):
    """A damaged or unsuitable input file; the message begins with its name."""

    default_slug = "bad-input"


class UsageError(RglinkError):
    """A command line that asks for something that does not exist."""

    exit_code = EXIT_USAGE
    default_slug = "usage"


class ToolError(RglinkError):
    """A tool or library is missing or failed."""

    exit_code = EXIT_TOOL
    default_slug = "tool-failed"


class LinkFailed(Exception):
    """Raised by `checkpoint` when errors were reported; they are in the `Diagnostics`."""


# Levels that a user may change, and what each is unless changed.
CHANGEABLE: dict[str, Level] = {
    "unprotected-crate": "error",
    "recursive-function": "warning",
    "constant-in-constant-section": "warning",
    "renamed-kernel": "warning",
    "divergent-barrier": "warning",
    "duplicate-member": "note",
    "default-target-cpu": "note",
}


class Diagnostics:
    """Collects what was said during one run, in order, each message once."""

    def __init__(self, levels: dict[str, Literal["allow", "warn", "deny"]] | None = None) -> None:
        self._levels = levels or {}
        self.items: list[Diagnostic] = []

    def error(self, slug: str, message: str, *places: str, cure: str | None = None) -> None:
        """Report a mistake and go on."""
        self._add("error", slug, message, places, cure)

    def warn(self, slug: str, message: str, *places: str, cure: str | None = None) -> None:
        """Report something that is likely wrong but has a sound meaning."""
        self._add("warning", slug, message, places, cure)

    def note(self, slug: str, message: str, *places: str, cure: str | None = None) -> None:
        """Report a decision the user should know of."""
        self._add("note", slug, message, places, cure)

    def report(self, slug: str, message: str, *places: str, cure: str | None = None) -> None:
        """Report under a slug of `CHANGEABLE` at the level that holds for it."""
        self._add(CHANGEABLE[slug], slug, message, places, cure)

    def allows(self, slug: str) -> bool:
        """Whether the user asked for silence about `slug` (a note stays where meaning is at stake)."""
        return self._levels.get(slug) == "allow"

    def extend(self, items: Iterable[Diagnostic]) -> None:
        """Take over messages that another process made."""
        for item in items:
            if item not in self.items:
                self.items.append(item)

    def checkpoint(self) -> None:
        """Stop here if any error was reported.

        Raises:
            LinkFailed: at least one item is an error.
        """
        if any(item.level == "error" for item in self.items):
            raise LinkFailed

    def _add(self, level: Level, slug: str, message: str, places: tuple[str, ...], cure: str | None) -> None:
        wanted = self._levels.get(slug) if slug in CHANGEABLE else None
        if wanted == "allow":
            if CHANGEABLE[slug] != "error":
                return
            level = "note"
        elif wanted is not None:
            level = "warning" if wanted == "warn" else "error"
        item = Diagnostic(level, slug, message, places, cure)
        if item not in self.items:
            self.items.append(item)

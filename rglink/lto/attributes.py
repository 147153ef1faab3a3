"""Attribute groups (`#N`) of printed IR: LLVM shares them, so a change makes a new group for one holder."""

from __future__ import annotations

import re
from collections.abc import Collection

from rglink.irtext import ModuleText

# LangRef, "Attribute Groups": words, word(...), word=value, "key", "key"="value".
_WORD = re.compile(r'"[^"]*"(?:="[^"]*")?|[^\s"(]+(?:\((?:[^()"]|"[^"]*"|\([^()]*\))*\))?')
_GROUP = re.compile(r"(?:^|(?<= ))#(\d+)(?=[\s,]|$)")


def attribute_words(group: str) -> list[str]:
    """The attributes between a group's braces, one string each."""
    return _WORD.findall(group)


def group_number(suffix: str) -> int | None:
    """The `#N` in what follows a parameter or argument list (not the one in a metadata node)."""
    match = _GROUP.search(suffix)
    return int(match[1]) if match else None


class AttributeEditor:
    """Moves functions and calls of one module to groups with other words; shared groups stay as they are."""

    def __init__(self, text: ModuleText) -> None:
        self._text = text
        self._groups = text.attribute_groups()
        self._numbers = {content: number for number, content in reversed(self._groups.items())}

    def has(self, suffix: str, word: str) -> bool:
        """Whether the attributes in a function's or call's suffix hold `word`, by group or as they stand."""
        number = group_number(suffix)
        if number is not None and word in attribute_words(self._groups[number]):
            return True
        return word in attribute_words(suffix.split(", !", 1)[0])

    def change(self, suffix: str, add: Collection[str] = (), remove: Collection[str] = ()) -> str:
        """The suffix with the words of `add` in its attributes and those of `remove` out of them."""
        number = group_number(suffix)
        old = attribute_words(self._groups[number]) if number is not None else []
        words = [word for word in old if word not in remove and word not in add]
        keyless = [word for word in words if not word.startswith('"')]
        content = " ".join(sorted([*keyless, *add]) + words[len(keyless) :])
        if number is not None and not content:
            return _GROUP.sub("", suffix, count=1).strip()
        new = f"#{self._number(content)}"
        if number is not None:
            return _GROUP.sub(new, suffix, count=1)
        return f"{new}{suffix}" if suffix.startswith(",") or not suffix else f"{new} {suffix}"

    def _number(self, content: str) -> int:
        if content not in self._numbers:
            number = self._text.add_attribute_group(content)
            self._groups[number] = content
            self._numbers[content] = number
        return self._numbers[content]

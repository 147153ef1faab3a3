"""Block barriers: the unaligned form before any optimization, the aligned one where control is proven uniform.

ptxas trusts the aligned form: under a branch that the threads of a warp take differently it emits code that is
undefined. The unaligned form counts by barrier number wherever it stands, so every barrier takes it first, and gets
the cheaper aligned form back at the end of the link where `uniform` proves that all threads of the block arrive
together (PTX ISA, "bar, barrier" and "barrier.cluster": `bar.X` is `barrier.X.aligned`).
"""

from __future__ import annotations

import re

from rglink.irtext import Item, ModuleText, expect_equal, global_names, rename_globals

# LLVM 22 upgrades all older names (llvm.nvvm.barrier0, barrier.n, bar.sync, ...) to these when it parses.
_ALIGNED = re.compile(
    r"llvm\.nvvm\.barrier\.(?:cta\.(?:sync|arrive|red\.(?:popc|and|or))\.aligned\.(?:all|count)"
    r"|cluster\.(?:arrive|arrive\.relaxed|wait)\.aligned)"
)


def unalign_barriers(text: ModuleText) -> int:
    """Put every block or cluster barrier into its unaligned form; returns how many were changed.

    Raises:
        EditMismatch: an aligned barrier is left, which is a bug.
    """
    seen = changed = 0
    for item in text.of_kind("define"):
        for index, line in enumerate(item.body):
            if ".aligned" not in line or "@llvm.nvvm.barrier." not in line:
                continue
            names = [name for name in global_names(line) if _ALIGNED.fullmatch(name)]
            seen += len(names)
            item.body[index] = rename_globals(line, _unaligned_name)
            changed += len(names) - sum(1 for name in global_names(item.body[index]) if _ALIGNED.fullmatch(name))
    _rename_declarations(text)
    expect_equal("barriers to the unaligned form", seen, changed)
    return changed


def _unaligned_name(name: str) -> str | None:
    return name.replace(".aligned", "") if _ALIGNED.fullmatch(name) else None


def _rename_declarations(text: ModuleText) -> None:
    present = {item.name for item in text.of_kind("declare")}
    kept: list[Item] = []
    for item in text.items:
        new = _unaligned_name(item.name) if item.kind == "declare" else None
        if new is not None:
            if new in present:
                continue
            present.add(new)
            item.head = rename_globals(item.head, _unaligned_name)
            item.name = new
        kept.append(item)
    text.items = kept

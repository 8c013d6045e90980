"""Kinds: every kind of problem, what it means, and what to do."""

from __future__ import annotations

import inspect
import re

from jupyter_mntrain.model.failure.fixes import FIXES, SPECIAL
from jupyter_mntrain.model.failure.kinds import Kind

_MEMBER = re.compile(
    r'^    (?:# (?P<group>[^\n]+)|(?P<name>[A-Z_]+) = "[^"]+"\n    """(?P<meaning>.+?)""")$',
    re.MULTILINE | re.DOTALL,
)
"""A kind with its docstring, or the comment that begins a group of them."""


def page() -> str:
    lines = [
        "# Kinds of problems",
        "",
        (
            "With `--json` a problem has a `kind`, which stays the same from release to release; "
            "sentences may change. A name in braces is filled in. Where no fix stands here, the "
            "problem brings one for its own case. [Doctor](../doctor.md) has what is looked at "
            "before a launch, [Faults](../faults.md) what was reported of faults that were made."
        ),
        "",
        "## In general",
        "",
    ]
    told = set[Kind]()
    for found in _MEMBER.finditer(inspect.getsource(Kind)):
        if found["group"]:
            lines += [f"## {found['group'].rstrip('.')}", ""]
            continue
        kind = Kind[found["name"]]
        told.add(kind)
        lines += [f"### {kind.value}", "", _text(found["meaning"]), ""]
        fixes = [FIXES[kind]] if kind in FIXES else []
        fixes += [fix for (one, _), fix in SPECIAL.items() if one == kind]
        lines += [f"* **Fix:** {_text(fix)}" for fix in fixes] + [""] * bool(fixes)
    if untold := set(Kind) - told:
        raise ValueError(f"without a docstring in model/failure/kinds.py: {sorted(untold)}")
    return "\n".join(lines)


def _text(text: str) -> str:
    """Sentences as Markdown: a $ begins no formula, and a < no tag."""
    joined = " ".join(text.split()).replace("``", "`")
    joined = re.sub(r":\w+:`([^`]+)`", r"`\1`", joined)
    return joined.replace("<", "&lt;").replace("$", "\\$")

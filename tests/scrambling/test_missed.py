"""The scrambler's check of itself: a sentence of ours that stayed readable is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.scrambling.missed import missed
from tests.scrambling.scrambled_words import scrambled

CAUSE = "the disk is full"


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        (f'Problem(kind=Kind.DISK_FULL, cause="{CAUSE}")', False),
        (f'def words():\n    return "{CAUSE}"\nProblem(cause=words())', False),
        (f'told = {{"a": "{CAUSE}"}}\nmake(told)', True),
        (f'def words():\n    """{CAUSE}"""', False),
    ],
    ids=["by its argument", "by its function", "unknown", "a docstring"],
)
def test_what_stayed_readable_is_found(tmp_path: Path, source: str, is_found: bool) -> None:
    package = tmp_path / "jupyter_mntrain"
    package.mkdir()
    (package / "disks.py").write_text(source)
    seen = "\n".join(json.dumps(one) for one in (f"node1: {CAUSE} there", scrambled(CAUSE)))
    expected = {CAUSE: "jupyter_mntrain.disks"} if is_found else {}
    assert missed(package, seen) == expected

"""The scrambler's check of itself: a sentence of ours that stayed readable is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from tests.scrambling.missed import missed
from tests.scrambling.scrambled_words import SEEN, note, scrambled

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


@pytest.mark.wording
def test_what_hypothesis_makes_of_our_literals_is_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    monkeypatch.setenv(SEEN, str(seen))
    problem = Problem(kind=Kind.DISK_FULL, cause="no ECC", fix="made of a literal")
    given(st.just(problem))(note)()
    assert not seen.exists()
    note(problem)
    assert seen.read_text()

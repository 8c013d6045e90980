"""Damaged files: a few of those that ``python -m tests.train.damaged`` tries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.train.damaged import search

CASES = 40


@pytest.mark.slow
@pytest.mark.wording
def test_whatever_file_is_damaged_it_is_named_and_gives_no_other_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    told: list[str] = []
    assert not search(tmp_path, range(CASES), minutes=5, tell=told.append), "\n".join(told)
    assert told[-1].startswith(f"{CASES} cases")

"""Fixtures of the report tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"bubble {n} schedule {n * n} microbatch\n" for n in range(400)))
    return path


@pytest.fixture
def said() -> list[str]:
    return []

"""Fixtures of the checkpoint tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.train.test_command import write_text


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"

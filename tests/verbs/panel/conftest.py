"""Fixtures of the panel tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.verbs.panel.panel import Panel
from tests.standin.cluster import StandInCluster, node
from tests.verbs.panel.opened import RECIPE, SCRIPT, open_panel


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(RECIPE)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'mine'\n")
    (tmp_path / "broken.toml").write_text("[model\n")
    return tmp_path


@pytest.fixture
def two() -> StandInCluster:
    return StandInCluster([node("muthur", 2, gpus=1), node("wopr", 1, gpus=2)])


@pytest.fixture
def panel(two: StandInCluster, here: Path) -> Panel:
    return open_panel(two, here, "small.toml")

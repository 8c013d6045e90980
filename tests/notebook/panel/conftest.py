"""Fixtures of the panel's widget tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.notebook.panel.opened import Open
from tests.standin.cluster import StandInCluster, node
from tests.verbs.panel.opened import RECIPE


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def open_one(directory: Path) -> Iterator[Callable[..., Open]]:
    opened: list[Open] = []

    def make(*nodes: Any) -> Open:
        cluster = StandInCluster(nodes or [node("muthur", 2, gpus=1), node("wopr", 1, gpus=2)])
        opened.append(Open(cluster, directory))
        return opened[-1]

    yield make
    for one in opened:
        one.view.close()

"""Fixtures of the fault tests: the lab, and the page of measured faults."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import lab, mntrain
from tests.faults.bench import Bench
from tests.faults.table import measured, write
from tests.netlab import Lab

__all__ = ["lab", "mntrain"]


@pytest.fixture(scope="module")
def bench(lab: Lab, mntrain: str) -> Iterator[Bench]:
    made = Bench(lab, mntrain)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session", autouse=True)
def written() -> Iterator[None]:
    """After all of them, where that is wished."""
    yield
    if os.environ.get("MNTRAIN_WRITE_FAULTS"):
        write(measured)

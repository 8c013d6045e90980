"""Fixtures of the fault tests: the lab, and the page of measured faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.agent.forking.python import forking_python
from tests.e2e.conftest import joined_lab, mntrain
from tests.faults.bench import Bench
from tests.faults.table import WRITES_PAGE, measured, write
from tests.netlab import missing
from tests.waiting import until

__all__ = ["mntrain"]

MENDED_S = 60.0
"""A lab that needs longer to be whole again, after a test that failed, is made again."""


class Benches:
    """One lab and one bench for all fault tests: each mends what it has broken."""

    def __init__(self, mntrain: str) -> None:
        self._mntrain = mntrain
        self._stack = ExitStack()
        self._bench: Bench | None = None

    def whole(self) -> Bench:
        if (bench := self._bench) is not None:
            try:
                until(lambda: bench.is_whole, "a whole lab", MENDED_S)
            except AssertionError:
                self.close()
            else:
                return bench
        lab = self._stack.enter_context(joined_lab(self._mntrain))
        self._bench = made = Bench(lab, self._mntrain)
        self._stack.callback(made.close)
        until(lambda: made.is_whole, "the nodes to be seen")
        return made

    def close(self) -> None:
        self._stack.close()
        self._bench = None


@pytest.fixture(scope="session")
def benches(mntrain: str) -> Iterator[Benches]:
    if why_not := missing():
        pytest.skip(f"simulated cluster: {why_not}")
    made = Benches(mntrain)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def bench(benches: Benches, request: pytest.FixtureRequest) -> Bench:
    made = benches.whole()
    made.use(getattr(request.module, "PYTHON", None) or forking_python())
    return made


@pytest.fixture(scope="session", autouse=True)
def written() -> Iterator[None]:
    """After all of them, where that is wished."""
    yield
    if WRITES_PAGE:
        write(measured)

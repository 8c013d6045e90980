"""Progress: what a pytest run has done so far, as lines of JSON that ``scripts/test`` reads.

``MNTRAIN_TESTS_PROGRESS`` names the file. ``scripts/test`` runs several pytest processes at once,
and shows a failure when it happens, not when its process ends.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "MNTRAIN_TESTS_PROGRESS"


class Progress:
    """Appends a line per event: total, started, passed, skipped, failed or ended."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _tell(self, **event: object) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(event) + "\n")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._tell(total=len(session.items))

    @pytest.hookimpl(optionalhook=True)  # of pytest-xdist
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        if node.gateway.id == "gw0":
            self._tell(total=len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell(failed=report.nodeid, text=report.longreprtext)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tell(started=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._tell(failed=report.nodeid, text=report.longreprtext)
        elif report.skipped:
            self._tell(skipped=report.nodeid)
        elif report.when == "call":
            self._tell(passed=report.nodeid)
        if report.when == "teardown":
            self._tell(ended=report.nodeid)


def register(config: pytest.Config) -> None:
    """Register it in the process that collects the results of all workers, if it is asked for."""
    # Tests that start a pytest of their own have it write nowhere.
    path = os.environ.pop(VARIABLE, None)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(Path(path)))

"""The GPU acceptance under pytest: it runs only where it is asked for, and reports the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import report
from tests.gpu.acceptance import run_check
from tests.gpu.facts import no_card, read_facts
from tests.gpu.findings import Bench, Check, Finding

REPORT = Path("gpu-check")
_pages: list[str] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the acceptance out, unless ``-m`` names it: it takes a card for itself."""
    if "gpu" in config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker("gpu")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


class Acceptance:
    """The checks of a session, and their findings."""

    def __init__(self, bench: Bench, facts: dict[str, Any]) -> None:
        self.bench = bench
        self.facts = facts
        self.findings: list[Finding] = []

    def run(self, check: Check) -> Finding:
        self.findings.append(run_check(check, self.bench))
        return self.findings[-1]


@pytest.fixture(scope="session")
def acceptance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Acceptance]:
    facts = read_facts()
    if why := facts.get("error") or no_card(facts):
        pytest.skip(why)
    bench = Bench("cuda", len(facts["cards"]), tmp_path_factory.mktemp("gpu-check"))
    session = Acceptance(bench, facts)
    yield session
    title = f"GPU acceptance of jupyter_mntrain\n{report.summary(session.findings)}"
    _pages.append(report.page(facts, session.findings, title=title))
    report.write(REPORT, report.as_data(facts, session.findings, device="cuda"), _pages[0])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for page in _pages:
        terminalreporter.write_line(page)

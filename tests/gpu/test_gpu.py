"""The GPU acceptance, a test for each check: ``pytest -m gpu``, or ``scripts/gpu-check``."""

from __future__ import annotations

import pytest

from tests.gpu.checks import CHECKS
from tests.gpu.conftest import Acceptance
from tests.gpu.findings import Check

pytestmark = [pytest.mark.slow, pytest.mark.gpu]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.number))
def test_it_holds_on_this_card(acceptance: Acceptance, check: Check) -> None:
    finding = acceptance.run(check)
    problems = [f"{one.name}: {one.reason}" for one in finding.items if one.state == "failed"]
    assert problems == []
    if finding.state == "skipped":
        pytest.skip("; ".join(one.reason for one in finding.items))

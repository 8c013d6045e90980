"""The command that compares every family, on one that is described."""

from __future__ import annotations

import pytest

from tests.train.every_family import KINDS, main


@pytest.mark.slow
def test_a_family_is_equal_on_every_number_of_stages_with_and_without_adapters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["--only", "granite", "--steps", "1"])
    said = capsys.readouterr().out
    assert code == 0, said
    rows = [line.split()[:3] for line in said.splitlines() if line.startswith("granite")]
    ways = [["granite", str(stages), kind] for stages in (1, 2, 3) for kind in KINDS]
    assert rows == ways

"""A session to which things happen in random order keeps what it must; the long form is longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.sessions import SHORT, run


@pytest.mark.slow
@pytest.mark.agents
def test_cells_interrupts_a_new_kernel_and_a_kill_leave_nothing_wrong(tmp_path: Path) -> None:
    _, problem = run(55, SHORT, tmp_path)  # an interrupted collective, and a kill between cells
    assert problem is None

"""Membership: what needs one, and what a node without one is told."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.agent.main import run
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem


def test_a_node_that_has_not_joined_has_one_problem_whatever_is_asked_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = []
    for action in ("run", "leave", "install-service"):
        assert run([action, "--json", "--state-dir", str(tmp_path)]) == TrustError.exit_code
        problems.append(msgspec.json.decode(capsys.readouterr().err, type=Problem))
    assert problems == problems[:1] * 3
    assert problems[0].kind is Kind.NOT_TRUSTED
    assert problems[0].fix

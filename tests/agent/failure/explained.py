"""What an agent makes of the files of a failed attempt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jupyter_mntrain.agent.failure.cause import explain, rank_ends
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import RankDown


def explained(
    directory: Path,
    ranks: Sequence[Rank],
    exit_code: int,
    now_s: float,
    *,
    has_run_out: bool | None = None,
) -> tuple[list[RankDown], Problem]:
    """How the ranks ended, and the problem to show."""
    downs = rank_ends(directory, ranks, now_s, has_run_out=has_run_out)
    return downs, explain(directory, downs, exit_code, now_s, has_run_out=has_run_out)

"""Rank processes: detects when they start and end, even if their program reports nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory
from jupyter_mntrain.agent.attempt.processes import metrics_of, start_time, unreaped_exit_code
from jupyter_mntrain.agent.failure.cause import rank_ends
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import RankDown, RankGone, RankUp
from jupyter_mntrain.model.records.job import PartStatus
from jupyter_mntrain.telemetry.startup.exit_record import read_exits

SCAN_INTERVAL_S = 1.0
"""Interval of searching /proc for rank processes, until every rank is found."""


class RankProcesses:
    """Watches the processes of one attempt's ranks on one node."""

    def __init__(self, attempt: AttemptDirectory) -> None:
        self._attempt = attempt
        self._next_scan_s = 0.0

    def look(
        self, part: PartStatus, now_s: float, *, may_begin: bool
    ) -> Iterator[RankUp | RankGone]:
        """Yield what has happened since the last call. Call often.

        Args:
            now_s: monotonic seconds.
            may_begin: whether ranks can still come.
        """
        is_complete = all(rank.pid is not None for rank in part.ranks)
        if (
            may_begin
            and part.state != "stopping"
            and not is_complete
            and now_s >= self._next_scan_s
        ):
            self._next_scan_s = now_s + SCAN_INTERVAL_S
            for number, pid in self._attempt.living_ranks():
                yield RankUp(rank=number, pid=pid)
        for rank in part.ranks:
            if rank.pid and rank.ended_s is None and start_time(rank.pid) is None:
                yield self._gone(rank.rank, rank.pid, [one.rank for one in part.ranks])

    def _gone(self, rank: Rank, pid: int, ranks: Sequence[Rank]) -> RankGone:
        """Return how a rank ended, as known before its torchrun ends, which may never happen."""
        now_s, code = self._attempt.clock(), unreaped_exit_code(pid)
        if code is None and (seen := read_exits(metrics_of(self._attempt.path)).get(pid)):
            code = seen.exit_code
        downs = rank_downs(self._attempt, ranks, now_s, gone={rank: (now_s, code)})
        problem = next((one.problem for one in downs if one.rank == rank), None)
        return RankGone(rank=rank, time_s=now_s, exit_code=code, problem=problem)


def rank_downs(
    attempt: AttemptDirectory,
    ranks: Sequence[Rank],
    now_s: float,
    *,
    gone: Mapping[Rank, tuple[float, int | None]],
    has_run_out: bool | None = None,
) -> list[RankDown]:
    """Return how ranks ended that the agent did not kill. All times are by the attempt's clock.

    Args:
        ranks: this node's, in local-rank order.
        now_s: time of an end that nothing else tells.
        gone: when the agent first missed a rank's process, and the exit code that it saw.
        has_run_out: whether the kernel's OOM killer has been active; ``None`` = unknown.
    """
    ahead_s = attempt.clock() - time.time()  # of this machine's clock, which torch's times use
    downs = rank_ends(
        attempt.path,
        ranks,
        now_s - ahead_s,
        gone={rank: (gone_s - ahead_s, code) for rank, (gone_s, code) in gone.items()},
        has_run_out=has_run_out,
        swept_s=None if attempt.killed_s is None else attempt.killed_s - ahead_s,
    )
    return [_later(down, ahead_s) for down in downs]


def _later(down: RankDown, ahead_s: float) -> RankDown:
    """Convert an end's times to the attempt's clock."""
    time_s = None if down.time_s is None else down.time_s + ahead_s
    problem = down.problem
    if problem is not None and problem.time_s is not None:
        problem = msgspec.structs.replace(problem, time_s=problem.time_s + ahead_s)
    return msgspec.structs.replace(down, time_s=time_s, problem=problem)

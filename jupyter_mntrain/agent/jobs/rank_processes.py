"""Rank processes: sees when they come and go, also those of programs that report nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory
from jupyter_mntrain.agent.attempt.processes import metrics_of, start_time, unreaped_exit_code
from jupyter_mntrain.agent.failure.cause import rank_ends
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import RankGone, RankUp
from jupyter_mntrain.model.records.job import PartStatus
from jupyter_mntrain.telemetry.startup.exit_record import read_exits

SCAN_INTERVAL_S = tunables.seconds("agent.processes_interval_s")


class RankProcesses:
    """Of one attempt on one node."""

    def __init__(self, attempt: AttemptDirectory) -> None:
        self._attempt = attempt
        self._next_scan_s = 0.0

    def look(
        self, part: PartStatus, now_s: float, *, may_begin: bool
    ) -> Iterator[RankUp | RankGone]:
        """What has happened since the last look; call often.

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
        """How a rank ended, as far as that is known before its torchrun ends: it may never."""
        now_s, code = self._attempt.clock(), unreaped_exit_code(pid)
        if code is None and (seen := read_exits(metrics_of(self._attempt.path)).get(pid)):
            code = seen.exit_code
        downs = rank_ends(self._attempt.path, ranks, now_s, gone={rank: (now_s, code)})
        problem = next((one.problem for one in downs if one.rank == rank), None)
        return RankGone(rank=rank, time_s=now_s, exit_code=code, problem=problem)

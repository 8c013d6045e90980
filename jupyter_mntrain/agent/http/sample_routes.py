"""Sample routes: a job's samples downsampled, whole or a range of them."""

from __future__ import annotations

import asyncio

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.jobs.samples.archive import Range, SamplesAnswer
from jupyter_mntrain.http.json_handler import LARGEST, refusal
from jupyter_mntrain.metrics.downsampled.samples import NodeSamples
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import Rank

MOST_POINTS = 16384
"""Largest number of blocks, or of steps one by one, that one answer has of a rank."""
POINTS = 2400
"""Blocks of a rank in an answer that does not say how many."""
MOST_RANK = 999_999


class JobSamplesHandler(AgentHandler):
    """``NodeSamples``. A job that is short enough to be read line by line is not answered whole."""

    async def get(self, job_id: str) -> None:
        points = self.number("points", POINTS, 1, MOST_POINTS)
        rank = self.number("rank", -1, 0, MOST_RANK)
        range_ = self._range()
        with self.streaming():
            job = self.node.jobs.get(self.job_id(job_id))
            samples = job.samples
            archive = samples.archive
            if archive is None or (range_ is None and archive.longest <= points):
                self.answer(NodeSamples(attempt=0, seq=0, is_whole=False))
                return
            answer = SamplesAnswer(
                archive,
                samples.journal,
                ranks=archive.ranks if rank < 0 else [Rank(rank)],
                points=points,
                range_=range_,
            )
            self.answer(await asyncio.to_thread(answer.read))

    def _range(self) -> Range | None:
        """The range, if one is named.

        Raises:
            RequestRefusedError: 400, it is none.
        """
        names = self.request.query_arguments
        if "begin" not in names and "end" not in names:
            return None
        by = self.get_query_argument("by", "step")
        if by not in ("step", "time"):
            raise refusal(400, Kind.BAD_REQUEST, f"by={by!r} is unknown", "use step or time")
        begin = self.number("begin", 0)
        end = self.number("end", LARGEST, begin)
        return Range(begin, end, "step" if by == "step" else "time_s")

"""Check of the smoke step: what a job's ranks did when they were started as a test."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jupyter_mntrain.doctor.check import Case, Check, CheckedNode, Finding
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import agreeing
from jupyter_mntrain.model.records.doctor.trial import JobTrial, TriedNode, TriedRank

OUT_OF_MEMORY = frozenset({Kind.OUT_OF_MEMORY, Kind.GPU_OUT_OF_MEMORY})


class SmokeStep(Check):
    id = "deep-step"
    title = "First step"
    looks_at = (
        "with --for and --deep: what happens when the job is started: a recipe makes one step with "
        "random tokens, the ranks of a script import its modules and meet"
    )
    is_for_launch = False

    def findings(self, case: Case) -> Iterable[Finding]:
        trial = case.trial
        for place in trial.nodes if trial else ():
            node = case.named(place.node)
            if trial is None or node is None:
                continue
            if (found := self._judged(node, place, trial)) is not None:
                yield found

    def _judged(self, node: CheckedNode, place: TriedNode, trial: JobTrial) -> Finding | None:
        """Return the finding of a node; ``None`` if its ranks ended because others had failed."""
        if place.problem is not None:
            return self.found("stops", node, "failed", _with_plan(place, place.problem))
        reached = [one for one in trial.ranks if one.rank in place.ranks]
        if len(reached) == len(place.ranks):
            return self.passed(node, _said(place, reached, trial))
        if trial.untold is not None:
            return Finding(self.id, node.name, "unknown", "unknown", "", trial.untold)
        return None


def _said(place: TriedNode, ranks: list[TriedRank], trial: JobTrial) -> str:
    """Summarize a node's ranks, like ``2 ranks, 0.81 s, 1.2 GB each, 1.1 planned``."""
    longest_s = max(one.seconds for one in ranks)
    count = f"{len(ranks)} rank{agreeing(ranks, '', 's')}"
    if not trial.is_recipe:
        return f"{count} met in {longest_s * 1e3:.0f} ms; no step"
    most = max(ranks, key=lambda one: one.peak_bytes or 0)
    peak = f"{(most.peak_bytes or 0) / 1e9:.1f} GB"
    many = f"{count}, " if len(ranks) > 1 else ""
    planned = dict(zip(place.ranks, place.planned_bytes, strict=False)).get(most.rank)
    beside = "" if planned is None else f", {planned / 1e9:.1f} planned"
    return f"{many}{longest_s:.1f} s, {peak}{beside}"


def _with_plan(place: TriedNode, problem: Problem) -> Problem:
    """Add what the plan said to an out-of-memory problem."""
    if problem.kind not in OUT_OF_MEMORY or not place.planned_bytes:
        return problem
    needed = sum(place.planned_bytes) / 1e9
    cause = f"{problem.cause}; by the plan it needs {needed:.1f} GB for its ranks"
    return msgspec.structs.replace(problem, cause=cause)

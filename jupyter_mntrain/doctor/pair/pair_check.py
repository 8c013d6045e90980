"""Pair checks: the base class of those that judge what nodes found of the ways to each other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

import msgspec

from jupyter_mntrain.doctor.check import Case, Check, Examined
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.doctor.pair.dialing import is_dialed
from jupyter_mntrain.doctor.pair.owners import is_somebody_elses
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.paths import PathTrial


class PairCheck(Check):
    """A check of each way from a node, with one finding per node for all those that are well."""

    is_of_ways = True

    def findings(self, case: Case) -> Iterable[Finding]:
        for node in case.nodes:
            trials = [
                one
                for one in case.paths.trials
                if one.node == node.name
                and node.facts is not None
                and not is_somebody_elses(case, one)
                and self.concerns(case, one)
            ]
            found = [bad for one in trials if (bad := self.look(case, node, one)) is not None]
            yield from found
            if trials and not found:
                yield self.passed(node, self.well(trials))

    def concerns(self, case: Case, trial: PathTrial) -> bool:  # noqa: ARG002 - some look at it
        """Whether it can be judged."""
        return True

    def closed(
        self, case: Case, node: Examined, trial: PathTrial, said: str, problem: Problem
    ) -> Finding:
        """Connections fail: that stops a launch whose ranks connect this way."""
        if is_dialed(case, trial):
            return self.found("stops", node, said, problem, peer=trial.peer)
        cause = f"{problem.cause}; the ranks of this job connect the other way, so it runs"
        problem = msgspec.structs.replace(problem, cause=cause)
        return self.found("slows", node, said, problem, peer=trial.peer)

    @abstractmethod
    def look(self, case: Case, node: Examined, trial: PathTrial) -> Finding | None:
        """What is wrong with a way; ``None`` if nothing."""

    @abstractmethod
    def well(self, trials: Sequence[PathTrial]) -> str:
        """What is said if nothing is wrong."""

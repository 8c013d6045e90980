"""Built job: a checked spec, its workload and the cluster to start it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.workload.memory_fit import RankMemory, memory_of_ranks
from jupyter_mntrain.workload.workload import Workload

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster


class Built(NamedTuple):
    """A checked job that is ready to launch.

    Args:
        left_out: a problem for every node that would take part but does not answer, if the nodes
            were not named.
        is_mixed_before: whether differing versions were acknowledged for the job that it repeats,
            and not for this one.
        starts_over: what to say of a job that could be resumed instead.
    """

    cluster: Cluster
    spec: JobSpec
    workload: Workload
    left_out: tuple[Problem, ...] = ()
    starts_over: Problem | None = None
    is_mixed_before: bool = False

    def memory(self) -> list[RankMemory] | None:
        """Estimate memory by rank; ``None`` for a script, or if the model is not on this machine.

        Raises:
            RecipeError: the recipe cannot run on this number of ranks.
        """
        recipe = self.workload.recipe
        if recipe is None:
            return None
        return memory_of_ranks(recipe, self.spec, self.cluster.nodes())

"""A checked job: its spec, its workload and the cluster it can be started on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.workload.memory_fit import RankMemory, memory_of_ranks
from jupyter_mntrain.workload.workload import Workload

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster


class Built(NamedTuple):
    """A job that can be started, and where."""

    cluster: Cluster
    spec: JobSpec
    workload: Workload

    def memory(self) -> list[RankMemory] | None:
        """By rank; ``None`` for a script, and where the model is not on this machine.

        Raises:
            RecipeError: the recipe does not fit the model on so many ranks.
        """
        recipe = self.workload.recipe
        if recipe is None:
            return None
        return memory_of_ranks(recipe, self.spec, self.cluster.nodes())

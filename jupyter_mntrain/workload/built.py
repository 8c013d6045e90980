"""Built job: a checked spec, its workload and the cluster to start it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jupyter_mntrain.launch.project.stage import StagedProject
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
        project: files that are sent, if they are on this machine.
        project_because: why these, if nobody named them.
        begin: the checkpoint directory that the job which it repeats began with, if it was named.
        starts_over: what to say of a job that could be resumed instead.
    """

    cluster: Cluster
    spec: JobSpec
    workload: Workload
    left_out: tuple[Problem, ...] = ()
    starts_over: Problem | None = None
    is_mixed_before: bool = False
    project: StagedProject | None = None
    project_because: str = ""
    begin: str | None = None

    @property
    def project_data(self) -> dict[str, object]:
        """The project for programs."""
        project = self.project
        if project is None:
            return {}
        tree = project.tree
        told = {"root": str(project.root), "files": len(tree.files), "size_bytes": tree.size_bytes}
        return {"project": {**told, "sha256": project.sha256}}

    @property
    def project_line(self) -> str:
        """The project for people; empty if there is none."""
        if self.project is None:
            return ""
        why = f" ({self.project_because})" if self.project_because else ""
        return f"project {self.project.root}{why}: {self.project.shown_size}"

    def memory(self) -> list[RankMemory] | None:
        """Estimate memory by rank; ``None`` for a script, or if the model is not on this machine.

        Raises:
            RecipeError: the recipe cannot run on this number of ranks.
        """
        recipe = self.workload.recipe
        if recipe is None:
            return None
        return memory_of_ranks(recipe, self.spec, self.cluster.nodes())

"""Built job: a checked spec, its workload, and the cluster that it starts on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from rich.text import Text

from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.plan.choosing.job_plan import JobPlan, given_capacity, plan_job
from jupyter_mntrain.plan.measured_speeds import NOTHING, KnownSpeeds
from jupyter_mntrain.plan.resolved import ResolvedJob, resolve
from jupyter_mntrain.recipe.devices import seats_of
from jupyter_mntrain.recipe.fitting import Fit, fit
from jupyter_mntrain.workload.memory_fit import RankMemory, memory_of_ranks
from jupyter_mntrain.workload.workload import Workload

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

MOST_NAMED: Final = 4
"""Up to this many sent files, each is named."""

MOST_ORDERED: Final = 32
"""Up to this many ranks, other orders of the nodes are planned, too."""


class Built(NamedTuple):
    """A checked job that is ready to launch.

    Args:
        left_out: a problem for every node that would take part but does not answer, if the nodes
            were not named.
        is_mixed_before: whether differing versions were acknowledged in the job file, and not for
            this launch.
        project: files that are sent, if they are on this machine.
        project_because: why these, if nobody named them.
        begin: the checkpoint directory that the job which it repeats began with, if it was named.
        starts_over: what to say of a job that could be resumed instead.
        said: what else is to be said of it before it starts.
        planned: the plan by which the nodes are ordered; of this very spec.
        job: it and its nodes as they were once, for all questions of one launch.
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
    said: tuple[Problem, ...] = ()
    planned: JobPlan | None = None
    job: ResolvedJob | None = None

    def with_spec(self, spec: JobSpec) -> Built:
        """The same with another spec, which is not planned yet."""
        return self._replace(spec=spec, planned=None, job=None)

    def on_its_nodes(self) -> Built:
        """The same, with the nodes as they are now for all that is asked of it, unless they were
        found before; itself if they cannot be found: the launch says so.
        """
        try:
            return self._replace(job=self.resolved())
        except SpecError:
            return self

    @property
    def project_data(self) -> dict[str, object]:
        """The project, as data for programs."""
        project = self.project
        if project is None:
            return {}
        tree = project.tree
        told = {"root": str(project.root), "count": len(tree.files), "size_bytes": tree.size_bytes}
        return {"project": {**told, "sha256": project.sha256}}

    @property
    def project_line(self) -> str:
        """The project in words; empty if there is none."""
        if self.project is None:
            return ""
        why = f" ({self.project_because})" if self.project_because else ""
        return f"project {self.project.root}{why}: {self.project.shown_size}"

    @property
    def sent_line(self) -> str:
        """Everything that is sent, in words; empty if it is a single file that the user named."""
        names = sorted({*self.spec.files, *(self.project.names if self.project else ())})
        if not self.project_because and len(names) <= MOST_NAMED:
            return f"{len(names)} files: {', '.join(names)}" if len(names) > 1 else ""
        return " and ".join([*self.spec.files, *filter(None, [self.project_line])])

    def resolved(self) -> ResolvedJob:
        """The job with its nodes, as they are now unless they were found before.

        Raises:
            SpecError: one is unknown or takes part twice.
        """
        if self.job is not None:
            return self.job
        return resolve(self.spec, [view.newest for view in self.cluster.nodes()])

    def fit(self, kept: Mapping[str, str] | None = None) -> Fit | None:
        """Resolve the recipe for its nodes' GPUs; ``None`` for a script.

        Args:
            kept: what was chosen for the job; by default what a resumed run keeps.
        """
        recipe, spec = self.workload.recipe, self.spec
        if recipe is None:
            return None
        if kept is None:
            kept = {} if spec.origin is None else spec.chosen
        try:
            nodes = self.resolved().nodes
        except SpecError:
            return Fit(recipe, (), {}, "")  # the launch says so itself
        return fit(recipe, seats_of(recipe, spec.participants, nodes), kept)

    def memory(self, expected: JobPlan | None) -> list[RankMemory] | None:
        """Estimate the memory of each rank; ``None`` for a script, or if the model is not here.

        Args:
            expected: as :meth:`expected` returns it.

        Raises:
            RecipeError: the recipe cannot run on this number of ranks.
        """
        fit = self.fit()
        if fit is None:
            return None
        recipe = fit.recipe if expected is None else expected.recipe
        return memory_of_ranks(recipe, self.spec, self.cluster.nodes())

    def expected(self) -> JobPlan | None:
        """Return the plan, as :meth:`plan` makes it; ``None`` if that fails."""
        try:
            return self.plan()
        except MntrainError:
            return None  # a launch says itself what keeps it from starting

    def in_best_order(self) -> Built:
        """Return the job with its participants in the order that is predicted to be fastest."""
        if len(self.spec.participants) < 2 or self.spec.world_size > MOST_ORDERED:
            return self
        try:
            job = self.resolved()
            found = self._replace(job=job).plan(order_is_free=True)
        except MntrainError:
            return self
        given, order = self.spec.participants, found.plan.order
        spec = msgspec.structs.replace(
            self.spec, participants=tuple(given[index] for index in order)
        )
        plan = msgspec.structs.replace(found.plan, order=tuple(range(len(order))))
        return self._replace(
            spec=spec, planned=found._replace(plan=plan), job=job.in_order(spec, order)
        )

    def plan(
        self,
        kept: Mapping[str, str] | None = None,
        known: KnownSpeeds = NOTHING,
        *,
        order_is_free: bool = False,
        advises: bool = False,
    ) -> JobPlan:
        """Plan a step of the recipe on its nodes.

        Args:
            kept: what was chosen for the job, as for :meth:`fit`.
            known: speeds that a job had.
            order_is_free: whether participants may run in another order, which the plan names.
            advises: whether to find out what would help, which takes several times as long.

        Raises:
            SpecError: it is a script, its model is not on this machine, or the nodes are unknown or
                share no network.
            RecipeError: the recipe cannot run on this number of ranks.
        """
        if self.planned and kept is None and known is NOTHING and not advises:
            return self.planned
        fit = self.fit(kept)
        if fit is None:
            raise SpecError(
                f"{self.workload.took}: only recipes can be planned", fix="name a recipe (.toml)"
            )
        spec, nodes = self.spec, self.resolved().nodes
        return plan_job(
            fit.recipe,
            spec.participants,
            nodes,
            given=given_capacity(spec),
            known=known,
            order_is_free=order_is_free,
            advises=advises,
        )


def choice_text(found: Fit | None) -> Text | None:
    """Return the line that says what was chosen for the nodes' GPUs, if anything was."""
    return Text(found.said, style="dim") if found is not None and found.said else None

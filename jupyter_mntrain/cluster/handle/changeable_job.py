"""Changeable job: reads the settings of a job, and changes them while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jupyter_mntrain.cluster.handle.answering_job import AnsweringJob
from jupyter_mntrain.cluster.view.ended_jobs import whole_spec
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.launch.project.tree import PART_BYTES, Tree, read_tree
from jupyter_mntrain.model.errors import SpecError, bad_argument, error_of
from jupyter_mntrain.model.lifecycle.running_changes import MOST_SETTINGS, changes_of
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec
from jupyter_mntrain.model.records.origin import RunningChange

if TYPE_CHECKING:
    from jupyter_mntrain.cluster.agents.client import AgentClient
    from jupyter_mntrain.cluster.launch.running_settings import SettingsChanged
    from jupyter_mntrain.recipe.changes.settings import Setting

WAITING = "waiting for the ranks to take it"


class ChangeableJob(AnsweringJob):
    """The part of a job's handle that is about its settings."""

    def settings(self) -> tuple[Setting, ...]:
        """Every setting of the job, with where it came from: default, recipe, panel, ``--set``, an
        option of the launch, or chosen by mntrain (``auto``). What was changed while the job ran is
        in effect. Asks its nodes.

        Raises:
            NodeError: none of them answers.
        """
        from jupyter_mntrain.recipe.changes.settings import settings_of_job

        return settings_of_job(self.spec(), self.view().run)

    def spec(self) -> JobSpec:
        """What it runs, with all files: :meth:`view` has it without. Asks its nodes.

        Raises:
            NodeError: none of them answers.
        """
        return self._driver.loop.run(whole_spec(self._driver.live, self.view()))

    def project(self) -> Tree | None:
        """The files of its project, by their hashes; ``None`` without one. Asks its head.

        Raises:
            NodeError: it does not answer.
            RefusedError: it has deleted them.
        """
        sha256, client = self.view().spec.project, self._driver.live.client_of
        if sha256 is None:
            return None
        head = client(self.view().attempt.head)
        return self._driver.loop.run(_whole_tree(head, sha256))

    def set(
        self,
        settings: Sequence[str],
        *,
        timeout_s: float | None = None,
        progress: Progress = SILENT,
    ) -> SettingsChanged:
        """Change settings of the running job: all ranks take them after the same step, and restarts
        and resumed jobs go on with them. Returns once they have, or after ``timeout_s`` seconds.

        Args:
            settings: like ``["train.steps=5000", "optimizer.learning_rate=1e-4"]``; what may be
                changed is in docs/recipe.md.

        Raises:
            SpecError: the job runs a script, or a setting does not change while it runs.
            RecipeError: a field or value is wrong, or does not go with the others.
            RefusedError: the job has ended, does not run yet, or has gone on too far meanwhile; or
                this driver is read-only.
            NodeError: the head does not answer.
        """
        from jupyter_mntrain.cluster.launch.running_settings import ask_to_change, outcome_of

        given = _checked(settings)
        launcher, live, view = self._driver.launcher(), self._driver.live, self.view()
        asking = ask_to_change(live, view, given, launcher.submitted_by)
        plan = self._driver.loop.run(asking)
        progress.report(WAITING, 0, 1)

        def taken() -> RunningChange | None:
            changes = changes_of(self.view())
            return next((one for one in changes if one.key == plan.request.key), None)

        def is_over() -> bool:
            now = self.view()
            return now.state in TERMINAL or now.attempt.number != plan.request.attempt

        live.changes.wait_until(lambda: taken() is not None or is_over(), timeout_s)
        progress.report(WAITING, 1, 1)
        change = taken()
        if change is not None and change.refused is not None:
            raise error_of(change.refused)
        return outcome_of(plan, change)


def _checked(settings: Sequence[str]) -> tuple[str, ...]:
    """Raises SpecError: it is no list of settings, or has none."""
    is_list = not isinstance(settings, str) and all(isinstance(one, str) for one in settings)
    if not is_list or len(settings) > MOST_SETTINGS:
        raise bad_argument("settings", settings, 'a list like ["train.steps=5000"]')
    if not settings:
        raise SpecError("no setting was given", fix="give one, like train.steps=5000")
    return tuple(settings)


async def _whole_tree(client: AgentClient, sha256: str) -> Tree:
    content = b""
    while part := await client.blob(sha256, offset=len(content), limit=PART_BYTES):
        content += part
    return read_tree(content)

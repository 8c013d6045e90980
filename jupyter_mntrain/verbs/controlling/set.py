"""``set``: changes settings of a running job."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.recipe.sections import CHANGEABLE
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.controlling.ending import SAVED_WITHIN_S, running_job
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job
    from jupyter_mntrain.cluster.launch.record_changes import SettingsChanged


class SetVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "job", metavar="JOB", completes="running-job", help="its id, or how it begins"
        )
        parser.argument(
            "settings",
            nargs="*",
            metavar="SECTION.FIELD=VALUE",
            completes="field",
            help="as in its recipe: train.steps=5000 optimizer.learning_rate=1e-4; all ranks "
            "apply them after the same step, and restarts and resume keep them",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        if "=" in args.job:
            args.job = None  # a setting: the job was forgotten
        job = running_job(context, args, self.name)
        if not args.settings:
            raise SpecError(
                f"{self.name}: no setting given", fix=f"give one of {', '.join(sorted(CHANGEABLE))}"
            )
        with context.screen.progress() as progress:
            changed = job.set(args.settings, timeout_s=SAVED_WITHIN_S, progress=progress)
        text = changed_text(job, changed)
        for note in changed.notes:
            text.append(f"\n  {note}", "dim")
        data = {"job_id": job.id, **msgspec.to_builtins(changed)}
        return Outcome(text, data, exit_code=0 if changed.change else 1, job=job)


def changed_text(job: Job, changed: SettingsChanged) -> Text:
    """Say what was changed after which step, or why that is not known yet."""
    text = Text.assemble((f"{job.id} ", "bold"))
    if changed.change is not None:
        return text.append(f"after step {formats.count(changed.change.step)}: {changed.change}")
    if job.state in TERMINAL:
        return text.append(f"{job.state} before its ranks applied the change")
    return text.append(
        "was asked for it; its ranks have not applied it after "
        f"{formats.duration(SAVED_WITHIN_S)}, or have restarted: see status"
    )

"""Submit panel without widgets: holds the choices, checks them, and launches.

It starts no thread. The widgets call it, from one thread at a time.
"""

from __future__ import annotations

import dataclasses
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.launch.settings import set_in_panel
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobSpec, JobView, Participant
from jupyter_mntrain.verbs.launching.allocations.launch_on import rendered
from jupyter_mntrain.verbs.launching.dry_run import dry_run_outcome
from jupyter_mntrain.verbs.launching.job_options import job_options
from jupyter_mntrain.verbs.launching.launch import start
from jupyter_mntrain.verbs.launching.spec_builder import build_spec
from jupyter_mntrain.verbs.panel.choices import (
    OF_PLACE,
    Choices,
    launch_words,
    overrides,
    start_words,
    without_secrets,
)
from jupyter_mntrain.verbs.panel.form import Form, make_form, resolved
from jupyter_mntrain.verbs.panel.last_choices import Memory
from jupyter_mntrain.verbs.panel.looks.doctor_look import DoctorLook
from jupyter_mntrain.verbs.panel.looks.place import PlaceLook
from jupyter_mntrain.verbs.panel.looks.plan_look import PlanLook
from jupyter_mntrain.verbs.panel.looks.port_look import PortLook
from jupyter_mntrain.verbs.panel.resumption import Resumption, choices_of, resumption
from jupyter_mntrain.verbs.panel.source.on_source import launch_args, launched_on, source_form
from jupyter_mntrain.verbs.panel.targets import (
    Target,
    all_targets,
    command_text,
    find_target,
    launched_last,
)
from jupyter_mntrain.verbs.verb import Context, named_job
from jupyter_mntrain.workload.built import Built
from jupyter_mntrain.workload.workload import Workload

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster, Job, Progress


Starting = Callable[[], AbstractContextManager[Callable[[JobView], object]]]


class Panel:
    """Choices for one recipe at a time.

    Args:
        context: of the command that opened the panel.
        args: its options: cluster, agents.
        target: the first one shown; ``None`` = the one launched last, or the first.
        resumes: the id of an ended job to go on with, or its start.
        memory: last choices.
    """

    def __init__(
        self,
        context: Context,
        args: Namespace,
        *,
        target: str | None = None,
        resumes: str | None = None,
        memory: Memory | None = None,
    ) -> None:
        self._context = context
        self._args = args
        self._memory = memory or Memory()
        self.cluster: Cluster = context.cluster(args)
        self._place = PlaceLook(self.cluster)
        self._port = PortLook(self.cluster)
        self._plan = PlanLook()
        self.doctor = DoctorLook(self.cluster)
        self.choices = Choices()
        self.note = ""
        """Where the choices come from."""
        self.started: tuple[JobId, str] | None = None
        """The job started last, and the equivalent command."""
        self.said: tuple[Problem, ...] = ()
        """Notes on the nodes from the launch of that job."""
        self.resume: Resumption | None = None
        """What the ended job of this recipe goes on from; :meth:`look` asks for it."""
        self.starting: Starting = lambda: nullcontext(bool)
        """As :meth:`Screen.starting`, where the job will be shown."""
        self._ended: Job | JobId | None = None
        self._resume_for: object = None
        self.targets = all_targets(context.directory)
        if resumes is not None:
            job = named_job(context, args, resumes)
            again = Target(directory=context.directory, job=job.id, spec=job.spec())
            self.targets = [again, *self.targets]
            self.choose(again)
        elif target is None:
            self.choose(launched_last(self.targets, self._memory))
        else:
            named = find_target(context.directory, target)
            self.targets = [named, *(one for one in self.targets if one.key != named.key)]
            self.choose(named)

    def choose(self, target: Target) -> None:
        """Switch to another recipe, with its last choices."""
        self.target = target
        self.choices, self.note = Choices(), ""
        self._ended, self.resume, self._resume_for = target.job, None, None
        if target.spec is not None:
            self.choices = self._of_job(target.spec)
            return
        try:
            known = self._memory.all().get(target.key)
        except MntrainError as error:
            self.note = str(error)
            return
        if known is not None:
            self.choices, self._ended = known.choices, known.job
            self.note = f"as launched {self._day(known.launched_s)}"

    def reset(self) -> None:
        """Return to the defaults, and delete the last choices for this recipe."""
        self.choices, self.note = Choices(), ""
        if self.target.spec is not None:
            self.choices = self._of_job(self.target.spec)
        try:
            self._memory.forget(self.target.key)
        except MntrainError as error:
            self.note = str(error)

    def form(self) -> Form:
        """Return the form for the current choices. Contacts no node: that is for :meth:`look`."""
        if self.choices.on:
            return source_form(self.choices, self._read, is_script=self.target.is_script)
        return make_form(
            self.cluster.nodes(),
            self.choices,
            self._read,
            now_s=self._context.clock(),
            is_script=self.target.is_script,
            port=self._port.answer,
            place=self._place.place,
            planned=self._plan.of,
            examined=self.doctor.about(self.target.key, self.changed_s(), self.choices),
        )

    def _read(self, choices: Choices) -> Workload | MntrainError:
        try:
            return self.target.workload(overrides(choices), self._context.arguments)
        except MntrainError as error:
            return error

    def look(self, form: Form) -> bool:
        """Ask about the port, the nodes' folders and what can be resumed, and plan the job.

        ``True`` if the answers change what is shown.
        """
        asked = self._port.look(form, self.choices, self._context.clock())
        asked |= self._look_at_place(form) | self._look_at_run(form)
        question = form.prediction.question if form.prediction else None
        return self._plan.look(question) | asked

    def examination(self, form: Form, *, anew: bool = False) -> Callable[[], None] | None:
        """Return a function that asks the doctor about the chosen launch, in any thread.

        ``None`` if the answer is known and not old.
        """
        if anew:
            self.doctor.forget()
        now_s = self._context.clock()
        if not self.doctor.is_due(form.participants, now_s):
            return None
        try:
            built = self._built(form)
        except MntrainError:  # the form says what is wrong
            built = None
        return self.doctor.asking(form.participants, built, now_s)

    def _look_at_place(self, form: Form) -> bool:
        """Read what is sent, and ask the nodes for the job's folder and interpreter, if any."""
        is_given = self.target.brings_files or any(getattr(self.choices, name) for name in OF_PLACE)
        about = (self.target.key, form.members, self.changed_s()) if is_given else ()
        build, now_s = partial(self._built, form), self._context.clock()
        return self._place.look(self.choices, build, about if form.members else (), now_s)

    def _look_at_run(self, form: Form) -> bool:
        job = self._job()
        if self.choices.on:  # new nodes are for a new job
            self.resume = self._resume_for = None
        if job is None or form.blocked or self.choices.on:
            return False
        about = (job.id, job.state, self.choices, form.members, form.head, self.changed_s())
        if about == self._resume_for:
            return False
        before = self.resume
        is_asked = self.target.job is not None
        try:
            spec = self._built(form).spec
            self.resume = resumption(job, spec, self.choices, is_asked=is_asked)
        except MntrainError as error:
            text = str(error)
            self.resume = Resumption(job.id, text, can_start=False) if is_asked else None
        self._resume_for = about
        return before != self.resume

    def _job(self) -> Job | None:
        """Return the job to resume, of this recipe or named by the user; ``None`` if unknown."""
        if isinstance(self._ended, str):
            try:
                self._ended = named_job(self._context, self._args, self._ended)
            except MntrainError:
                self._ended = None
        return self._ended

    def command(self, form: Form) -> str:
        """Return the equivalent command as a notebook cell: a launch or a resume."""
        goes_on = self.resume is not None and self.resume.can_start and not self.choices.on
        return self._command(form, resumes=self.target.job if goes_on else None)

    def _command(self, form: Form, *, resumes: JobId | None) -> str:
        shown = self._words(form, without_secrets(self.choices), resumes)
        words = [*shown, *start_words(self.choices)]
        return command_text(self._context, self._args, self.target, words, resumes)

    def commands(self, form: Form) -> RenderableType:
        """Return the commands of every node, and the memory of every rank.

        Raises:
            MntrainError: as for ``launch``.
        """
        if self.choices.on:
            return Text(rendered(launch_args(self._context, self._launch_words(form))))
        return dry_run_outcome(self._built(form), self._context.clock()).renderable

    def launch(
        self, form: Form, progress: Progress, sleep: Callable[[float], None] = time.sleep
    ) -> Job:
        """Launch on all chosen nodes or on none, and store the choices.

        Args:
            sleep: waits while a source has no nodes yet; what it raises gives back what was asked
                for.

        Raises:
            MntrainError: as for ``launch``; nothing was started then.
        """
        if self.choices.on:
            context = dataclasses.replace(self._context, cell=self.target.cell)
            job, self.said = launched_on(context, self._launch_words(form), progress, sleep)
            return self._started(form, job, resumes=None)
        return self._start(form, self._built(form), progress, resumes=None)

    def go_on(self, form: Form, progress: Progress) -> Job:
        """Resume the ended job on all chosen nodes or on none, and store the choices.

        Raises:
            MntrainError: as for ``resume``; nothing was started then.
        """
        job, shown = self._job(), self.resume
        if job is None or shown is None:
            raise SpecError("there is nothing to resume", fix="launch it")
        built = self._built(form)
        plan = job.plan_resume(built.spec)
        if plan.step != shown.step:
            self._resume_for = None
            raise SpecError(
                f"run {plan.run} now resumes from step {plan.step}, not from {shown.step}",
                fix="resume again if that is what you want",
            )
        return self._start(form, built.with_spec(plan.spec), progress, resumes=job.id)

    def _start(self, form: Form, built: Built, progress: Progress, *, resumes: JobId | None) -> Job:
        said: list[Problem] = []
        waits, is_checked = self.choices.waits, not self.choices.skips_doctor
        begin = partial(start, self._context, built, progress, waits=waits, on_note=said.append)
        with self.doctor.refusing(), self.starting() as on_begin:
            job = begin(is_checked=is_checked, on_begin=on_begin)
        self.said = tuple(said)
        return self._started(form, job, resumes=resumes)

    def _started(self, form: Form, job: Job, *, resumes: JobId | None) -> Job:
        """Store the choices of a job that was started."""
        self.started = (job.id, self._command(form, resumes=resumes))
        now_s = self._context.clock()
        self._ended = job
        try:
            if self.target.job is None:
                chosen = without_secrets(resolved(self.choices, form))
                self._memory.remember(self.target.key, chosen, job=job.id, now_s=now_s)
            self.note = f"as launched {self._day(now_s)}"
        except (MntrainError, OSError) as error:
            self.note = f"the choices could not be stored: {error}"
        return job

    def measure(self, form: Form, progress: Progress) -> None:
        """Measure the chosen links, about a second each. Rows show the results.

        Raises:
            MntrainError: as for :meth:`Cluster.measure`.
        """
        chosen = [
            Participant(node=place.node_id, interface=place.interface) for place in form.placements
        ]
        self.cluster.measure(chosen, progress=progress)

    def changed_s(self) -> float:
        """Return when the recipe's file was last changed; 0.0 if there is no file."""
        try:
            return Path(self.target.key).stat().st_mtime if self.target.path else 0.0
        except OSError:
            return 0.0

    def _of_job(self, spec: JobSpec) -> Choices:
        infos = [view.info for view in self.cluster.nodes() if view.info]
        return choices_of(spec, {info.node_id: info.name for info in infos})

    def _words(self, form: Form, choices: Choices, resumes: JobId | None = None) -> list[str]:
        target = resumes or self.target.path or self.target.job
        return launch_words(choices, form.members, head=form.head, target=target)

    def _launch_words(self, form: Form) -> list[str]:
        """Return the words after ``launch``, with which it shows nothing by itself."""
        return [*self._words(form, self.choices), *start_words(self.choices), "--detach"]

    def _built(self, form: Form, choices: Choices | None = None) -> Built:
        parser = Parser(self._context.program)
        job_options(parser)
        own = Namespace(
            cluster=self._args.cluster, agent=self._args.agent, queue=self.choices.waits
        )
        context = dataclasses.replace(self._context, cell=self.target.cell)
        words = self._words(form, choices or self.choices)
        built = build_spec(context, parser.parse(words, own), asks_hub=False)
        return built.with_spec(set_in_panel(built.spec, overrides(self.choices)))

    def _day(self, time_s: float) -> str:
        then, now = time.localtime(time_s), time.localtime(self._context.clock())
        return time.strftime("at %H:%M" if then[:3] == now[:3] else "on %-d %b", then)

"""Submit panel in a notebook: choose, check, launch, and watch below."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import ipywidgets

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.notebook.background import background_thread
from jupyter_mntrain.notebook.panel import html as pieces
from jupyter_mntrain.notebook.panel.action import LAUNCHING, RESUMING, Action
from jupyter_mntrain.notebook.panel.field_bar import RESTART_LABELS, FieldBar
from jupyter_mntrain.notebook.panel.job_bar import JobBar
from jupyter_mntrain.notebook.panel.launch_bar import LaunchBar
from jupyter_mntrain.notebook.panel.node_table import NodeTable
from jupyter_mntrain.notebook.panel.parts.doctor_part import DoctorPart
from jupyter_mntrain.notebook.panel.parts.place_part import PlacePart
from jupyter_mntrain.notebook.panel.parts.prediction_part import PredictionPart
from jupyter_mntrain.notebook.panel.parts.source_part import SourcePart
from jupyter_mntrain.notebook.panel.row import check_line
from jupyter_mntrain.notebook.panel.settings import SettingsBar
from jupyter_mntrain.notebook.panel.style import CSS, ROOT
from jupyter_mntrain.notebook.panel.widgets import blocked, box, html, put, put_lines, show
from jupyter_mntrain.notebook.panel.worker import Worker
from jupyter_mntrain.show.bundles import Bundle, plain_text
from jupyter_mntrain.show.stacks import shown_stacks, stacks_text
from jupyter_mntrain.verbs.panel.choices import Choices
from jupyter_mntrain.verbs.panel.form import Form
from jupyter_mntrain.verbs.panel.node_row import RowCheck
from jupyter_mntrain.verbs.panel.panel import Panel
from jupyter_mntrain.verbs.panel.text import form_text

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, NodeView

BUSY = (
    "The kernel is running a cell; clicks here take effect when it finishes. "
    "Use the sidebar to stop jobs now."
)

PANEL_MIME = "application/vnd.mntrain.panel+json"
"""Of a panel's output: with it the page finds those whose kernel is gone."""

SAVED = "stopped by user, after saving"

NO_WIDGETS = (
    "This page shows no widgets, so the panel is text. To click: install ipywidgets, and "
    "jupyter_mntrain for the sidebar, in the environment of the Jupyter server; reload the page."
)


class WidgetPanel:
    """The widgets of one panel and the thread behind them.

    Args:
        panel: the choices, and the form made from them.
        show_job: puts a job's live view below the panel.
        keep: replaces the panel's own output, whose text a saved notebook keeps.
    """

    def __init__(
        self,
        panel: Panel,
        show_job: Callable[[Job], object],
        keep: Callable[[Bundle], object],
    ) -> None:
        self._panel = panel
        self._show_job = show_job
        self._keep = keep
        self._form = panel.form()
        self._shown_for: object = None
        self._showing_thread: int | None = None
        self._is_examining = False
        self._text_shown: str | None = None
        """The text shown in place of widgets, if the page does not support them."""
        self._checks_shown: tuple[RowCheck, ...] = ()
        self._make_parts()
        self.root.comm.on_close(lambda _: self._worker.put(self._be_text))
        self._show(self._form)
        self._unsubscribe = panel.cluster.subscribe(self._worker.wake)
        self._unfollow: Callable[[], object] = bool  # a job may run in a cluster of its own
        self._worker.start()
        self._worker.wake()

    def _make_parts(self) -> None:
        self.recipe = ipywidgets.Dropdown(description="Recipe")
        self.note = html()
        self.reset = ipywidgets.Button(
            description="Reset", tooltip="Back to the defaults of this recipe"
        )
        self.reset.add_class("mnt-right")
        self.source = SourcePart(self._listen, self._change)
        self.nodes = NodeTable(self._listen, self._change)
        self.fields = FieldBar(self._listen, self._change)
        self.place = PlacePart(self._do, self._listen, self._change)
        self.settings = SettingsBar(self._listen, self._change)
        self.restarts = FieldBar(self._listen, self._change, RESTART_LABELS)
        self._checks = box("mnt-plain")
        self.doctor = DoctorPart(lambda: self._do(self._examine_again), self._listen, self._change)
        self.prediction = PredictionPart(lambda: self._do(self._measure))
        starts = self._launch, self._resume, self._cancel
        self.launch_bar = LaunchBar(self._do, *starts, self._change)
        bar = self.launch_bar
        self.job_bar = JobBar(self._do, self._stop, self._save, self._stacks, bar.toggle.focus)
        self._action = Action(self._put, bar.say, bar.complain, self._forget_shown)
        self._worker = Worker(self._refresh, self._action.failed)
        busy = html(pieces.second(BUSY))
        busy.add_class("mnt-busy")
        self.root = box(
            ROOT,
            html(f"<style>{CSS}</style>"),
            box("mnt-bar", self.recipe, self.source.choice, self.note, self.reset),
            self.source.root,
            self.nodes.root,
            box("mnt-fields", self.fields.root, self.settings.root, self.restarts.root),
            self.place.root,
            self._checks,
            self.doctor.root,
            self.prediction.root,
            self.launch_bar.root,
            busy,
            self.launch_bar.commands,
            self.job_bar.root,
        )
        self._listen(self.recipe, self._choose_recipe)
        self.reset.on_click(lambda _: self._do(self._panel.reset))

    @property
    def bundle(self) -> Bundle:
        """The MIME bundle; front ends without widgets show the text form."""
        widget = self.root._repr_mimebundle_()
        return {PANEL_MIME: {}, **widget, "text/plain": self._text}

    @property
    def _text(self) -> str:
        return plain_text(form_text(self._panel, self._form, NO_WIDGETS))

    def _be_text(self) -> None:
        """Switch to text: the page does not support the widgets and has closed their channel."""
        self._text_shown = ""
        self._redraw_text()

    def _redraw_text(self) -> None:
        if self._text_shown is not None and (text := self._text) != self._text_shown:
            self._text_shown = text
            self._keep(self.bundle)

    def retire(self) -> None:
        """Disable this panel in favor of a newer one. Its job keeps running."""
        self._worker.put(self.launch_bar.retire)
        self.close()

    def close(self) -> None:
        """Stop answering clicks; a second call does nothing."""
        unsubscribe, self._unsubscribe = self._unsubscribe, lambda: None
        unsubscribe()
        self._unfollow()
        self._worker.close()

    # Clicks: callbacks come in any thread and only enqueue a task

    def _listen(self, widget: Any, take: Callable[[Any], None]) -> None:
        """Observe a widget, ignoring the values that the panel itself sets."""

        def heard(change: Any) -> None:
            if threading.get_ident() != self._showing_thread:
                take(change["new"])

        widget.observe(heard, names="value")

    def _do(self, task: Callable[[], None]) -> None:
        def done() -> None:
            self._action.problem = ""
            task()
            self._forget_shown()

        self._worker.put(done)

    def _put(self, task: Callable[[], None]) -> None:
        self._worker.put(task)

    def _change(self, changed: Callable[[Choices], Choices]) -> None:
        def change() -> None:
            self._panel.choices = changed(self._panel.choices)

        self._do(change)

    def _choose_recipe(self, index: int) -> None:
        self._do(lambda: self._panel.choose(self._panel.targets[index]))

    # Actions: slow work in a thread of its own

    def _launch(self) -> None:
        self._begin(LAUNCHING, partial(self._panel.launch, sleep=self._action.sleep))

    def _resume(self) -> None:
        if not blocked(self.launch_bar.resume):
            self._begin(RESUMING, self._panel.go_on)

    def _cancel(self) -> None:
        self._action.cancel()

    def _begin(self, name: str, start: Callable[[Form, Action], Job]) -> None:
        if self._action.name:
            return
        self._look()
        form = self._form
        if form.blocked:
            return

        def launch() -> None:
            job = start(form, self._action)
            self._worker.put(lambda: self._launched(job, form))

        self._action.begin(name, launch, can_cancel=bool(form.source))

    def _launched(self, job: Job, form: Form) -> None:
        self.job_bar.job, self._form = job, form
        self._keep(self.bundle)
        self.job_bar.show_stacks("")
        self._unfollow()
        self._unfollow = job.subscribe(self._worker.wake)
        self._show_job(job)

    def _measure(self) -> None:
        form = self._form
        if form.placements:
            self._action.begin("Measuring links", lambda: self._panel.measure(form, self._action))

    def _examine(self, *, anew: bool = False) -> None:
        """Ask the doctor about the chosen nodes in another thread, unless the answer is known."""
        examine = None if self._is_examining else self._panel.examination(self._form, anew=anew)
        if examine is None:
            return
        self._is_examining = True

        def run() -> None:
            try:
                examine()
            finally:
                self._put(self._examined)

        background_thread(run, "mntrain-panel-doctor").start()

    def _examine_again(self) -> None:
        self._examine(anew=True)

    def _examined(self) -> None:
        self._is_examining = False
        self._forget_shown()  # other nodes may be chosen by now: drawing asks about them

    def _stop(self, job: Job) -> None:
        self._action.begin(f"Stopping {job.id}", lambda: job.stop(progress=self._action))

    def _save(self, job: Job) -> None:
        def save() -> None:
            before = job.view()
            job.save(is_last=True, reason=SAVED)
            self._worker.put(lambda: self.job_bar.will_save(before))

        self._action.begin(f"Asking {job.id} to save", save)

    def _stacks(self, job: Job) -> None:
        def ask() -> None:
            view, answers = job.view(), job.stacks()
            text = stacks_text(shown_stacks(view, answers, None))
            self._worker.put(lambda: self.job_bar.show_stacks(text))

        self._action.begin(f"Asking the ranks of {job.id}", ask)

    # Drawing

    def _forget_shown(self) -> None:
        """Force a redraw."""
        self._shown_for = None

    def _refresh(self) -> None:
        now = self._state()
        if now == self._shown_for:
            return
        self._look()
        self._show(self._form)
        if self._panel.look(self._form):
            self._look()
            self._show(self._form)
        self._examine()
        self._redraw_text()
        # The state from before drawing: later changes cause the next redraw.
        self._shown_for = now

    def _look(self) -> None:
        self._form = self._panel.form()

    def _state(self) -> object:
        """Return everything that the panel shows, so that heartbeats alone cause no redraw."""
        panel = self._panel
        nodes = tuple(
            (view.liveness, view.info, view.problem, view.is_conflict, _gpu_use(view))
            for view in panel.cluster.nodes()
        )
        job = self.job_bar.text, self.job_bar.can_save
        return nodes, panel.choices, panel.target, panel.changed_s(), job, self._action.name

    def _show(self, form: Form) -> None:
        self._showing_thread = threading.get_ident()
        try:
            self._show_all(form)
        finally:
            self._showing_thread = None

    def _show_all(self, form: Form) -> None:
        panel, is_busy = self._panel, bool(self._action.name)
        options = tuple((target.label, index) for index, target in enumerate(panel.targets))
        put(self.recipe, options=options, value=panel.targets.index(panel.target))
        put(self.note, value=pieces.second(panel.note))
        self.source.show(panel.choices.on, form.source)
        show(self.source.choice, is_shown=panel.target.job is None)
        show(self.nodes.root, is_shown=not panel.choices.on)
        show(self.doctor.root, is_shown=not panel.choices.on)
        self.nodes.show(form.rows)
        self.fields.show(form.fields)
        self.restarts.show(form.fields)
        self.place.show(form.fields)
        self.settings.show(form, panel.choices, is_script=panel.target.is_script)
        if form.settings != self._checks_shown:
            self._checks_shown = form.settings
            put_lines(self._checks, [check_line(one, self._change) for one in form.settings])
        self.doctor.show(
            form.doctor,
            panel.said,
            is_busy=self._is_examining,
            can_skip=panel.doctor.refuses(form.participants),
            is_skipped=panel.choices.skips_doctor,
        )
        self.prediction.show(form.prediction, is_busy=is_busy)
        again = panel.target.job is not None
        self.launch_bar.show(form, self._action, panel.resume, again=again)
        self.launch_bar.show_commands(self._commands(form))
        self.job_bar.show(is_busy=is_busy)

    def _commands(self, form: Form) -> str:
        if not self.launch_bar.shows_commands:
            return ""
        try:
            exact = plain_text(self._panel.commands(form))
        except MntrainError as error:
            exact = str(error)
        return f"{self._panel.command(form)}\n\n{exact}"


def _gpu_use(view: NodeView) -> tuple[tuple[int, bool], ...]:
    gpus = view.heartbeat.gpus if view.heartbeat else ()
    return tuple((gpu.index, gpu.is_idle) for gpu in gpus)

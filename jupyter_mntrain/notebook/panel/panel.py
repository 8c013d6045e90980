"""The submit panel in a notebook: choose, check, launch, and watch below."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets
import msgspec

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.notebook.display import Bundle, plain_text
from jupyter_mntrain.notebook.panel import html as pieces
from jupyter_mntrain.notebook.panel.row import NodeRow, check_line
from jupyter_mntrain.notebook.panel.style import CSS, ROOT
from jupyter_mntrain.notebook.panel.widgets import box, html, put, put_choice, put_lines, show
from jupyter_mntrain.notebook.panel.worker import Worker
from jupyter_mntrain.recipe.sections import PipelineSection
from jupyter_mntrain.show import formats
from jupyter_mntrain.verbs.panel import Check, Choices, Form, Panel
from jupyter_mntrain.verbs.panel.choices import RESTARTS
from jupyter_mntrain.verbs.panel.text import form_text

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

SCHEDULES = tuple(
    msgspec.inspect.type_info(PipelineSection).fields[0].type.values  # type: ignore[attr-defined]
)
MOST_MICROBATCHES = 65536
HEADINGS = ("node", "", "GPUs or processes", "interface for training", "")
BUSY = (
    "The kernel is busy with a cell: what you choose here follows when it ends. "
    "The sidebar can stop jobs now."
)
RETIRED = "This panel was opened again in a newer cell."


class WidgetPanel:
    """Widgets of one panel and the thread behind them.

    Args:
        panel: what is chosen and what follows from it.
        show_job: puts a job's live view below the panel.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        panel: Panel,
        show_job: Callable[[Job], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._panel = panel
        self._show_job = show_job
        self._clock = clock
        self._worker = Worker(self._settle, self._failed)
        self._form = panel.form()
        self._shown_for: object = None
        self._showing_thread: int | None = None
        self._rows: dict[str, NodeRow] = {}
        self._settings_shown: tuple[Check, ...] = ()
        self._job: Job | None = None
        self._doing = ""
        self._problem = ""
        self._asks_to_stop = False
        self._shows_commands = False
        self._make_widgets()
        self._show(self._form)
        self._unsubscribe = panel.subscribe(self._worker.wake)
        self._worker.start()
        self._worker.wake()

    @property
    def bundle(self) -> Bundle:
        """For the page; without widgets it shows the text form."""
        widget = self.root._repr_mimebundle_()
        text = plain_text(form_text(self._panel, self._form, ""))
        return {**widget, "text/plain": text}

    def retire(self) -> None:
        """A newer panel takes over; what was launched from this one goes on."""

        def say() -> None:
            put(self._launch, disabled=True)
            put(self._why, value=pieces.second(RETIRED))

        self._worker.put(say)
        self.close()

    def close(self) -> None:
        """No click is answered any more. Again, it does nothing."""
        unsubscribe, self._unsubscribe = self._unsubscribe, lambda: None
        unsubscribe()
        self._worker.close()

    # What is on the page

    def _make_widgets(self) -> None:
        self._recipe = ipywidgets.Dropdown(description="Recipe")
        self._note = html()
        self._reset = ipywidgets.Button(
            description="Reset", tooltip="Back to the defaults of this recipe"
        )
        self._reset.add_class("mnt-right")
        self._table = ipywidgets.VBox()
        self._table.add_class("mnt-table")
        self._headings = box(
            "mnt-head", box("mnt-cells", *(html(pieces.second(word)) for word in HEADINGS))
        )
        self._schedule = ipywidgets.Dropdown(description="Schedule", options=SCHEDULES)
        self._microbatches = ipywidgets.BoundedIntText(
            description="Microbatches", min=1, max=MOST_MICROBATCHES, continuous_update=False
        )
        self._microbatches.layout.width = "170px"
        self._changes = ipywidgets.Text(
            description="Changes", placeholder="train.steps=50", continuous_update=False
        )
        self._environment = ipywidgets.Text(
            description="Environment", placeholder="NCCL_DEBUG=INFO", continuous_update=False
        )
        self._port = ipywidgets.Text(
            description="Port", placeholder="a free one", continuous_update=False
        )
        self._port.layout.width = "132px"
        self._restart = ipywidgets.Dropdown(
            description="Restart",
            options=[
                ("never", "never"),
                ("if it fails", "failed"),
                ("if it fails or hangs", "failed or stalled"),
            ],
            tooltip=f"From its newest checkpoint, up to {RESTARTS} times",
        )
        self._start = ipywidgets.Dropdown(
            description="Start",
            options=[("now", False), ("when it can have all", True)],
            tooltip="Busy GPUs are waited for: the job is left with its nodes, which start it",
        )
        self._settings = box("mnt-plain")
        self._predicted = html()
        self._launch = ipywidgets.Button(description="Launch")
        self._launch.add_class("mnt-launch")
        self._why = html()
        self._why.add_class("mnt-grow")
        self._commands_button = ipywidgets.Button(description="Show commands")
        self._commands = html()
        self._job_line = html()
        self._job_line.add_class("mnt-grow")
        self._stop = ipywidgets.Button(description="Stop…")
        self._stop_now = ipywidgets.Button(description="Stop it")
        self._keep = ipywidgets.Button(description="Keep it running")
        for button in (self._stop, self._stop_now):
            button.add_class("mnt-stop")
        self._job_bar = box(
            "mnt-part mnt-bar", self._job_line, self._stop, self._stop_now, self._keep
        )
        busy = html(pieces.second(BUSY))
        busy.add_class("mnt-busy")
        self._measure = ipywidgets.Button(
            description="Measure links", tooltip="About a second for each link and direction"
        )
        self._prediction_part = box("mnt-part", self._predicted, self._measure)
        self.root = box(
            ROOT,
            html(f"<style>{CSS}</style>"),
            box("mnt-bar", self._recipe, self._note, self._reset),
            self._table,
            box(
                "mnt-settings mnt-bar",
                self._schedule,
                self._microbatches,
                self._changes,
                self._environment,
                self._port,
                self._start,
                self._restart,
            ),
            self._settings,
            self._prediction_part,
            box("mnt-part mnt-bar", self._launch, self._why, self._commands_button),
            busy,
            self._commands,
            self._job_bar,
        )
        self._listen_to_all()

    def _listen_to_all(self) -> None:
        replace = msgspec.structs.replace
        self._listen(self._recipe, self._choose_recipe)
        self._listen(
            self._schedule, lambda value: self._change(lambda c: replace(c, schedule=value))
        )
        self._listen(
            self._microbatches, lambda value: self._change(lambda c: replace(c, microbatches=value))
        )
        self._listen(self._changes, lambda value: self._change(lambda c: replace(c, changes=value)))
        self._listen(
            self._environment, lambda value: self._change(lambda c: replace(c, environment=value))
        )
        self._listen(
            self._port, lambda value: self._change(lambda c: replace(c, port=value.strip()))
        )
        self._listen(self._restart, lambda value: self._change(lambda c: replace(c, restart=value)))
        self._listen(self._start, lambda value: self._change(lambda c: replace(c, waits=value)))
        self._reset.on_click(lambda _: self._do(self._panel.reset))
        self._launch.on_click(lambda _: self._do(self._begin_launch))
        self._measure.on_click(lambda _: self._do(self._begin_measure))
        self._commands_button.on_click(lambda _: self._do(self._toggle_commands))
        self._stop.on_click(lambda _: self._do(lambda: self._ask_to_stop(asks=True)))
        self._keep.on_click(lambda _: self._do(lambda: self._ask_to_stop(asks=False)))
        self._stop_now.on_click(lambda _: self._do(self._begin_stop))

    def _listen(self, widget: Any, take: Callable[[Any], None]) -> None:
        """Only to people: what this panel shows by itself was chosen by nobody."""

        def heard(change: Any) -> None:
            if threading.get_ident() != self._showing_thread:
                take(change["new"])

        widget.observe(heard, names="value")

    # What people do: every callback ends here at once, whichever thread it came in

    def _do(self, task: Callable[[], None]) -> None:
        def done() -> None:
            self._problem = ""
            task()
            self._shown_for = None

        self._worker.put(done)

    def _change(self, changed: Callable[[Choices], Choices]) -> None:
        def change() -> None:
            self._panel.choices = changed(self._panel.choices)

        self._do(change)

    def _choose_recipe(self, index: int) -> None:
        self._do(lambda: self._panel.choose(self._panel.targets[index]))

    def _toggle_commands(self) -> None:
        self._shows_commands = not self._shows_commands

    def _ask_to_stop(self, *, asks: bool) -> None:
        self._asks_to_stop = asks

    # What takes its time: in a thread of its own, so that clicks are answered meanwhile

    def _begin_launch(self) -> None:
        if self._doing:
            return
        self._look()
        form = self._form
        if form.blocked:
            return

        def launch() -> None:
            job = self._panel.launch(form, self)
            self._worker.put(lambda: self._launched(job))

        self._begin("Launching", launch)

    def _begin_measure(self) -> None:
        form = self._form
        if not self._doing and form.placements:
            self._begin("Measuring links", lambda: self._panel.measure(form, self))

    def _begin_stop(self) -> None:
        job = self._job
        self._asks_to_stop = False
        if job is not None and not self._doing:
            self._begin(f"Stopping {job.id}", lambda: job.stop(progress=self))

    def _begin(self, words: str, work: Callable[[], object]) -> None:
        self._doing = words

        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - said in the panel
                problem = error
                self._worker.put(lambda: self._failed(problem))
            finally:
                self._worker.put(self._done)

        context = contextvars.Context()
        threading.Thread(
            target=context.run, args=(run,), name="mntrain-panel-work", daemon=True
        ).start()

    def report(self, what: str, done: int, total: int | None) -> None:
        """How far a launch or a stop is; any thread."""
        count = f" {done} of {total}" if total else ""
        self._worker.put(lambda: self._say(f"{self._doing}: {what}{count}"))

    def _say(self, words: str) -> None:
        if self._doing:
            put(self._why, value=escape(words))

    def _launched(self, job: Job) -> None:
        self._job = job
        self._show_job(job)

    def _done(self) -> None:
        self._doing = ""
        self._shown_for = None

    def _failed(self, error: Exception) -> None:
        words = f"{type(error).__name__}: {error}"
        if isinstance(error, MntrainError):
            words = str(error)
        if self._doing == "Launching" and "started" not in words:
            words += " Nothing was started."
        self._problem = words
        self._shown_for = None
        put(self._why, value=pieces.icon("✕", "bad") + escape(words))

    # What is shown

    def _settle(self) -> None:
        now = self._state()
        if now == self._shown_for:
            return
        self._look()
        self._show(self._form)
        if self._panel.look(self._form):
            self._look()
            self._show(self._form)
        # As it was before all this was read: what changed meanwhile is shown the next time.
        self._shown_for = now

    def _look(self) -> None:
        self._form = self._panel.form()

    def _state(self) -> object:
        """What the page depends on; beats alone change nothing."""
        panel = self._panel
        nodes = tuple(
            (view.liveness, view.info, view.reason, view.is_conflict, _gpu_use(view))
            for view in panel.cluster.nodes()
        )
        job = self._job_words()
        return nodes, panel.choices, panel.target, panel.changed_s(), job, self._doing

    def _show(self, form: Form) -> None:
        self._showing_thread = threading.get_ident()
        try:
            self._show_all(form)
        finally:
            self._showing_thread = None

    def _show_all(self, form: Form) -> None:
        panel = self._panel
        options = [(target.label, index) for index, target in enumerate(panel.targets)]
        put_choice(self._recipe, options, panel.targets.index(panel.target))
        put(self._note, value=pieces.second(panel.note))
        self._show_rows(form)
        for widget in (self._schedule, self._microbatches, self._changes):
            show(widget, is_shown=not panel.target.is_script)
        if form.schedule is not None and form.microbatches is not None:
            put(self._schedule, value=form.schedule)
            put(self._microbatches, value=form.microbatches)
        put(self._changes, value=panel.choices.changes)
        put(self._environment, value=panel.choices.environment)
        put(self._port, value=panel.choices.port)
        put(self._start, value=panel.choices.waits)
        put(self._restart, value=panel.choices.restart)
        if form.settings != self._settings_shown:
            self._settings_shown = form.settings
            put_lines(self._settings, [check_line(one, self._change) for one in form.settings])
        predicted = pieces.predicted(form.prediction)
        put(self._predicted, value=predicted)
        show(self._prediction_part, is_shown=bool(predicted))
        lacks = form.prediction is not None and form.prediction.lacks_measurement
        show(self._measure, is_shown=lacks)
        put(self._measure, disabled=bool(self._doing))
        self._show_launch(form)
        self._show_commands(form)
        self._show_job_bar()

    def _show_rows(self, form: Form) -> None:
        names = [row.name for row in form.rows]
        if names != list(self._rows):
            self._rows = {
                name: self._rows.get(name) or NodeRow(name, self._listen, self._change)
                for name in names
            }
            self._table.children = (self._headings, *(row.root for row in self._rows.values()))
        for row in form.rows:
            self._rows[row.name].show(row)

    def _show_launch(self, form: Form) -> None:
        put(self._launch, description="Launching…" if self._doing == "Launching" else "Launch")
        put(self._launch, disabled=bool(form.blocked or self._doing))
        if self._doing:
            words = f"{escape(self._doing)}…"
        elif self._problem:
            words = pieces.icon("✕", "bad") + escape(self._problem)
        elif form.blocked:
            words = pieces.icon("✕", "bad") + escape(form.blocked)
        else:
            words = escape(form.summary)
        put(self._why, value=words)

    def _show_commands(self, form: Form) -> None:
        put(
            self._commands_button,
            description="Hide commands" if self._shows_commands else "Show commands",
        )
        text = ""
        if self._shows_commands:
            text = self._panel.command(form)
            try:
                text += "\n\n" + plain_text(self._panel.commands(form))
            except MntrainError as error:
                text += f"\n\n{error}"
        put(self._commands, value=f"<pre>{escape(text)}</pre>" if text else "")

    def _show_job_bar(self) -> None:
        words = self._job_words()
        show(self._job_bar, is_shown=bool(words))
        put(self._job_line, value=words)
        is_open = self._job is not None and self._job.state not in TERMINAL
        show(self._stop, is_shown=is_open and not self._asks_to_stop)
        for widget in (self._stop_now, self._keep):
            show(widget, is_shown=is_open and self._asks_to_stop)
        put(self._stop, disabled=bool(self._doing))

    def _job_words(self) -> str:
        if self._job is None:
            return ""
        try:
            state = self._job.state
        except MntrainError as error:
            return escape(f"{self._job.id}: {error}")
        asks = " Stop it? What it has not saved is lost." if self._asks_to_stop else ""
        return escape(f"{formats.STATE_ICONS[state]} {self._job.id} {state}.{asks}")


def _gpu_use(view: Any) -> tuple[tuple[int, bool], ...]:
    gpus = view.beat.gpus if view.beat else ()
    return tuple((gpu.index, gpu.is_idle) for gpu in gpus)

"""Magics: ``%mntrain`` and ``%%mntrain`` run a verb."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from IPython.core.magic import Magics, line_cell_magic, magics_class
from rich.text import Text

from jupyter_mntrain.command_line.parser import HelpWanted
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.text.foreign import visible
from jupyter_mntrain.notebook.output import show_bundle
from jupyter_mntrain.show.bundles import PROGRAM, picture_bundle, picture_metadata, text_bundle
from jupyter_mntrain.verbs.command import Command, parse, split_line
from jupyter_mntrain.verbs.run import run
from jupyter_mntrain.verbs.table import TABLE
from jupyter_mntrain.verbs.verb import Clusters, Context, Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_mntrain.cluster import Job
    from jupyter_mntrain.show.screen import Screen

_COMMAND = re.compile(rf"(?<![%\w-])mntrain (?=({'|'.join(TABLE)})\b)")
WANTS_TRACEBACK = re.compile(r"(^|\s)--traceback(\s|$)")


@magics_class
class MntrainMagics(Magics):  # type: ignore[misc]  # IPython has no types
    """The ``%mntrain`` magic of a shell.

    Args:
        hand_out: returns a job as the cell's result without displaying it again.
    """

    def __init__(
        self,
        shell: InteractiveShell,
        clusters: Clusters,
        screen: Screen,
        hand_out: Callable[[Job | None], Job | None],
    ) -> None:
        super().__init__(shell)
        self._clusters = clusters
        self._screen = screen
        self._hand_out = hand_out

    @line_cell_magic  # type: ignore[untyped-decorator]
    def mntrain(self, line: str, cell: str | None = None) -> Job | Path | None:
        """Train one model across several machines: ``%mntrain --help``."""
        try:
            command = parse(split_line(line), program=PROGRAM)
            return self._do(command, cell)
        except HelpWanted as wanted:
            show_bundle(text_bundle(Text(str(wanted))))
        except KeyboardInterrupt as stop:
            say_in_one_line(stop, f"interrupted. What runs is shown by: {PROGRAM} jobs")
            raise
        except MntrainError as error:
            if WANTS_TRACEBACK.search(line):
                say_with_traceback(error, self.shell)
            else:
                say_in_one_line(error, _for_cells(str(error)))
            raise
        return None

    def _do(self, command: Command, cell: str | None) -> Job | Path | None:
        context = Context(
            clusters=self._clusters,
            screen=self._screen,
            program=PROGRAM,
            cell=cell,
        )
        outcome = run(command, context)
        self._present(command, outcome)
        variable = getattr(command.args, "variable", None)
        if variable and outcome.job is not None:
            self.shell.user_ns[variable] = outcome.job
        if outcome.exit_code == 1 and command.verb.name in ("launch", "attach"):
            # Stops "run all": the cells below depend on this one.
            raise _job_error(outcome)
        if command.verb.name not in ("launch", "attach"):
            return outcome.path
        return self._hand_out(outcome.job)

    def _present(self, command: Command, outcome: Outcome) -> None:
        if command.args.json:
            data = outcome.data if isinstance(outcome.data, dict) else {"data": outcome.data}
            show_bundle(*self.shell.display_formatter.format(data))
            return
        if outcome.renderable:
            self._screen.say(outcome.renderable)
        if outcome.picture is not None:
            from jupyter_mntrain.show.picture import WIDTH_PX

            bundle = picture_bundle(outcome.picture, outcome.picture_text)
            show_bundle(bundle, metadata=picture_metadata(WIDTH_PX, outcome.picture_text))


def say_in_one_line(error: BaseException, text: str) -> None:
    """Have IPython show one line instead of a traceback; ``except`` still gets the error."""
    line = f"\x1b[31mmntrain:\x1b[0m {text}"
    # IPython's own hook, looked up on the exception.
    error.__dict__["_render_traceback_"] = lambda: [line]


def say_with_traceback(error: MntrainError, shell: InteractiveShell) -> None:
    """Have IPython show its usual traceback, with messages of other exceptions made safe."""

    def render() -> list[str]:
        del error.__dict__["_render_traceback_"]
        lines = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
        return [visible(line, keeps_color=True) for line in lines]

    error.__dict__["_render_traceback_"] = render


def _for_cells(text: str) -> str:
    """Replace commands in a text by their magics, where they exist: ``%mntrain jobs``.

    Problems are often made where nobody knows who will read them, maybe on another machine.
    """

    def command(found: re.Match[str]) -> str:
        return found[0] if TABLE[found[1]].terminal_only else f"{PROGRAM} "

    return _COMMAND.sub(command, text)


def _job_error(outcome: Outcome) -> MntrainError:
    if outcome.job is None:
        return MntrainError("the job did not succeed")
    view = outcome.job.view()
    if view.problem is None:
        return MntrainError(f"{view.job_id} was {view.state}", fix=f"see {PROGRAM} status")
    fix = view.problem.fix or f"see {PROGRAM} logs {view.job_id}"
    return MntrainError.of(msgspec.structs.replace(view.problem, fix=fix))

"""The magic: a line is parsed by the verbs' own parser, run, and shown."""

from __future__ import annotations

import getpass
import platform
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from jupyter_mntrain.cluster import Job
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.notebook.liveview import LiveView
from jupyter_mntrain.verbs import TABLE, Context, Outcome, parse_line
from jupyter_mntrain.verbs.session import find_nodes
from jupyter_mntrain.verbs.table import HelpAsked

if TYPE_CHECKING:
    from jupyter_mntrain.notebook.extension import Extension


@magics_class
class MntrainMagics(Magics):  # type: ignore[misc]
    """``%mntrain VERB …``; ``%%mntrain launch …`` with a recipe or a script below."""

    def __init__(self, shell: Any, extension: Extension) -> None:
        super().__init__(shell)
        self._extension = extension

    @line_cell_magic  # type: ignore[untyped-decorator]
    def mntrain(self, line: str, cell: str | None = None) -> Job | None:
        """Train one model across several machines. ``%mntrain --help`` lists the verbs."""
        show_traceback = "--traceback" in line
        try:
            return self._run(line, cell)
        except HelpAsked as text:
            self._extension.screen.line(str(text))
            return None
        except MntrainError as error:
            if show_traceback:
                raise
            # The one exception IPython prints as a line, without a traceback.
            raise UsageError(str(error)) from None
        except KeyboardInterrupt:
            self._extension.screen.line("detached: a job that was started goes on")
            return None

    def _run(self, line: str, cell: str | None) -> Job | None:
        arguments = parse_line(_words(line), prog="%mntrain")
        if cell is not None and arguments.verb not in {"launch", "dry-run"}:
            raise SpecError(
                f"%%mntrain {arguments.verb} takes no cell body", fix="use a single %"
            )
        cluster = self._extension.cluster_of(arguments)
        verb = TABLE[arguments.verb]
        find_nodes(cluster, verb.nodes_wanted(arguments))
        context = Context(
            cluster=cluster,
            directory=Path.cwd(),
            user=f"{getpass.getuser()}@{platform.node()}",
            show=self._extension.screen.show,
            cell=cell,
        )
        outcome = verb.run(context, arguments)
        return self._show(outcome, as_json=arguments.json)

    def _show(self, outcome: Outcome, *, as_json: bool) -> Job | None:
        screen = self._extension.screen
        if as_json:
            screen.json(outcome.data)
        else:
            screen.show(outcome.view)
        if outcome.job is None:
            return None
        view = LiveView(outcome.job, screen)
        self._extension.updater.add(view)
        if outcome.wait:
            self._extension.updater.wait(view)
        return outcome.job


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise SpecError(f"the line cannot be read: {error}", fix="close the quotes") from None

"""IPython extension: everything that ``%load_ext`` adds to a shell, and removes again."""

from __future__ import annotations

import atexit
import os
import re
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

from jupyter_mntrain import __version__
from jupyter_mntrain.cluster import Job
from jupyter_mntrain.cluster.default import default_cluster
from jupyter_mntrain.command_line.systems import check_driver_system
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.environment import DEFAULT_CLUSTER
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.notebook.completion import LineCompleter
from jupyter_mntrain.notebook.magics import MntrainMagics
from jupyter_mntrain.notebook.output import NotebookOutput, client_of, is_typed, show_bundle
from jupyter_mntrain.notebook.screen import NotebookScreen
from jupyter_mntrain.notebook.session_names import MAGIC_LINE, SessionNames, runs_on
from jupyter_mntrain.notebook.updater import Updater
from jupyter_mntrain.show.bundles import PROGRAM, text_bundle
from jupyter_mntrain.show.screen import CellTarget, Screen
from jupyter_mntrain.show.tables.job import status_view
from jupyter_mntrain.show.tables.node_list import Surroundings, node_table
from jupyter_mntrain.show.terminal import TerminalScreen, make_console
from jupyter_mntrain.verbs.verb import Clusters, connect

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_mntrain.cluster import Cluster

MATCHER = "mntrain"
COMMENTED_CELL = re.compile(r"^\s*%%mntrain\b")

Connect = Callable[[str, tuple[str, ...]], "Cluster"]


class Extension:
    """The magics, completion, clusters and live views of one shell.

    Args:
        shell: IPython's.
        connect: opens a cluster.
    """

    def __init__(self, shell: InteractiveShell, connect: Connect = connect) -> None:
        self._shell = shell
        self.clusters = Clusters(connect)
        self.updater = Updater()
        self.screen: Screen = self._make_screen()
        self._cell_target = self.screen.cell_target = CellTarget()
        self.screen.variables = shell.user_ns
        self._completer = LineCompleter(self.clusters)
        self._handed_out: Job | None = None
        self._names = SessionNames(self.clusters, self._cell_target)
        self._matcher = _make_matcher(self._completer, self._names)

    def load(self) -> None:
        """Register everything and start looking for nodes."""
        shell = self._shell
        magics = MntrainMagics(shell, self.clusters, self.screen, self.hand_out)
        shell.register_magics(magics)
        shell.Completer.custom_matchers.append(self._matcher)
        shell.input_transformers_cleanup.extend((lift_cell_magic, self._send_cell))
        shell.events.register("pre_run_cell", self._new_cell)
        shell.display_formatter.ipython_display_formatter.for_type(Job, self._show_job)
        self._inspect_on_ranks()
        atexit.register(self.close)
        print(self._greeting())  # noqa: T201 - the output of %load_ext
        self._show_nodes()

    def unload(self) -> None:
        """Unregister everything. Jobs keep running."""
        shell = self._shell
        shell.magics_manager.magics["line"].pop("mntrain", None)
        shell.magics_manager.magics["cell"].pop("mntrain", None)
        shell.magics_manager.registry.pop(MntrainMagics.__name__, None)
        shell.Completer.custom_matchers.remove(self._matcher)
        shell.input_transformers_cleanup.remove(lift_cell_magic)
        shell.input_transformers_cleanup.remove(self._send_cell)
        shell.events.unregister("pre_run_cell", self._new_cell)
        shell.display_formatter.ipython_display_formatter.pop(Job, None)
        if hasattr(kernel := getattr(shell, "kernel", None), "do_inspect"):
            vars(kernel).pop("do_inspect", None)
        atexit.unregister(self.close)
        self.close()

    def close(self) -> None:
        """Stop drawing and watching. Jobs keep running."""
        if isinstance(self.screen, NotebookScreen):
            self.screen.close()
        self.updater.close()
        self._names.close()
        self.clusters.close()

    def hand_out(self, job: Job | None) -> Job | None:
        """Return the cell's result, and keep IPython from displaying it a second time."""
        self._handed_out = job
        return job

    def _send_cell(self, lines: list[str]) -> list[str]:
        """Have a cell run on the session that ``session auto`` has named; not what pages and
        extensions run in the kernel without a person.
        """
        session = runs_on(self._cell_target, lines)
        if not session or not is_typed(self._shell):
            return lines
        return [f"%%mntrain cell --session {session}\n", *lines]

    def _inspect_on_ranks(self) -> None:
        """Answer Shift-Tab in a cell of a session with what a rank knows.

        IPython asks matchers for completions; for this it has no hook, so that the kernel's method
        is wrapped.
        """
        kernel = getattr(self._shell, "kernel", None)
        inspect_here = getattr(kernel, "do_inspect", None)
        if kernel is None or inspect_here is None:
            return

        def do_inspect(code: str, cursor_pos: int, detail_level: int = 0, *args: Any) -> Any:
            cell = self._names.cell_at(code, cursor_pos)
            if cell is None:
                return inspect_here(code, cursor_pos, detail_level, *args)
            found = self._names.inspect(cell, code, cursor_pos, detail_level)
            return {"status": "ok", "found": bool(found), "data": found or {}, "metadata": {}}

        kernel.do_inspect = do_inspect

    def _greeting(self) -> str:
        name, agents = default_cluster(os.environ)
        try:
            check_driver_system()
            tunables.check()
            self.clusters.get(name, agents)
        except MntrainError as error:
            return f"mntrain {__version__}: {error}"
        where = "" if name == DEFAULT_CLUSTER else f" of cluster {shown_name(name)}"
        return f"mntrain {__version__}: looking for nodes{where}. {PROGRAM} nodes, {PROGRAM} --help"

    def _show_nodes(self) -> None:
        """Show the nodes that are found soon; list the others as not answering yet."""
        try:
            cluster = self.clusters.get(*default_cluster(os.environ))
            if not cluster.membership.is_driver:
                return
            nodes = cluster.first_nodes()
        except MntrainError:
            return  # said by the greeting, or by the first verb
        if nodes:
            self.screen.say(
                node_table(
                    nodes,
                    around=Surroundings(discovery_problem=cluster.discovery.problem),
                    cluster=cluster.name,
                    now_s=time.time(),
                    program=PROGRAM,
                    every=False,
                )
            )

    def _make_screen(self) -> Screen:
        if not hasattr(self._shell, "kernel"):
            # A terminal shows no pictures and cannot be redrawn above the prompt.
            return TerminalScreen(make_console(), PROGRAM, has_variables=True)
        return NotebookScreen(
            self.updater,
            show=show_bundle,
            new_output=NotebookOutput,
            client=partial(client_of, self._shell),
        )

    def _new_cell(self, *_: Any) -> None:
        self._handed_out = None

    def _show_job(self, job: Job) -> None:
        if job is self._handed_out:
            return
        report = status_view(job.summary(), job.view(), program=PROGRAM)
        show_bundle(text_bundle(report))


def lift_cell_magic(lines: list[str]) -> list[str]:
    """Drop comments and blank lines above ``%%mntrain``.

    IPython requires a cell magic on the first line; its error does not say so.
    """
    for number, line in enumerate(lines):
        if COMMENTED_CELL.match(line):
            return lines[number:]
        if line.strip() and not line.lstrip().startswith("#"):
            return lines
    return lines


def _make_matcher(completer: LineCompleter, names: SessionNames) -> Any:
    @context_matcher(identifier=MATCHER)  # type: ignore[untyped-decorator]
    def match(context: CompletionContext) -> dict[str, Any]:
        before = context.full_text.split("\n")[: context.cursor_line]
        position = sum(len(one) + 1 for one in before) + context.cursor_position
        cell = names.cell_at(context.full_text, position)
        if cell is not None:
            begun, found = names.complete(cell, context.full_text, position)
            return {
                "completions": [SimpleCompletion(one) for one in found],
                "suppress": True,  # names of this kernel are not those of the ranks
                "matched_fragment": begun,
            }
        line = MAGIC_LINE.match(context.text_until_cursor)
        if line is None or (context.cursor_line and "%%" in context.text_until_cursor):
            return {"completions": []}
        begun, words = completer.complete(line["rest"])
        # IPython replaces only the text after its own last delimiter.
        kept = len(begun) - len(context.token) if begun.endswith(context.token) else 0
        return {
            "completions": [SimpleCompletion(word[kept:], type="magic") for word in words],
            "suppress": True,
            "matched_fragment": begun[kept:],
        }

    return match

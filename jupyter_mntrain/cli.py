"""Command line: ``mntrain``, with the same verbs as the magic.

Exit codes:
0 done (``launch --wait``: every rank succeeded), 1 the job failed or was canceled, 2 bad input,
3 a node, 4 refused, 5 no such job, 6 not trusted, 130 Ctrl-C, 128 + N a signal N.
Results go to stdout, errors to stderr; with ``--json`` each is one JSON document.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

from jupyter_mntrain.command_line.needed_packages import INTERRUPTED, needed_packages

PROGRAM = "mntrain"

with needed_packages(PROGRAM):
    from jupyter_mntrain.command_line.error_output import (
        print_defect,
        print_error,
        replace_unencodable,
    )
    from jupyter_mntrain.command_line.parser import HelpWanted
    from jupyter_mntrain.command_line.systems import check_driver_system
    from jupyter_mntrain.model.errors import MntrainError
    from jupyter_mntrain.model.text.foreign import escaped_json, shown
    from jupyter_mntrain.verbs.command import Command, parse

if TYPE_CHECKING:
    from jupyter_mntrain.verbs.verb import Outcome

OBJECTS_OF_IMPORTS = 300_000
"""Made before this program looks for garbage: what imports make stays until its end, and to look at
it then, and every 700 objects, took a quarter of the 0.4 s of a processor of ``mntrain jobs``."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    if argv is None and "_ARGCOMPLETE" in os.environ:
        from jupyter_mntrain.verbs.shell_completion import answer

        answer()
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:  # this process is nobody else's
        gc.set_threshold(OBJECTS_OF_IMPORTS, 50, 100)
        atexit.register(gc.freeze)
        # httpx imports its own program, which nobody runs here, with click and pygments if they
        # are there: 30 of the 380 ms of ``mntrain jobs``. Without it, it goes on.
        sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    replace_unencodable()
    try:
        with _ended_by(signal.SIGTERM, signal.SIGHUP):
            return _verb(words)
    except Ended as ended:
        return 128 + ended.number
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # the reader is gone (``| head``)
        return 0
    except Exception as error:  # noqa: BLE001 - shown, and the exit code is Python's own
        return print_defect(error, PROGRAM)


class Ended(KeyboardInterrupt):
    """A signal ends this program: what must not outlive it ends as after Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def _ended_by(*numbers: signal.Signals) -> Iterator[None]:
    """Have signals raise :class:`Ended`, where they would end the program at once: not where
    ``nohup`` has it ignore them. A second one does end it.
    """
    mine = [one for one in numbers if signal.getsignal(one) is signal.SIG_DFL]

    def end(number: int, _: object) -> NoReturn:
        for one in mine:
            signal.signal(one, signal.SIG_DFL)
        raise Ended(number)

    if threading.current_thread() is not threading.main_thread():
        mine = []
    for one in mine:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one in mine:
            if signal.getsignal(one) is end:
                signal.signal(one, signal.SIG_DFL)


def _verb(words: Sequence[str]) -> int:
    try:
        try:
            return _said(words)
        except OSError:
            # Not above: help does without.
            from jupyter_mntrain.model.failure.system_errors import system_errors_told

            with system_errors_told():
                raise
    except MntrainError as error:
        code = print_error(error, words, _say_error)
        with suppress(OSError):
            sys.stdout.flush()
            return code
        _drop_output()  # the error was about it
        return code


def _said(words: Sequence[str]) -> int:
    try:
        check_driver_system()
        code = _run(parse(words, program=PROGRAM))
    except HelpWanted as help_wanted:
        sys.stdout.write(f"{shown(str(help_wanted))}\n")
        code = 0
    sys.stdout.flush()
    return code


def _drop_output() -> None:
    """Have Python not report it again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(command: Command) -> int:
    # Not above: help and the version do without.
    from jupyter_mntrain.model import tunables
    from jupyter_mntrain.show.terminal import TerminalScreen, make_console
    from jupyter_mntrain.verbs.known_names import keep_names
    from jupyter_mntrain.verbs.run import run
    from jupyter_mntrain.verbs.verb import Clusters, Context, connect

    tunables.check()
    clusters = Clusters(connect)
    try:
        screen = TerminalScreen(make_console(), PROGRAM)
        context = Context(clusters=clusters, screen=screen, program=PROGRAM)
        return _print(run(command, context), wants_json=command.args.json)
    finally:
        for cluster in clusters.opened():
            keep_names(cluster)
        clusters.close()


def _say_error(text: str) -> None:
    from rich.text import Text

    from jupyter_mntrain.show.terminal import make_console

    line = Text.assemble((f"{PROGRAM}: ", "red"), text)
    console = make_console(stderr=True)
    console.print(line, soft_wrap=not console.is_terminal)  # a terminal would break in mid-word


def _print(outcome: Outcome, *, wants_json: bool) -> int:
    if wants_json:
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(outcome.data), indent=2).decode()
        sys.stdout.write(escaped_json(text) + "\n")
    elif outcome.renderable:
        from jupyter_mntrain.show.terminal import make_console

        # Soft: commands and log lines are to be copied, never folded.
        make_console().print(outcome.renderable, soft_wrap=True)
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())

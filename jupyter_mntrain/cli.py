"""Command line: ``mntrain``, the same verbs as the magic, with documented exit codes.

0 done (``launch --wait``: every rank succeeded), 1 the job failed or was canceled, 2 bad input,
3 a node, 4 refused, 5 no such job, 6 not trusted, 130 Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence

import msgspec
from rich.text import Text

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.show.terminal import TerminalScreen, make_console
from jupyter_mntrain.verbs import (
    Clusters,
    Context,
    HelpWanted,
    Outcome,
    connect,
    parse,
    run,
)

PROGRAM = "mntrain"
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _verb(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (``| head``): nothing to say, and nobody to say it to. Python would
        # complain once more while it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _verb(words: Sequence[str]) -> int:
    clusters = Clusters(connect)
    try:
        tunables.check()
        command = parse(words, program=PROGRAM)
        wants_json = command.args.json
        screen = TerminalScreen(make_console(), PROGRAM)
        outcome = _explained(
            lambda: run(command, Context(clusters=clusters, screen=screen, program=PROGRAM)),
            with_traceback=command.args.traceback,
        )
        if isinstance(outcome, int):
            return outcome
        return _print(outcome, wants_json=wants_json)
    except HelpWanted as help_wanted:
        make_console().print(help_wanted.text, soft_wrap=True)
        return 0
    except MntrainError as error:
        return _complain(error)
    finally:
        clusters.close()


def _explained(do: Callable[[], Outcome], *, with_traceback: bool) -> Outcome | int:
    try:
        return do()
    except MntrainError as error:
        if with_traceback:
            traceback.print_exc()
        return _complain(error)


def _complain(error: MntrainError) -> int:
    line = Text.assemble((f"{PROGRAM}: ", "red"), str(error))
    make_console(stderr=True).print(line, soft_wrap=True)
    return error.exit_code


def _print(outcome: Outcome, *, wants_json: bool) -> int:
    if wants_json:
        text = msgspec.json.format(msgspec.json.encode(outcome.data), indent=2).decode()
        sys.stdout.write(text + "\n")
    elif outcome.renderable:
        # Soft: commands and log lines are to be copied, never folded.
        make_console().print(outcome.renderable, soft_wrap=True)
    sys.stdout.flush()
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())

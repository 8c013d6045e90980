"""Token input: reads an invitation token from a prompt, standard input or a file.

Never from the command line: every user of a machine can read the arguments of all its processes,
and an agent's process runs for months.
"""

from __future__ import annotations

import getpass
import os
import stat
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from jupyter_mntrain.command_line.asking import can_ask
from jupyter_mntrain.command_line.parser import Parser, bad_command, typed
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.whereabouts import in_home

LONGEST_CHARACTERS = 4096
"""A token has 80. Its file may have blanks and a line break around it."""

STANDARD_INPUT = "-"


def piped(token: str, command: str) -> str:
    """Return a shell line that pipes the token in. ``echo`` is a builtin, so no process shows the
    token.
    """
    return f"echo {token} | {command}"


def add_token_arguments(parser: Parser) -> None:
    """Add the arguments of commands that join a cluster."""
    parser.argument(
        "token",
        nargs="?",
        default=STANDARD_INPUT,
        metavar=STANDARD_INPUT,
        type=typed(_refuses(parser.prog)),
        help="read the token from standard input, or ask for it at a terminal; the default",
    )
    parser.option(
        "--token-file",
        type=Path,
        metavar="FILE",
        completes="file",
        help="read the token from a file",
    )


def read_token_text(args: Namespace, program: str) -> str:
    """Read the token that the user gives, without checking it.

    Args:
        program: the command, for hints; in a notebook it begins with ``%``.

    Raises:
        SpecError: none is given, or its file cannot be read.
    """
    if args.token_file is not None:
        return _of_file(in_home(args.token_file))
    text = _asked() if can_ask(program) else _of_standard_input()
    if not text.strip():
        raise SpecError("no token was given", fix=_ways(program))
    return text


def _is_magic(program: str) -> bool:
    return program.startswith("%")


def _ways(program: str) -> str:
    if _is_magic(program):
        return f"run {program} and paste the token when it asks, or use --token-file FILE"
    return f"{piped('TOKEN', program)}, or {program} --token-file FILE"


def _refuses(program: str) -> Callable[[str], str]:
    def check(word: str) -> str:
        if word == STANDARD_INPUT:
            return word
        cause = "do not put a token on the command line: every user of this machine can read it"
        if _is_magic(program):
            cause = "do not put a token in a cell: it would stay in the notebook"
        raise bad_command(cause, fix=_ways(program))

    return check


def _asked() -> str:
    try:
        return getpass.getpass("Paste the token (it is not shown): ")
    except (EOFError, NotImplementedError):  # closed, or a notebook that nobody is watching
        return ""


def _of_standard_input() -> str:
    try:
        return sys.stdin.readline(LONGEST_CHARACTERS) if sys.stdin is not None else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _of_file(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            _refuse_open(path, os.fstat(file.fileno()))
            return file.read(LONGEST_CHARACTERS)
    except UnicodeDecodeError:
        raise SpecError(
            f"{path} contains no token", fix="write the token into it, as text"
        ) from None
    except OSError as error:
        raise SpecError(
            f"{path} cannot be read: {error.strerror}", fix="check --token-file"
        ) from error


def _refuse_open(path: Path, status: os.stat_result) -> None:
    """Refuse a file that others can read. If another user owns it, group access is allowed:
    Kubernetes mounts secrets in pods that way.
    """
    is_ours = status.st_uid == os.geteuid()
    if status.st_mode & (stat.S_IRWXO | (stat.S_IRWXG if is_ours else 0)):
        raise SpecError(
            f"other users can read {path}, and with it join the cluster",
            fix=f"chmod 600 {path}; if others have read it, make a new token",
        )

"""Passphrase input: from a prompt without echo or from a file, never from the command line."""

from __future__ import annotations

import getpass
from argparse import Namespace
from pathlib import Path

from jupyter_mntrain.command_line.asking import can_ask
from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.whereabouts import in_home

LONGEST_CHARACTERS = 4096


def add_passphrase_arguments(parser: Parser) -> None:
    parser.option(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        completes="file",
        help="read the passphrase from the first line of a file; default: ask for it",
    )


def read_passphrase(args: Namespace, program: str, *, twice: bool) -> str:
    """Read the passphrase from a prompt or a file.

    Args:
        program: ``%mntrain`` in a notebook, which asks in a box that is not saved.
        twice: ask again, for one that is new.

    Raises:
        SpecError: none is given, the two differ, or the file cannot be read.
    """
    if args.passphrase_file is not None:
        return _of_file(in_home(args.passphrase_file))
    text = _asked("Passphrase (it is not shown): ") if can_ask(program) else ""
    if not text:
        fix = "run this at a terminal and type it when it asks, or use --passphrase-file FILE"
        raise SpecError("no passphrase was given", fix=fix)
    if twice and _asked("Passphrase again: ") != text:
        raise SpecError("the two passphrases differ", fix="try again")
    return text


def _asked(prompt: str) -> str:
    try:
        return getpass.getpass(prompt)
    except (EOFError, NotImplementedError):  # closed, or a notebook that nobody is watching
        return ""


def _of_file(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.readline(LONGEST_CHARACTERS).rstrip("\r\n")
    except UnicodeDecodeError:
        raise SpecError(f"{path} contains no text", fix="write the passphrase into it") from None
    except OSError as error:
        raise SpecError(
            f"{path} cannot be read: {error.strerror}", fix="check --passphrase-file"
        ) from error
    if not text:
        raise SpecError(f"{path} is empty", fix="write the passphrase into its first line")
    return text

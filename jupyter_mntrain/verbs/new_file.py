"""New file: creates files for the user, and overwrites existing ones only if asked to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.whereabouts import in_home


def output_option(parser: Parser, *, metavar: str = "FILE", help: str) -> None:  # noqa: A002
    """Add the option that names the file to write; ``help`` is passed to argparse."""
    parser.option("--output", "-o", metavar=metavar, completes="file", help=help)


def force_flag(parser: Parser) -> None:
    parser.flag("--force", help="overwrite an existing file")


def new_place(directory: Path, told: str) -> Path:
    """Resolve where a verb creates files or folders, relative to the user's folder.

    Raises:
        SpecError: that folder has been deleted: it is not made again where nobody looks for it.
    """
    place = in_home(told)
    if not place.is_absolute() and not directory.is_dir():
        raise SpecError(
            f"the current folder, {directory}, has been deleted",
            fix="change to one that exists (cd), or give a path that begins with / or ~",
        )
    return directory / place


def refuse_existing(path: Path, name: str) -> None:
    """Refuse an existing file before any work is done for it.

    Args:
        name: as the user wrote it.

    Raises:
        SpecError: it is there.
    """
    if path.is_dir():
        raise SpecError(f"{name}: is a directory", fix="give the name of a file")
    if path.exists():
        raise SpecError(
            f"{name}: already exists", fix="choose another --output, or overwrite it with --force"
        )


def file_path(path: Path, text: str, *, may_replace: bool) -> Path:
    """Return the path, if a file may be written there.

    Raises:
        SpecError: one is there, or there is no such directory.
    """
    if not path.parent.is_dir():
        raise SpecError(f"{path.parent}: no such directory", fix="create it, or choose another")
    if not may_replace:
        refuse_existing(path, text)
    return path


def new_file(path: Path, name: str, *, may_replace: bool) -> BinaryIO:
    """Create a file with mode 0600 that must not exist yet.

    Args:
        name: as the user wrote it.
        may_replace: also one that was there.

    Raises:
        SpecError: it was there, or cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if may_replace else os.O_EXCL)
    try:
        return open(os.open(path, flags, 0o600), "wb")  # noqa: PTH123 - its mode from the start
    except FileExistsError:
        refuse_existing(path, name)
        raise
    except OSError as error:
        raise SpecError(
            f"{name}: cannot be written: {error.strerror}", fix="choose another --output"
        ) from None

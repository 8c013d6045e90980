"""Given files: the files that ``--file`` sends with a job, by their names on every node."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from jupyter_mntrain.launch.project.stage import Found, Listing, list_folder
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.workload.workload import read_text

SMALL_BYTES = 256 * 2**10
"""A text file of --file up to this size stands in the job itself, so that an exported job has
it."""


class GivenFiles(NamedTuple):
    """Files to send besides the script.

    Args:
        texts: small text files, which stand in the job's spec.
        others: what is sent like a project.
        paths: where each of them is, by name.
    """

    texts: dict[str, str]
    others: Listing
    paths: dict[str, Path]


def given_files(given: Sequence[str], directory: Path) -> GivenFiles:
    """Read small text files and list the others.

    A path below ``directory`` is kept as the name; of any other, only the last part.

    Raises:
        SpecError: one cannot be read, or two would have one name.
    """
    found: dict[str, Found] = {}
    folders: list[str] = []
    notes: list[Problem] = []
    for text in given:
        path = directory / in_home(text)
        name = _name_of(text, path, directory)
        if path.is_dir():
            listing = list_folder(path, is_whole=True)  # it was named
            prefix = "" if name == "." else f"{name}/"
            folders += [prefix + one for one in listing.folders]
            notes += listing.notes
            files = [one._replace(name=prefix + one.name) for one in listing.files]
        else:
            files = [found_file(name, path)]
        for one in files:
            other = found.setdefault(one.name, one)
            if other.path.resolve() != one.path.resolve():
                raise same_name(one.name, other.path, one.path)
    small = {name: _small_text(one) for name, one in found.items()}
    texts = {name: content for name, content in small.items() if content is not None}
    others = tuple(one for name, one in found.items() if name not in texts)
    paths = {name: one.path for name, one in found.items()}
    return GivenFiles(texts, Listing(others, tuple(folders), tuple(notes)), paths)


def with_reads(given: GivenFiles, reads: Mapping[str, Path]) -> GivenFiles:
    """Add small text files that a script reads, under the names by which it reads them."""
    found = {
        name: text
        for name, path in reads.items()
        if name not in given.paths and (text := _small_text(found_file(name, path))) is not None
    }
    paths = {name: reads[name] for name in found}
    return given._replace(texts=found | given.texts, paths=paths | given.paths)


def joined(project: Listing, given: GivenFiles) -> Listing:
    """Return everything that is sent as a project.

    Raises:
        SpecError: two files would have one name.
    """
    by_name = {one.name: one for one in project.files}
    for name, path in given.paths.items():
        if name in by_name and by_name[name].path.resolve() != path.resolve():
            raise same_name(name, by_name[name].path, path)
    more = (one for one in given.others.files if one.name not in by_name)
    return Listing(
        (*project.files, *more),
        tuple(dict.fromkeys((*project.folders, *_new(given.others.folders, by_name)))),
        (*project.notes, *given.others.notes),
        project.left_out,
    )


def same_name(name: str, one: Path, other: Path) -> SpecError:
    """Return the error for two files that would get one name on the nodes."""
    return SpecError(
        f"{one} and {other} would both be named {name} on the nodes",
        fix="give paths below this folder, which are kept, or rename one of them",
    )


def _new(folders: Iterable[str], names: Iterable[str]) -> list[str]:
    taken = set(names)
    return [folder for folder in folders if not any(one.startswith(f"{folder}/") for one in taken)]


def _name_of(text: str, path: Path, directory: Path) -> str:
    if not in_home(text).is_absolute():
        kept = PurePosixPath(os.path.normpath(text))
        if ".." not in kept.parts:
            return str(kept)
    elif path.is_relative_to(directory):
        return PurePosixPath(path.relative_to(directory)).as_posix()
    return path.name


def found_file(name: str, path: Path) -> Found:
    """Describe a file to send.

    Raises:
        SpecError: it cannot be read, or is no file.
    """
    try:
        told = path.stat()
    except OSError:
        read_text(path, "file")  # says what is wrong with it
        raise
    if not stat.S_ISREG(told.st_mode):
        raise SpecError(f"{path}: not a regular file", fix="name a file or a folder")
    return Found(name, path, told.st_size, bool(told.st_mode & stat.S_IXUSR))


def _small_text(one: Found) -> str | None:
    """Return a file's text if it is small enough for the spec; else ``None``."""
    if one.is_executable or one.size_bytes > SMALL_BYTES:
        return None
    try:
        return one.path.read_bytes().decode()
    except (UnicodeDecodeError, OSError):
        return None

"""Corpus: reads documents in a fixed order, and checks that all nodes have the same ones."""

from __future__ import annotations

import hashlib
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from jupyter_mntrain.launch.files.data_files import DATA_FILES, TEXT_FILES, data_suffix
from jupyter_mntrain.launch.files.large_places import place_of
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.brief import some_of
from jupyter_mntrain.recipe.sections import PYTHON_LIBRARY, DataSection
from jupyter_mntrain.telemetry.progress import ProgressWriter, Tally, unwatched
from jupyter_mntrain.train.data.conversations import Message, Tool, messages_of, tools_of
from jupyter_mntrain.train.data.records import BadRows, RowError, SourceRow, is_utf_8, read_rows

Document = str | Sequence[Message]
"""A text, or a conversation."""

_LIBRARY_LEFT_OUT = frozenset(
    {
        # Not part of the library, or different on two machines with the same Python.
        *("site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"),
        # Linux distributions package these separately, so nodes may differ.
        *("ensurepip", "idlelib", "lib2to3", "distutils", "tkinter", "turtledemo"),
    }
)
_MACHINE_PREFIXES = ("config-", "_sysconfigdata")
"""Generated when Python is built, with that machine's paths."""

_ABOUT = frozenset(
    {"readme.md", "license.md", "license.txt", "dataset_info.json", "dataset_infos.json"}
)
"""Files that describe the data, next to files of rows."""
_TRAINED = re.compile(r"train(?![a-z])", re.IGNORECASE)
_EVALUATED = re.compile(r"(test|validation|valid|val|dev|eval)(?![a-z])", re.IGNORECASE)

LeftOut = dict[str, list[str]]
"""Files that are not read, by the reason."""


class Located(msgspec.Struct, frozen=True):
    """A document with its file and line.

    Args:
        tools: that its assistant may call.
        source: which of several it is from.
    """

    document: Document
    where: str
    tools: Sequence[Tool] | None = None
    source: int = 0


class Corpus(Record, frozen=True):
    """The training data: its documents, and a hash of all file names and contents.

    Args:
        parts: of several sources, the number of files of each.
    """

    description: str
    digest: str
    files: tuple[Path, ...]
    section: DataSection
    parts: tuple[int, ...] = ()

    def documents(
        self,
        *,
        progress: ProgressWriter = unwatched,
        what: str = "reading the text",
        bad: BadRows | None = None,
    ) -> Iterator[Located]:
        """Yield the documents, in the same order each time.

        Args:
            progress: receives the bytes read, under the name ``what``.
            bad: receives the rows that are none; who gives it calls ``finish`` at the end.

        Raises:
            RecipeError: without ``bad``, at the end: more rows are bad than the recipe allows.
        """
        found = BadRows(self.section) if bad is None else bad
        tally = Tally(progress, what, _size_bytes(self.files), "B")
        sources = [n for n, count in enumerate(self.parts) for _ in range(count)]
        for path, source in zip(self.files, sources or [0] * len(self.files), strict=True):
            left = float(path.stat().st_size)
            for row in read_rows(path, self.section.text_field):
                found.rows += 1
                try:
                    document = _document(row, self.section, source)
                except RowError as error:
                    found.add(error)
                else:
                    yield document
                if found.gives_up:
                    break
                tally.add(row.size_bytes)
                left -= row.size_bytes
            if found.gives_up:
                break
            tally.add(left)  # empty lines
        tally.end()
        if bad is None:
            found.finish()


def read_corpus(section: DataSection, progress: ProgressWriter = unwatched) -> Corpus:
    """Find and hash the recipe's data.

    Raises:
        RecipeError: the source does not exist, or contains no text in the recipe's format.
    """
    if section.sources:
        return _joined(section, progress)
    if section.source == PYTHON_LIBRARY:
        root = Path(sysconfig.get_path("stdlib"))
        return _corpus("the Python library", root, _library_files(root), section, progress)
    path = place_of(section.source)
    if path.is_file():
        if not data_suffix(path.name):
            cause = f"data.source = {section.source}: not a .txt, .jsonl, .json or .parquet file"
            fix = "use one of these, .md, .rst, .py, .csv, .tsv, their .gz or .zst, or a folder"
            raise RecipeError(cause, fix=fix)
        return _corpus(str(path), path.parent, [path], section, progress)
    if path.is_dir():
        root = _split(path, section.split)
        files, left_out = _data_files(root, section)
        return _corpus(str(path), root, files, section, progress, left_out)
    cause = f"data.source = {section.source}: no such file or folder"
    raise RecipeError(cause, fix=f'use a path that exists on every node, or "{PYTHON_LIBRARY}"')


def _joined(section: DataSection, progress: ProgressWriter) -> Corpus:
    """Join the corpora of several sources, one after another."""
    found = [read_corpus(section.of_path(one.path), progress) for one in section.sources]
    digest = hashlib.sha256("\0".join(one.digest for one in found).encode())
    return Corpus(
        description="; ".join(one.description for one in found),
        digest=digest.hexdigest(),
        files=tuple(path for one in found for path in one.files),
        section=section,
        parts=tuple(len(one.files) for one in found),
    )


def _split(path: Path, split: str) -> Path:
    """Return the folder of a split, in a dataset that has several."""
    if not (path / "dataset_dict.json").is_file():
        return path
    if not (path / split).is_dir():
        known = ", ".join(sorted(one.name for one in path.iterdir() if one.is_dir()))
        raise RecipeError(f"data.split = {split}: not in {path}", fix=f"use one of {known}")
    return path / split


def _data_files(root: Path, section: DataSection) -> tuple[list[Path], LeftOut]:
    """Return the files of a folder to read, and which others are left out."""
    if (root / "dataset_info.json").is_file():
        return sorted(root.rglob("*.arrow")), {}  # the .json files next to them are metadata
    suffixes = DATA_FILES - TEXT_FILES if section.format == "chat" else DATA_FILES
    there = [(one, one.relative_to(root)) for one in sorted(root.rglob("*")) if one.is_file()]
    has_rows = any(
        data_suffix(one.name) not in TEXT_FILES | {""} and one.name not in _ABOUT
        for one, below in there
        if not _is_hidden(below)
    )
    files: list[Path] = []
    left_out: LeftOut = {}
    for one, below in there:
        is_data = data_suffix(one.name) in suffixes
        if _is_hidden(below):
            why = "hidden" if is_data else None  # .git alone has hundreds of others
        elif has_rows and one.name.lower() in _ABOUT:
            why = "about the data"
        elif not is_data:
            why = "in an unsupported format"
        else:
            files.append(one)
            continue
        if why is not None:
            left_out.setdefault(why, []).append(below.as_posix())
    return files, left_out


def _is_hidden(below: Path) -> bool:
    """Whether a path below the source has a hidden file or folder in it."""
    return any(part.startswith(".") for part in below.parts) or any(
        part.startswith("__") for part in below.parts[:-1]
    )


def _library_files(root: Path) -> list[Path]:
    def belongs(name: str) -> bool:
        return name not in _LIBRARY_LEFT_OUT and not name.startswith(_MACHINE_PREFIXES)

    found: list[Path] = []
    for directory, below, names in os.walk(root):
        below[:] = filter(belongs, below)  # installed packages have far more files than the library
        here = Path(directory)
        found += (here / name for name in names if name.endswith(".py") and belongs(name))
    return sorted(path for path in found if not path.is_symlink())


def _corpus(
    name: str,
    root: Path,
    files: list[Path],
    section: DataSection,
    progress: ProgressWriter,
    known: LeftOut | None = None,
) -> Corpus:
    digest = hashlib.sha256()
    kept: list[Path] = []
    by_content: dict[bytes, list[str]] = {}
    left_out = {} if known is None else dict(known)
    tally = Tally(progress, "reading the text", _size_bytes(files), "B")
    for path in files:
        size, below = path.stat().st_size, path.relative_to(root).as_posix()
        tally.add(size)
        is_text, why = data_suffix(path.name) in TEXT_FILES, None
        if not size and not is_text:
            why = "empty"
        elif is_text and not is_utf_8(path):
            why = "not UTF-8"
        if why is not None:
            left_out.setdefault(why, []).append(below)
            continue
        kept.append(path)
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        by_content.setdefault(content, []).append(below)
        digest.update(f"{below}\0{size}\0".encode() + content)
    tally.end()
    if not _size_bytes(kept):
        what = "empty" if files and not _size_bytes(files) else "contains no UTF-8 text"
        cause = f"data.source = {section.source}: {what}"
        fix = "give a folder with .txt, .jsonl or .parquet files, or such a file"
        if section.format == "chat":
            fix = 'give conversations in .jsonl or .parquet files, or data.format = "text"'
        raise RecipeError(cause, fix=fix)
    digest.update(f"{section.format}\0{section.text_field}".encode())
    roles = sorted(section.roles.by_name().items())
    digest.update("".join(f"\0{name}={role}" for name, role in roles).encode())
    description = f"{name}, {len(kept)} file{'s' * (len(kept) > 1)}"
    for why, names in left_out.items():
        description += f"; {len(names)} left out, which are {why}: {some_of(names)}"
    description += _repeated(by_content.values())
    if held := _held_out([path.relative_to(root) for path in kept]):
        description += f"; also trained on: {some_of(held)}"
    return Corpus(
        description=description, digest=digest.hexdigest(), files=tuple(kept), section=section
    )


def _repeated(by_content: Iterable[Sequence[str]]) -> str:
    """Describe files with identical content, which are rarely meant to be trained on twice."""
    return "".join(
        f"; {len(alike)} files are the same, all trained on: {some_of(alike)}"
        for alike in by_content
        if len(alike) > 1
    )


def _held_out(files: Sequence[Path]) -> list[str]:
    """Return files that are named as held out, if others are named as training files."""
    if not any(_TRAINED.match(part) for one in files for part in one.parts):
        return []
    return [one.as_posix() for one in files if any(map(_EVALUATED.match, one.parts))]


def _size_bytes(files: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _document(row: SourceRow, section: DataSection, source: int) -> Located:
    if row.error is not None:
        raise row.error
    if section.format == "chat":
        messages = messages_of(row.fields, row.where, section.roles.by_name())
        return Located(messages, row.where, tools_of(row.fields, row.where), source)
    text = row.fields.get(section.text_field)
    if section.text_field in row.fields and not isinstance(text, str):
        raise RowError(
            row.where,
            f'field "{section.text_field}" is not text',
            detail=f" but {str(text)[:40]}" if text is not None else ": it has no value",
            fix="write it as text, or remove that row",
        )
    if not isinstance(text, str):
        known = ", ".join(row.fields) or "no fields"
        fix = f"set data.text_field to one of its fields: {known}"
        raise RowError(row.where, f'no text in field "{section.text_field}"', fix=fix)
    return Located(text, row.where, source=source)

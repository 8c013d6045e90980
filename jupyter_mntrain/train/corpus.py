"""Text to train on: read in a fixed order, hashed, the same on every node or refused."""

from __future__ import annotations

import hashlib
import json
import sysconfig
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.telemetry.progress import Progress, Tally, unwatched
from jupyter_mntrain.train.sections import PYTHON_LIBRARY, DataSection

_TEXT = frozenset({".txt", ".md", ".rst", ".py"})
_LIBRARY_LEFT_OUT = frozenset(
    {
        # Not part of the library, or not the same on two machines with the same Python.
        *("site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"),
        # Distributions ship these apart: two nodes may differ in what is installed.
        *("ensurepip", "idlelib", "lib2to3", "distutils", "tkinter", "turtledemo"),
    }
)
_MACHINE_PREFIXES = ("config-", "_sysconfigdata")
"""Written when Python is built, with the paths of that machine."""


class Documents(Protocol):
    """Reads the documents again, in the same order each time."""

    def __call__(self, *, progress: Progress = ..., what: str = ...) -> Iterator[str]:
        """The text of each; ``progress`` hears under the name ``what`` of the bytes read."""


class Corpus(Record, frozen=True):
    """Where the text is, and a hash over the names and contents of all of it."""

    description: str
    digest: str
    documents: Documents


def read_corpus(section: DataSection, progress: Progress = unwatched) -> Corpus:
    """Find and hash the recipe's text.

    Raises:
        RecipeError: nothing there, nothing readable, or a line of .jsonl without the field.
    """
    if section.source == PYTHON_LIBRARY:
        root = Path(sysconfig.get_path("stdlib"))
        return _corpus("the Python library", root, _library_files(root), section, progress)
    path = Path(section.source).expanduser()
    if path.is_file():
        if path.suffix not in _TEXT | {".jsonl"}:
            cause = f"data.source = {section.source}: not a .txt or .jsonl file"
            raise RecipeError(cause, fix="give a folder, a .txt or a .jsonl file")
        return _corpus(str(path), path.parent, [path], section, progress)
    if path.is_dir():
        files = sorted(f for f in path.rglob("*") if f.suffix in _TEXT | {".jsonl"} and f.is_file())
        return _corpus(str(path), path, files, section, progress)
    cause = f"data.source = {section.source}: no such file or folder"
    raise RecipeError(cause, fix=f'give a path that exists here, or "{PYTHON_LIBRARY}"')


def _library_files(root: Path) -> list[Path]:
    def belongs(path: Path) -> bool:
        parts = path.relative_to(root).parts
        is_left_out = any(p in _LIBRARY_LEFT_OUT or p.startswith(_MACHINE_PREFIXES) for p in parts)
        return not is_left_out and not path.is_symlink()

    return sorted(path for path in root.rglob("*.py") if belongs(path))


def _corpus(
    name: str, root: Path, files: list[Path], section: DataSection, progress: Progress
) -> Corpus:
    digest = hashlib.sha256()
    kept: list[Path] = []
    tally = Tally(progress, "reading the text", _size_bytes(files), "B")
    for path in files:
        content = path.read_bytes()
        tally.add(len(content))
        try:
            content.decode("utf-8")
        except UnicodeDecodeError:
            if path.suffix == ".jsonl":
                raise RecipeError(f"{path} is not UTF-8 text", fix="save it as UTF-8") from None
            continue
        kept.append(path)
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    tally.end()
    if not _size_bytes(kept):
        cause = f"data.source = {section.source}: no UTF-8 text in it"
        raise RecipeError(cause, fix="give a folder with .txt or .jsonl files, or such a file")
    digest.update(section.text_field.encode())
    return Corpus(
        description=f"{name}, {len(kept)} files",
        digest=digest.hexdigest(),
        documents=partial(_documents, kept, section.text_field),
    )


def _size_bytes(files: list[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _documents(
    files: list[Path],
    text_field: str,
    *,
    progress: Progress = unwatched,
    what: str = "reading the text",
) -> Iterator[str]:
    tally = Tally(progress, what, _size_bytes(files), "B")
    for path in files:
        if path.suffix == ".jsonl":
            yield from _lines(path, text_field, tally)
        else:
            yield path.read_text(encoding="utf-8")
            tally.add(path.stat().st_size)
    tally.end()


def _lines(path: Path, text_field: str, tally: Tally) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            tally.add(len(line.encode()))
            if not line.strip():
                continue
            where = f"{path} line {number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise RecipeError(f"{where}: not JSON: {error.msg}", fix="repair it") from None
            text = row.get(text_field) if isinstance(row, dict) else None
            if not isinstance(text, str):
                known = ", ".join(row) if isinstance(row, dict) else "no fields"
                cause = f'{where}: no text in field "{text_field}"'
                raise RecipeError(cause, fix=f"set data.text_field; the line has {known}")
            yield text

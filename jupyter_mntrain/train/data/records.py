"""Data records: rows of text, JSON lines, Parquet and saved datasets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parts.data import TEXT_FILES

_TABLES = frozenset({".parquet", ".arrow"})


class SourceRow(NamedTuple):
    """One record of a file.

    Args:
        where: file and line or row, for messages.
        size_bytes: its approximate share of the file, for progress.
    """

    fields: Mapping[str, Any]
    where: str
    size_bytes: float


def read_rows(path: Path, text_field: str) -> Iterator[SourceRow]:
    """Yield all records of a file, in order.

    Args:
        text_field: name given to the one field of a text file.

    Raises:
        RecipeError: its content does not match its suffix.
    """
    if path.suffix in TEXT_FILES:
        size = path.stat().st_size
        yield SourceRow({text_field: path.read_text(encoding="utf-8")}, str(path), size)
        return
    readers: dict[str, Callable[[Path], Iterator[SourceRow]]] = {".jsonl": _lines, ".json": _list}
    yield from readers.get(path.suffix, _table)(path)


def is_text(path: Path) -> bool:
    """Whether the file should contain UTF-8 text."""
    return path.suffix not in _TABLES


def _lines(path: Path) -> Iterator[SourceRow]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            where, size = f"{path} line {number}", len(line.encode())
            if line.strip():
                yield SourceRow(_object(_decoded(line, where), where), where, size)


def _list(path: Path) -> Iterator[SourceRow]:
    content = path.read_text(encoding="utf-8")
    values = _decoded(content, str(path))
    if not isinstance(values, list):
        raise RecipeError(f"{path} is not a list of objects", fix="write [{…}, {…}], or .jsonl")
    for number, value in enumerate(values, start=1):
        where = f"{path} entry {number}"
        yield SourceRow(_object(value, where), where, path.stat().st_size / len(values))


def _decoded(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise RecipeError(f"{where}: not JSON: {error.msg}", fix="repair it") from None


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RecipeError(f"{where}: not an object with fields", fix='write {"text": "…"}')
    return value


def _table(path: Path) -> Iterator[SourceRow]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise RecipeError(
            f"{path}: reading it needs pyarrow", fix='pip install "jupyter-mntrain[data]"'
        ) from None
    number, size = 0, path.stat().st_size
    try:
        if path.suffix == ".parquet":
            table = pq.ParquetFile(path)
            batches, rows = table.iter_batches(), table.metadata.num_rows
        else:
            with pa.memory_map(str(path)) as mapped:
                opened = pa.ipc.open_stream(mapped).read_all()
            batches, rows = opened.to_batches(), opened.num_rows
        for batch in batches:
            for fields in batch.to_pylist():
                number += 1
                yield SourceRow(fields, f"{path} row {number}", size / max(1, rows))
    except pa.ArrowInvalid as error:
        raise RecipeError(f"{path} cannot be read: {error}", fix="copy the file again") from None

"""Data records: rows of text, JSON lines, Parquet and saved datasets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.foreign import is_unicode
from jupyter_mntrain.recipe.parts.data import TEXT_FILES
from jupyter_mntrain.train.data.bad_rows import RowError


class SourceRow(NamedTuple):
    """One record of a file.

    Args:
        where: file and line or row, for messages.
        size_bytes: its approximate share of the file, for progress.
        error: why it has no fields.
    """

    fields: Mapping[str, Any]
    where: str
    size_bytes: float
    error: RowError | None = None


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


def _lines(path: Path) -> Iterator[SourceRow]:
    with path.open(encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where, size = f"{path} line {number}", len(line.encode(errors="surrogateescape"))
            try:
                value = _decoded(line, where)
            except RowError as error:
                yield SourceRow({}, where, size, error)
            else:
                yield _row(value, where, size)


def _list(path: Path) -> Iterator[SourceRow]:
    values = _decoded(path.read_text(encoding="utf-8", errors="surrogateescape"), str(path))
    if not isinstance(values, list):
        raise RecipeError(f"{path} is not a list of objects", fix="write [{…}, {…}], or .jsonl")
    for number, value in enumerate(values, start=1):
        yield _row(value, f"{path} entry {number}", path.stat().st_size / len(values))


def _row(value: Any, where: str, size: float) -> SourceRow:
    if isinstance(value, dict):
        return SourceRow(value, where, size)
    error = RowError(where, "not an object with fields", fix='write {"text": "…"}')
    return SourceRow({}, where, size, error)


def _decoded(text: str, where: str) -> Any:
    if not is_unicode(text):
        raise RowError(where, "not UTF-8 text", fix="save it as UTF-8")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise RowError(where, "not JSON", detail=f": {error.msg}", fix="repair it") from None
    except RecursionError:
        raise RowError(where, "JSON that is nested too deeply", fix="write it flat") from None


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

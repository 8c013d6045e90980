"""Data records: rows of text, JSON, CSV, Parquet and saved datasets."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.foreign import is_unicode
from jupyter_mntrain.recipe.parts.data import TEXT_FILES, data_suffix
from jupyter_mntrain.train.data.bad_rows import RowError
from jupyter_mntrain.train.data.opening import needs_pyarrow, open_text, unreadable

_LONGEST_FIELD = 2**31 - 1
"""Characters of a CSV field; Python's default ends at 128 KiB, and texts do not."""
_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")
"""Its byte order marks, read as UTF-8."""


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
    kind = data_suffix(path.name)
    if kind in TEXT_FILES:
        with open_text(path, errors="strict") as (file, _):
            yield SourceRow({text_field: file.read()}, str(path), path.stat().st_size)
        return
    readers: dict[str, Callable[[Path], Iterator[SourceRow]]] = {
        ".jsonl": _lines,
        ".ndjson": _lines,
        ".json": _list,
        ".csv": _columns,
        ".tsv": _columns,
    }
    yield from readers.get(kind, _table)(path)


def _lines(path: Path) -> Iterator[SourceRow]:
    with open_text(path) as (file, took):
        for number, line in enumerate(file, start=1):
            if number == 1:
                _refuse_utf_16(path, line)
            if not line.strip():
                continue
            where, size = f"{path} line {number}", took(line)
            try:
                value = _decoded(line, where)
            except RowError as error:
                yield SourceRow({}, where, size, error)
            else:
                yield _row(value, where, size)


def _list(path: Path) -> Iterator[SourceRow]:
    with open_text(path) as (file, _):
        text = file.read()
    _refuse_utf_16(path, text)
    try:
        values = _decoded(text, str(path))
    except RowError:
        first, _, rest = text.lstrip().partition("\n")
        if not (rest.strip() and _is_object(first)):
            raise
        del text, rest
        yield from _lines(path)  # many call such a file .json, too
        return
    if not isinstance(values, list):
        raise RecipeError(f"{path} is not a list of objects", fix="write [{…}, {…}], or .jsonl")
    for number, value in enumerate(values, start=1):
        yield _row(value, f"{path} entry {number}", path.stat().st_size / len(values))


def _columns(path: Path) -> Iterator[SourceRow]:
    """Rows of a .csv or .tsv file, whose first line names the fields."""
    delimiter = "\t" if data_suffix(path.name) == ".tsv" else ","
    csv.field_size_limit(_LONGEST_FIELD)  # of the whole process: Python has no other
    with open_text(path, newline="") as (file, took):
        reader = csv.DictReader(file, delimiter=delimiter, strict=True)
        try:
            _refuse_names(path, reader.fieldnames or ())
            for values in reader:
                where = f"{path} line {reader.line_num}"
                fields = {name: value for name, value in values.items() if value is not None}
                error = None
                if len(fields) < len(values) or None in values:
                    fix = 'give each row a value for each name of the first line, like "" for none'
                    error = RowError(where, "more or fewer fields than the first line", fix=fix)
                text = delimiter.join(map(str, fields.values()))
                if not is_unicode(text):
                    error = RowError(where, "not UTF-8 text", fix="save it as UTF-8")
                yield SourceRow(fields, where, took(text), error)
        except csv.Error as problem:
            cause = f"{path} line {reader.reader.line_num}: not CSV: {problem}"
            raise RecipeError(cause, fix="repair its quotes") from None


def _refuse_names(path: Path, names: Sequence[str]) -> None:
    """Check the first line of a table.

    Raises:
        RecipeError: two columns have one name, or the fields are not separated as they must be.
    """
    _refuse_utf_16(path, "".join(names[:1]))
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        cause = f'{path}: two of its columns are called "{twice}"'
        raise RecipeError(cause, fix="give each column a name of its own in the first line")
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        cause = f"{path}: its fields are not separated by commas"
        raise RecipeError(cause, fix="save it with commas, or with tabs as .tsv")


def _refuse_utf_16(path: Path, start: str) -> None:
    if start.startswith(_UTF_16):
        fix = f"save it as UTF-8: iconv -f UTF-16 -t UTF-8 {path.name}"
        raise RecipeError(f"{path} is UTF-16, not UTF-8", fix=fix)


def _is_object(line: str) -> bool:
    try:
        return isinstance(_decoded(line, ""), dict)
    except RowError:
        return False


def _row(value: Any, where: str, size: float) -> SourceRow:
    if isinstance(value, dict):
        return SourceRow(value, where, size)
    fix = 'write {"text": "…"}, each on a line of its own, or [{…}, {…}] in a .json file'
    error = RowError(where, "not an object with fields", fix=fix)
    return SourceRow({}, where, size, error)


def _decoded(text: str, where: str) -> Any:
    if not is_unicode(text):
        raise RowError(where, "not UTF-8 text", fix="save it as UTF-8")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        fix = "repair it: .jsonl has an object on each line, .json one list of objects"
        raise RowError(where, "not JSON", detail=f": {error.msg}", fix=fix) from None
    except RecursionError:
        raise RowError(where, "JSON that is nested too deeply", fix="write it flat") from None


def _table(path: Path) -> Iterator[SourceRow]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise needs_pyarrow(path) from None
    number, size = 0, path.stat().st_size
    try:
        if data_suffix(path.name) == ".parquet":
            table = pq.ParquetFile(path)
            batches, rows = table.iter_batches(), table.metadata.num_rows
        else:
            with pa.memory_map(str(path)) as mapped:
                opened = pa.ipc.open_stream(mapped).read_all()
            batches, rows = opened.to_batches(), opened.num_rows
        for batch in batches:
            for fields in batch.to_pylist():
                number += 1
                present = {name: _without_none(value) for name, value in fields.items()}
                yield SourceRow(present, f"{path} row {number}", size / max(1, rows))
    except pa.ArrowException as error:
        raise unreadable(path, error) from None


def _without_none(value: Any) -> Any:
    """Nested fields that have a value: a table gives each object those of all others, too."""
    if isinstance(value, dict):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    return list(map(_without_none, value)) if isinstance(value, list) else value

"""Records: rows of text, JSON, CSV, Parquet and saved datasets, with errors for unusable ones."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO

from jupyter_mntrain.launch.files.data_files import COMPRESSIONS, TEXT_FILES, data_suffix
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.brief import some_of
from jupyter_mntrain.model.text.foreign import is_unicode
from jupyter_mntrain.recipe.sections import DataSection

# Opening: text files, compressed or not, read piece by piece.


_PIECE_CHARACTERS = 1 << 20


@contextmanager
def open_text(
    path: Path, *, errors: str = "surrogateescape", newline: str | None = None
) -> Iterator[tuple[TextIO, Callable[[str], int]]]:
    """Open a file of UTF-8 text, with or without a byte order mark.

    Args:
        errors: what becomes of bytes that are not UTF-8; by default half surrogate pairs.

    Yields:
        The file, and a function that tells for a text just read how many bytes of the file on disk
        it took: of a compressed file in steps of its blocks.

    Raises:
        RecipeError: it cannot be decompressed.
    """
    with ExitStack() as stack:
        raw = stack.enter_context(path.open("rb"))
        stream, upto = _decompressed(path, raw), 0

        def took(text: str) -> int:
            nonlocal upto
            if stream is raw:
                return len(text.encode(errors="surrogateescape"))
            before, upto = upto, raw.tell()
            return upto - before

        file = io.TextIOWrapper(stream, encoding="utf-8-sig", errors=errors, newline=newline)
        try:
            yield stack.enter_context(file), took
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise unreadable(path, error) from None
        except OSError as error:
            if path.suffix.lower() not in COMPRESSIONS:
                raise
            raise unreadable(path, error) from None


def unreadable(path: Path, error: Exception) -> RecipeError:
    """Return the error for a damaged file."""
    return RecipeError(f"{path} cannot be read: {error}", fix="copy the file again")


def needs_pyarrow(path: Path) -> RecipeError:
    return RecipeError(
        f"{path}: reading it needs pyarrow", fix='pip install "jupyter-mntrain[data]"'
    )


def is_utf_8(path: Path) -> bool:
    """Whether a whole text file is UTF-8."""
    try:
        with open_text(path, errors="strict") as (file, _):
            while file.read(_PIECE_CHARACTERS):
                pass
    except UnicodeDecodeError:
        return False
    return True


def _decompressed(path: Path, raw: IO[bytes]) -> IO[bytes]:
    match path.suffix.lower():
        case ".gz":
            return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]  # except for its name
        case ".zst":
            try:
                import pyarrow as pa
            except ImportError:
                raise needs_pyarrow(path) from None
            stream: IO[bytes] = pa.CompressedInputStream(pa.PythonFile(raw), "zstd")
            return stream
        case _:
            return raw


# Bad rows: records that cannot be trained on, refused together or left out and counted.


_MOST_REFUSED = 1000
"""Bad rows after which reading stops if none are allowed: most likely all are bad."""
_EXAMPLES = 3
_MOST_KINDS = 5


class RowError(RecipeError):
    """A record that cannot be trained on, although others of its file may be fine.

    Args:
        where: file and row.
        what: what is wrong with it: the same words for each row of this kind.
        detail: what differs from row to row.
    """

    def __init__(self, where: str, what: str, *, fix: str, detail: str = "") -> None:
        self.where, self.what, self.detail = where, what, detail
        super().__init__(f"{where}: {what}{detail}", fix=fix)


class SkippedRows(Record, frozen=True):
    """Rows that were left out for one reason.

    Args:
        what: the reason.
        examples: where the first of them are.
    """

    what: str
    count: int
    examples: tuple[str, ...]


class BadRows:
    """The bad rows of one pass over the data, by kind.

    Attributes:
        rows: number of rows read so far, bad ones included.
    """

    def __init__(self, section: DataSection) -> None:
        self._section = section
        self._kinds: dict[str, list[RowError]] = {}
        self._counts: dict[str, int] = {}
        self.rows = 0

    @property
    def skips(self) -> bool:
        return self._section.on_bad_rows == "skip"

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    @property
    def gives_up(self) -> bool:
        """Whether to stop reading, because it would only find more bad rows."""
        return not self.skips and self.count >= _MOST_REFUSED

    def add(self, error: RowError) -> None:
        examples = self._kinds.setdefault(error.what, [])
        if len(examples) < _EXAMPLES:
            examples.append(error)
        self._counts[error.what] = self._counts.get(error.what, 0) + 1

    def skipped(self) -> tuple[SkippedRows, ...]:
        """Return what was left out, the most frequent kind first."""
        return tuple(
            SkippedRows(what, self._counts[what], tuple(one.where for one in self._kinds[what]))
            for what in self._ordered()
        )

    def finish(self) -> None:
        """Finish the pass.

        Raises:
            RecipeError: rows are bad and none may be, or more than may be: all kinds in one line.
        """
        count, limit = self.count, self._section.bad_rows_limit
        if not count or (self.skips and count <= limit * self.rows):
            return
        kinds = self._ordered()
        cause = "; ".join(map(self._shown, kinds[:_MOST_KINDS]))
        if len(kinds) > _MOST_KINDS:
            cause += f"; and {len(kinds) - _MOST_KINDS} more kinds"
        if count > 1:
            more = " or more" if self.gives_up else ""
            cause += f"; {count}{more} of {self.rows} rows cannot be trained on"
        fixes = dict.fromkeys(self._kinds[what][0].fix for what in kinds[:_MOST_KINDS])
        otherwise = 'set data.on_bad_rows = "skip"'
        if self.skips:
            cause += f", more than data.bad_rows_limit = {limit:g} allows"
            otherwise = "raise data.bad_rows_limit"
        raise RecipeError(cause, fix=f"{'; '.join(fixes)}; or {otherwise}")

    def _ordered(self) -> list[str]:
        return sorted(self._counts, key=lambda what: -self._counts[what])

    def _shown(self, what: str) -> str:
        first, *others = self._kinds[what]
        left = self._counts[what] - 1
        if not left:
            return first.cause
        return f"{first.cause} (and {left} more: {some_of([one.where for one in others], left)})"


# Data records: rows of text, JSON, CSV, Parquet and saved datasets.


_LONGEST_FIELD = 2**31 - 1
"""Maximum length of a CSV field; Python's default of 128 KiB is too short for texts."""
_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")
"""The byte order marks of UTF-16, decoded as UTF-8."""


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
    """Yield the rows of a .csv or .tsv file, whose first line names the fields."""
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
    """Check the header of a table.

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
    """Remove nested fields without a value, since a table gives each object the fields of all."""
    if isinstance(value, dict):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    return list(map(_without_none, value)) if isinstance(value, list) else value

"""Opening: text files, compressed or not, read piece by piece."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TextIO

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parts.data import COMPRESSIONS

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
    """Of a file that is damaged."""
    return RecipeError(f"{path} cannot be read: {error}", fix="copy the file again")


def needs_pyarrow(path: Path) -> RecipeError:
    return RecipeError(
        f"{path}: reading it needs pyarrow", fix='pip install "jupyter-mntrain[data]"'
    )


def is_utf_8(path: Path) -> bool:
    """Whether a file of text is UTF-8 to its end."""
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
            return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]  # but for its name
        case ".zst":
            try:
                import pyarrow as pa
            except ImportError:
                raise needs_pyarrow(path) from None
            stream: IO[bytes] = pa.CompressedInputStream(pa.PythonFile(raw), "zstd")
            return stream
        case _:
            return raw

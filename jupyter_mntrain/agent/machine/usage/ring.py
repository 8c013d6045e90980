"""Ring: the newest rows of a series in a file of a fixed size, each at the place of its time."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path

from jupyter_mntrain.metrics.thinned.blocks import Row, from_bytes, packed
from jupyter_mntrain.model.failure.system_errors import full_disk
from jupyter_mntrain.model.files import PRIVATE

FLOAT_BYTES = 8


class Ring:
    """Rows of floats, numbered by time: row ``n`` is of the ``n``-th interval since 1970.

    A row replaces the one of ``rows`` intervals before. Each has its number and a checksum with it:
    what was never written, is older, or is damaged is missing, and no other row suffers from it.
    Nothing is held in memory.

    Args:
        width: floats in a row.
        rows: that are kept.
    """

    def __init__(self, path: Path, width: int, rows: int) -> None:
        self._path = path
        self._rows = rows
        self._row_bytes = FLOAT_BYTES * (width + 2)

    def write(self, rows: Mapping[int, Row]) -> None:
        """Write rows by number.

        Raises:
            OSError: the disk is full, or fails.
        """
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, PRIVATE)
        try:
            for number, row in rows.items():
                content = packed([(float(number), *row)])
                content += packed([(float(zlib.crc32(content)),)])
                at = number % self._rows * self._row_bytes
                if os.pwrite(descriptor, content, at) < len(content):
                    raise full_disk(self._path)
        finally:
            os.close(descriptor)

    def read(self, begin: int, end: int) -> dict[int, Row]:
        """The rows from number ``begin`` to before ``end`` that there are.

        Raises:
            OSError: the disk fails.
        """
        found: dict[int, Row] = {}
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return found
        try:
            at = max(begin, end - self._rows)
            while at < end:
                place = at % self._rows
                count = min(end - at, self._rows - place)
                content = os.pread(descriptor, count * self._row_bytes, place * self._row_bytes)
                found.update(self._intact(content, at))
                at += count
        finally:
            os.close(descriptor)
        return found

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)

    def _intact(self, content: bytes, first: int) -> dict[int, Row]:
        found: dict[int, Row] = {}
        size = self._row_bytes
        for index in range(len(content) // size):
            row = content[index * size : (index + 1) * size]
            number, *values, checksum = from_bytes(row)
            if number == first + index and checksum == zlib.crc32(row[:-FLOAT_BYTES]):
                found[first + index] = tuple(values)
        return found

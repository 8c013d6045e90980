"""New whole lines of files that ranks append to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from jupyter_mntrain.model.metrics import Sample, sample_decoder

READ_BYTES = 1 << 20
"""At most per look and file; what is more comes with the next look."""


class MetricsTail:
    """Reads ``rank-*.ndjson`` of one attempt from where the journal stopped.

    Args:
        directory: the attempt's ``metrics``; need not exist yet.
        offsets: bytes already read per file name.
    """

    def __init__(self, directory: Path, offsets: dict[str, int]) -> None:
        self._directory = directory
        self._offsets = offsets

    def read(self) -> Iterator[tuple[str, int, Sample]]:
        """(file name, offset behind the line, sample) of every new whole line.

        A line a script wrote wrongly is skipped: one bad line must not blind us to the rest.
        """
        for path in sorted(self._directory.glob("rank-*.ndjson")):
            offset = self._offsets.get(path.name, 0)
            if path.stat().st_size == offset:
                continue
            with path.open("rb") as file:
                file.seek(offset)
                block = file.read(READ_BYTES)
            for line in block[: block.rfind(b"\n") + 1].splitlines(keepends=True):
                offset += len(line)
                self._offsets[path.name] = offset
                try:
                    sample = sample_decoder.decode(line)
                except msgspec.MsgspecError:
                    continue
                yield path.name, offset, sample

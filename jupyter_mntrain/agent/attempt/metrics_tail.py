"""Metrics tail: reads new complete lines from the files that ranks append to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.attempt.supervisor import next_data
from jupyter_mntrain.model.records.metrics import RankSample, RankStep

READ_BYTES = 1 << 20
"""No sample is that long: a line that does not end by then is skipped."""

PIECE_BYTES = 1 << 17
"""Read of a file at once, unless its next line is longer."""

LINES_PER_TURN = 256
"""Lines of a job's ranks that are read in one turn, before requests are answered: 256 take about
20 ms, and a rank that writes thousands per second must not keep the agent from its drivers."""

_decoder = msgspec.json.Decoder(RankSample)


def last_steps(path: Path) -> list[RankStep]:
    """Read the last steps of a rank, within :data:`PIECE_BYTES`; none if it wrote nothing."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - PIECE_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(msgspec.MsgspecError):  # the first one may be half a line
            found.append(_decoder.decode(line))
    return [one for one in found if isinstance(one, RankStep)]


class MetricsTail:
    """Reads ``rank-*.ndjson`` of one attempt, from where the journal stopped.

    Args:
        directory: the attempt's ``metrics``; need not exist yet.
        offsets: bytes already read per file name.
    """

    def __init__(self, directory: Path, offsets: dict[str, int]) -> None:
        self._directory = directory
        self._offsets = offsets

    def read(self) -> Iterator[tuple[str, int, RankSample]]:
        """Return (file name, offset after the line, sample) of new complete lines, in the order of
        each file. It returns at most :data:`LINES_PER_TURN`, so that a flood does not keep the
        agent from its other work; :meth:`has_more` says whether there are others.

        A line counts as read once the next one is requested: a caller that fails to store it gets
        it again. A malformed line is skipped, so that it does not hide the lines after it.
        """
        paths = sorted(self._directory.glob("rank-*.ndjson"))
        share = max(1, LINES_PER_TURN // max(1, len(paths)))  # no rank waits for another's flood
        for path in paths:
            block = self._new_bytes(path)
            whole = block[: block.rfind(b"\n") + 1]
            if not whole and len(block) == READ_BYTES:
                whole = block
            for line in islice(whole.splitlines(keepends=True), share):
                offset = self._offsets.get(path.name, 0) + len(line)
                with suppress(msgspec.MsgspecError):
                    yield path.name, offset, _decoder.decode(line)
                self._offsets[path.name] = offset

    def has_more(self) -> bool:
        """Return whether there is more to read."""
        blocks = map(self._new_bytes, self._directory.glob("rank-*.ndjson"))
        return any(b"\n" in block or len(block) == READ_BYTES for block in blocks)

    def _new_bytes(self, path: Path) -> bytes:
        offset = self._offsets.get(path.name, 0)
        try:
            if path.stat().st_size <= offset:
                return b""
            with path.open("rb") as file:
                # Bytes freed while no agent was running are lost.
                self._offsets[path.name] = next_data(file.fileno(), offset, path.stat().st_size)
                file.seek(self._offsets[path.name])
                piece = file.read(PIECE_BYTES)
                return piece if b"\n" in piece else piece + file.read(READ_BYTES - len(piece))
        except OSError:  # removed by the script; it may be created again
            return b""

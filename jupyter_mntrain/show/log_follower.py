"""Log follower: finds the new lines in successive tails of a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import LogLine


class LogFollower:
    """Compares each tail of a log with the previous one, node by node."""

    WINDOW_LINES: ClassVar[int] = 1000
    """Lines to ask for: more than a node's ranks print between two reads."""

    def __init__(self) -> None:
        self._seen: dict[str, list[LogLine]] = {}

    def news(self, tail: Sequence[LogLine]) -> list[LogLine]:
        """Return the lines of ``tail`` that were not in the previous one, ordered by time."""
        by_node: dict[str, list[LogLine]] = {}
        for line in tail:
            by_node.setdefault(line.node, []).append(line)
        news: list[LogLine] = []
        for node, lines in by_node.items():
            news += lines[_overlap(self._seen.get(node, []), lines) :]
            self._seen[node] = lines
        return sorted(news, key=lambda line: line.time_s or 0.0)


def _overlap(old: list[LogLine], new: list[LogLine]) -> int:
    """Return how many lines at the end of ``old`` are also the first lines of ``new``."""
    for start in range(max(0, len(old) - len(new)), len(old) + 1):
        size = len(old) - start
        if _printed(old[start:]) == _printed(new[:size]):
            return size
    return 0


def _printed(lines: Sequence[LogLine]) -> list[tuple[int | None, str]]:
    # Not the times: that of the last line is not final yet.
    return [(line.rank, line.text) for line in lines]

"""Log lines as text: each with its time, node and rank."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from jupyter_mntrain.model.text.foreign import shown_name, visible, without_color

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import LogLine

LAUNCHER_LINES = 10
"""Lines of each node's torchrun that are shown next to those of the ranks."""


def last_lines(lines: Sequence[LogLine], tail: int) -> list[LogLine]:
    """Return the last ``tail`` lines of ranks, then the last ones of each node's torchrun.

    Its report of a rank that failed would push all that the ranks said out of a tail. Where they
    said less, it has their room.
    """
    if not tail:
        return []
    ranks = [line for line in lines if line.rank is not None][-tail:]
    launchers: dict[str, list[LogLine]] = {}
    for line in lines:
        if line.rank is None:
            launchers.setdefault(line.node, []).append(line)
    room = max(LAUNCHER_LINES, (tail - len(ranks)) // max(1, len(launchers)))
    return [*ranks, *(line for own in launchers.values() for line in own[-min(room, tail) :])]


def log_text(lines: Sequence[LogLine], *, is_cut: bool = False) -> Group | Text:
    """Render log lines for a terminal or a cell. ANSI colors of the ranks are kept.

    Args:
        is_cut: there are more.
    """
    if not lines:
        return Text("no output yet", style="dim")
    more = "… there are more lines: --tail LINES shows more of them, --output FILE writes all"
    parts = [Text(more, style="dim")] if is_cut else []
    for line in lines:
        who = f"{shown_name(line.node)} {'torchrun' if line.rank is None else f'r{line.rank}'}"
        when = "" if line.time_s is None else f"{_local(line.time_s):%H:%M:%S} "
        text = Text.assemble((when, "dim"), (f"{who} │ ", "cyan"), no_wrap=True, overflow="ignore")
        parts.append(text.append_text(Text.from_ansi(visible(line.text, keeps_color=True))))
    return Group(*parts)


def written_line(line: LogLine) -> str:
    """Format a line of a log file: with date and tenths of a second, without colors."""
    who = "torchrun" if line.rank is None else f"rank {line.rank}"
    text = visible(without_color(line.text))
    return f"{_written_time(line.time_s)}[{shown_name(line.node)} {who}] {text}\n"


def _written_time(time_s: float | None) -> str:
    if time_s is None:
        return ""
    when = _local(time_s).replace(tzinfo=None)
    return f"{when.isoformat(' ', 'milliseconds')[:-2]} "


def _local(time_s: float) -> datetime:
    return datetime.fromtimestamp(time_s, UTC).astimezone()

"""Problems as text, for terminals, notebooks and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from rich.text import Text

from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.text.brief import some_of
from jupyter_mntrain.show import formats


def when_words(problem: Problem) -> str:
    """Say when a problem occurred and when its evidence was collected; empty if unknown."""
    times = [one for one in (problem.time_s, problem.seen_s) if one is not None]
    clocks = list(dict.fromkeys(map(formats.clock, times)))
    if problem.seen_s is None or len(clocks) < len(times):
        return f"at {clocks[0]}" if clocks else ""
    return ", ".join((*(f"since {one}" for one in clocks[:-1]), f"seen at {clocks[-1]}"))


def problem_text(
    problem: Problem, *, mark: str = "✕", style: str = "red", before: str = ""
) -> Text:
    """Return a mark, the place and cause in bold, and the fix.

    Args:
        before: prefix, like ``stalled for 12 s: ``.
    """
    text = Text(f"{mark} ", style=style)
    text.append(f"{before}{problem.headline}", style="bold default")
    return text.append(f" {problem.fix_line}", style="default") if problem.fix else text


def warning_texts(notes: Iterable[Problem]) -> Iterator[Text]:
    """Yield a line per warning; the same warning on several nodes is one line with their names."""
    nodes: dict[Problem, list[str]] = {}
    for note in notes:
        nodes.setdefault(
            msgspec.structs.replace(note, node=None, time_s=None, seen_s=None), []
        ).append(note.node or "")
    for note, names in nodes.items():
        where = some_of(list(filter(None, dict.fromkeys(names))))
        told = msgspec.structs.replace(note, node=where or None)
        yield problem_text(told, mark="⚠", style="yellow")

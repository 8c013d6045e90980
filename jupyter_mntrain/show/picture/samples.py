"""Text samples: the newest text that the model wrote for each prompt."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.metrics.summary import WrittenText
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.records.metrics import MOST_PROMPTS
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.picture.canvas import Canvas
from jupyter_mntrain.show.picture.theme import EDGE_PX, MEDIUM, SMALL, WIDTH_PX, Theme

MOST_LINES = 3

TITLE_PX = 26
LINE_PX = 17
GAP_PX = 7


class NewestText(Record, frozen=True):
    """One text sample, wrapped into lines that fit."""

    prompt: str
    step: str
    lines: tuple[str, ...]


def newest_texts(texts: Sequence[WrittenText]) -> list[WrittenText]:
    """Return the last text of each prompt, oldest first."""
    last: dict[str, WrittenText] = {}
    for one in texts:
        last.pop(one.prompt, None)
        last[one.prompt] = one
    return list(last.values())[-MOST_PROMPTS:]


def block_height(samples: Sequence[NewestText]) -> float:
    """Return the height of the samples in pixels; 0 without samples."""
    rows = sum(1 + len(one.lines) for one in samples)
    return TITLE_PX + rows * LINE_PX + len(samples) * GAP_PX if samples else 0


def paint_samples(canvas: Canvas, theme: Theme, samples: Sequence[NewestText], top: float) -> None:
    """Draw the samples, from ``top`` downward."""
    if not samples:
        return
    canvas.write(EDGE_PX, top + TITLE_PX / 2, "Samples", MEDIUM, theme.text, bold=True)
    y = top + TITLE_PX - LINE_PX / 2
    for one in samples:
        y += LINE_PX
        x = canvas.write(EDGE_PX, y, one.prompt, MEDIUM, theme.text, bold=True)
        canvas.write(x + 8, y, one.step, SMALL, theme.secondary)
        for line in one.lines:
            y += LINE_PX
            canvas.write(EDGE_PX, y, line, MEDIUM, theme.text)
        y += GAP_PX


def lay_out(canvas: Canvas, one: WrittenText) -> NewestText:
    """Wrap a text into at most :data:`MOST_LINES` lines, cut with an ellipsis."""
    room = WIDTH_PX - 2 * EDGE_PX
    step = f"step {formats.count(one.step)}"
    beside = room - 8 - canvas.width(step, SMALL, bold=False)
    lines = canvas.wrapped(one.text, room, MEDIUM, most=MOST_LINES + 1) or ["(empty)"]
    if len(lines) > MOST_LINES:
        cut = canvas.shortened(f"{lines[MOST_LINES - 1]}…", room, MEDIUM)
        lines = [*lines[: MOST_LINES - 1], cut]
    return NewestText(canvas.shortened(one.prompt, beside, MEDIUM, bold=True), step, tuple(lines))

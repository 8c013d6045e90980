"""Safe console: the boundary where text reaches a terminal, or a notebook as HTML.

Foreign text is cleaned here, wherever it comes from: see :mod:`jupyter_mntrain.model.text.foreign`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.protocol import rich_cast
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Span, Text

from jupyter_mntrain.model.text.foreign import LINE_LIMIT, shown, visible

_REVEALED: Final = Style(conceal=False)


class SafeConsole(Console):
    """Escapes control characters, and cuts very long lines.

    Only styles become control sequences. Links are left out: rich writes their address unescaped,
    and it may come from the log of a rank.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        made = rich_cast(renderable)
        if isinstance(made, str):
            made = self.render_str(made)
        if isinstance(made, Text):
            # Before it is wrapped: escapes take more room.
            made = safe_text(made)
        for segment in super().render(made, options):
            yield segment if segment.control else _safe_segment(segment)


def safe_text(text: Text) -> Text:
    """Return the text as it is displayed, with its styles."""
    if shown(text.plain) == text.plain:
        return text
    lines = (_cut(line) for line in text.split("\n", allow_blank=True))
    return Text("\n").join(map(_visible, lines))


def verbatim(text: str) -> Segments:
    """Return text as it is, without wrapping, cuts or tab stops, for output redirected to a file.

    Escape what a terminal would obey, so that it reads back unchanged: otherwise it is shown as
    other text is.
    """
    return Segments([Segment(text)])


def _cut(line: Text) -> Text:
    left_out = len(line) - LINE_LIMIT
    if left_out <= 0:
        return line
    return line[:LINE_LIMIT].append(f"… ({left_out:,} more characters)", style="dim")


def _visible(line: Text) -> Text:
    places = [0]
    pieces = []
    for at, char in enumerate(line.plain):
        # With the two before: whether a joiner is shown depends on them.
        before = line.plain[max(0, at - 2) : at]
        piece = visible(before + char)[len(visible(before)) :]
        pieces.append(piece)
        places.append(places[-1] + len(piece))
    made = line.blank_copy("".join(pieces))
    made.spans = [Span(places[s.start], places[s.end], s.style) for s in line.spans]
    return made


def _safe_segment(segment: Segment) -> Segment:
    text, style, _ = segment
    if style is not None and (style.link or style.conceal):
        style = style.update_link(None) + _REVEALED
    return Segment(visible(text), style)

"""MIME bundles that every frontend can display."""

from __future__ import annotations

import base64
import io
import re
from copy import copy
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.color_triplet import ColorTriplet
from rich.console import Console, RenderableType
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from jupyter_mntrain.metrics.page_entries import JOB_MIME, JobBundle
from jupyter_mntrain.model.text.foreign import shown_json
from jupyter_mntrain.show.safe_console import SafeConsole

PROGRAM = "%mntrain"
"""The command in a notebook."""

TEXT_WIDTH = 100
"""Columns that a 1400 pixel wide JupyterLab shows without a horizontal scroll bar."""

NARROW = 60
"""Columns of the narrowest page: longer sentences go on in the next line."""

PRE = (
    '<pre style="white-space:pre;overflow-x:auto;line-height:1.35;'
    'font-family:var(--jp-code-font-family,monospace)">'
)
HTML = f"{PRE}{{code}}</pre>"

LONG_LINE = (
    '<span style="white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere">{line}</span>'
)
"""A sentence goes on in the next line of the page, a command that is copied in none. By itself
JupyterLab would break words anywhere."""

_OF_TABLE = re.compile(r"\S {3,}\S|[─━]{2}")
"""A row with two columns, or the rule below a header: a wide table is scrolled, never wrapped."""

_DEFAULT = ColorTriplet(1, 2, 3)
"""Stands for the default color, which rich writes as black: unreadable on a dark page."""

_THEME = copy(DEFAULT_TERMINAL_THEME)
_THEME.foreground_color = _DEFAULT

Bundle = dict[str, Any]


def text_bundle(renderable: RenderableType) -> Bundle:
    """Render as HTML in the page's colors, and as plain text."""
    console = _printed(renderable)
    html = console.export_html(
        theme=_THEME, inline_styles=True, code_format=HTML, clear=False
    ).replace(f"color: {_DEFAULT.hex}", "color: inherit")
    text = console.export_text()
    return {"text/html": _with_long_lines(html, text), "text/plain": text.rstrip()}


def _with_long_lines(html: str, text: str) -> str:
    """Let the page wrap long lines of text, but not tables."""
    shown, said = html.split("\n"), text.split("\n")
    for at, (line, plain) in enumerate(zip(shown, said, strict=False)):
        is_closed = line.count("<span") == line.count("</span>")
        if cell_len(plain) > NARROW and is_closed and not _OF_TABLE.search(plain):
            head, opened, rest = line.rpartition(PRE) if at == 0 else ("", "", line)
            shown[at] = f"{head}{opened}{LONG_LINE.format(line=rest)}"
    return "\n".join(shown)


def plain_text(renderable: RenderableType) -> str:
    """Render as plain text."""
    return _printed(renderable).export_text().rstrip()


def picture_bundle(png: bytes, text: str) -> Bundle:
    """Return a PNG, with a text for front ends that show no pictures."""
    return {"image/png": base64.b64encode(png).decode(), "text/plain": text}


def job_bundle(bundle: JobBundle, text: str, png: bytes | None) -> Bundle:
    """Return job data for our extension, with picture and text for other front ends."""
    pictures = picture_bundle(png, text) if png else {"text/plain": text}
    return {JOB_MIME: _safe_data(bundle), **pictures}


def picture_metadata(width_px: int, text: str) -> dict[str, Any]:
    """Return the metadata of a PNG: its displayed width and its alternative text.

    The picture has more pixels than that, for high-density screens. nbconvert reads both.
    """
    return {"image/png": {"width": width_px, "alt": text}}


def _safe_data(bundle: JobBundle) -> Any:
    """Return the bundle as JSON data in which every string is safe to display."""
    encoded = msgspec.json.encode(bundle)
    safe = shown_json(encoded)
    return msgspec.to_builtins(bundle) if safe is encoded else msgspec.json.decode(safe)


def _printed(renderable: RenderableType) -> Console:
    # Neither a terminal nor rich's own Jupyter mode: it only records.
    console = SafeConsole(
        record=True,
        width=TEXT_WIDTH,
        file=io.StringIO(),
        force_terminal=True,
        force_jupyter=False,
        color_system="standard",
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(renderable, soft_wrap=True)
    return console

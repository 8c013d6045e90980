"""Display: MIME bundles that every frontend can show."""

from __future__ import annotations

import base64
import io
from typing import Any

import msgspec
from rich.console import Console, RenderableType

from jupyter_mntrain.metrics.page_entries import JOB_MIME, JobBundle

TEXT_WIDTH = 100
"""Columns: what a notebook in a 1400 pixel wide JupyterLab shows without scrolling sideways."""

HTML = (
    '<pre style="white-space:pre;overflow-x:auto;line-height:1.35;'
    'font-family:var(--jp-code-font-family,monospace)">{code}</pre>'
)

Bundle = dict[str, Any]


def text_bundle(renderable: RenderableType) -> Bundle:
    """A table as HTML, whose colors follow the page, and as plain text."""
    console = _recorder()
    console.print(renderable, soft_wrap=True)
    html = console.export_html(inline_styles=True, code_format=HTML, clear=False)
    return {"text/html": html, "text/plain": console.export_text().rstrip()}


def plain_text(renderable: RenderableType) -> str:
    """The same without colors."""
    console = _recorder()
    console.print(renderable, soft_wrap=True)
    return console.export_text().rstrip()


def picture_bundle(png: bytes, text: str) -> Bundle:
    """A picture, and what a frontend without pictures shows instead."""
    return {"image/png": base64.b64encode(png).decode(), "text/plain": text}


def job_bundle(bundle: JobBundle, text: str, png: bytes | None) -> Bundle:
    """A job for every page: numbers for the extension, a picture and words for the others."""
    pictures = picture_bundle(png, text) if png else {"text/plain": text}
    return {JOB_MIME: msgspec.to_builtins(bundle), **pictures}


def picture_metadata(width_px: int) -> dict[str, Any]:
    """Shown at this width although it has more dots: sharp on dense screens."""
    return {"image/png": {"width": width_px}}


def _recorder() -> Console:
    # Neither a terminal nor rich's own Jupyter mode: it only records.
    return Console(
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

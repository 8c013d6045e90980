"""Bundles: text in the page's own color, on a light page and on a dark one."""

from __future__ import annotations

from rich.text import Text

from jupyter_mntrain.show.bundles import text_bundle


def test_what_has_the_default_color_has_that_of_the_page() -> None:
    text = Text("● ", style="green").append("up", style="default")
    html = text_bundle(text)["text/html"]
    assert "color: #008000" in html
    assert "color: inherit" in html
    assert "#000000" not in html, "black on a dark page"

"""Bundles: text in the page's own color, on a light page and on a dark one."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from jupyter_mntrain.show.bundles import text_bundle


def test_what_has_the_default_color_has_that_of_the_page() -> None:
    text = Text("● ", style="green").append("up", style="default")
    html = text_bundle(text)["text/html"]
    assert "color: #008000" in html
    assert "color: inherit" in html
    assert "#000000" not in html, "black on a dark page"


def test_a_long_sentence_goes_on_in_the_next_line_and_a_table_does_not() -> None:
    table = Table("node", "state")
    table.add_row("n" * 70, "up")
    html = text_bundle(Group(table, Text("it is slower, " * 10, style="dim"), Text("up")))
    wrapped = [line for line in html["text/html"].splitlines() if "white-space:pre-wrap" in line]
    assert [line.count("it is slower") for line in wrapped] == [10]
    assert "it is slower, " * 9 in html["text/plain"], "and is copied as one"

"""Safe console: what text of others becomes on a terminal."""

from __future__ import annotations

import io

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from jupyter_mntrain.show.bundles import text_bundle
from jupyter_mntrain.show.safe_console import SafeConsole, safe_text, verbatim
from jupyter_mntrain.show.terminal import make_console
from tests.hostile import HOSTILE, LINK, STYLING, assert_safe


def printed(renderable: object, **settings: object) -> str:
    console = SafeConsole(file=io.StringIO(), width=60, **settings)  # type: ignore[arg-type]
    console.print(renderable, soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_programs_consoles_are_safe_ones() -> None:
    assert isinstance(make_console(), SafeConsole)
    assert isinstance(make_console(stderr=True), SafeConsole)


def test_text_is_safe_wherever_it_stands() -> None:
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(Text(HOSTILE, style="bold"))
    for one in (HOSTILE, Text(HOSTILE), Group(HOSTILE, table), verbatim(HOSTILE), table):
        assert_safe(printed(one))


def test_nothing_of_an_escaped_text_is_cut_off_in_a_table() -> None:
    cause = "\x1b[31m" * 5 + "the end"
    grid = Table.grid()
    grid.add_column(overflow="fold")
    grid.add_row(Text(cause))
    assert printed(grid).replace("\n", "").rstrip() == "\\x1b[31m" * 5 + "the end"


def test_styles_stay_where_they_were() -> None:
    text = Text.assemble(("a\x1b", "red"), ("b\u202e", "green"), "c")
    made = safe_text(text)
    assert made.plain == "a\\x1bb\\u202ec"
    assert [(made.plain[s.start : s.end], s.style) for s in made.spans] == [
        ("a\\x1b", "red"),
        ("b\\u202e", "green"),
    ]


def test_a_link_of_a_log_is_no_link() -> None:
    """rich writes its address unescaped, into terminals and pages."""
    linked = Text.from_ansi(f"{LINK}\x1b[8mhidden")
    assert any(getattr(span.style, "link", None) for span in linked.spans)
    out = printed(linked, force_terminal=True)
    assert_safe(STYLING.sub("", out))
    assert "\x1b[8m" not in out
    html = text_bundle(linked)["text/html"]
    assert "<a " not in html
    assert "<script" not in html
    file = io.StringIO()
    Console(file=file, force_terminal=True).print(linked)
    assert "\x1b]0;title" in file.getvalue(), "else this test shows nothing"

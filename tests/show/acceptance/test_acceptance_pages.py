"""A report in a terminal of 80 columns, as a page that needs nothing else, and as a notebook."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import nbformat
import pytest

from jupyter_mntrain.metrics.acceptance.acceptance_report import AcceptedNode
from jupyter_mntrain.show.acceptance.acceptance_notebook import (
    acceptance_notebook,
    plain_acceptance,
)
from jupyter_mntrain.show.acceptance.acceptance_page import acceptance_page
from tests.metrics.acceptance.observations import GOOD, NODES, bench, report
from tests.wording import says

NASTY = "<script>alert(1)</script>"


def hostile():
    nodes = (AcceptedNode(NASTY, "boot-1", 2, NASTY), NODES[1])
    return report(msgspec.structs.replace(GOOD, nodes=nodes), cluster=NASTY)


def test_a_terminal_shows_every_criterion_in_eighty_columns() -> None:
    bad = msgspec.structs.replace(GOOD, benchmark=bench(0.4))
    shown = plain_acceptance(report(bad))
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("✓") > 5
    assert shown.count("✕") == 2, "the criterion, and the count of them"
    assert "1,700" in shown
    assert "85" in shown


def test_a_run_that_was_interrupted_says_so() -> None:
    cut = report(is_whole=False)
    assert says("interrupted", plain_acceptance(cut))
    assert says("interrupted", acceptance_page(cut))


class Structure(HTMLParser):
    """Checks that tags are closed in order, and collects what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("made", [report(), hostile()])
def test_a_page_stands_alone_and_is_well_formed(made) -> None:
    page = Structure()
    page.feed(acceptance_page(made))
    page.close()
    assert page.open == []
    assert page.loads == []
    assert "script" not in page.seen
    assert page.seen.count("table") >= 4


def test_a_page_has_all_that_was_seen() -> None:
    page = acceptance_page(report())
    for word in ("1,700", "mntrain nodes", "RTX 3090", "64 MiB", "muthur"):
        assert word in page
    assert "prefers-color-scheme: dark" in page
    assert len(re.findall(r'<td class="verdict passed">', page)) == report().count("passed")


def test_the_notebook_opens_and_its_cells_show_the_same(tmp_path: Path) -> None:
    made = nbformat.reads(acceptance_notebook(report(), "done.json"), as_version=4)
    (tmp_path / "done.json").write_bytes(msgspec.json.encode(report()))
    cells = [one for one in made.cells if one.cell_type == "code"]
    scope: dict[str, object] = {}
    lines = cells[0].source.replace("'done.json'", repr(str(tmp_path / "done.json"))).splitlines()
    exec("\n".join([*lines[:-1], f"shown = {lines[-1]}"]), scope)
    assert scope["shown"].data == cells[0].outputs[0].data["text/html"]  # type: ignore[attr-defined]
    assert repr(eval(cells[1].source, scope)) == cells[1].outputs[0].data["text/plain"]

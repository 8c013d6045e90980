"""Website: what ``scripts/docs`` assembles. Sphinx itself runs in a job of its own."""

from __future__ import annotations

import base64
import json
from pathlib import Path, PurePosixPath

import pytest

from jupyter_mntrain.agent.http import MAY
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.tunables import SHIPPED
from jupyter_mntrain.verbs.table import TABLE
from scripts.releasing.refusal import Refusal
from scripts.website.assembly import Assembly, place
from scripts.website.loaded import check_loaded
from scripts.website.reference import REFERENCE
from scripts.website.sections import INDEX, sections
from tests.rows import has_rows_for

ROOT = Path(__file__).resolve().parents[1]
BADGE = '<a href="../../actions"><img alt="Checks" src="../../actions/badge.svg"></a>'
FOUND = sections((ROOT / INDEX).read_text())


def test_the_site_has_every_page_and_every_notebook_once() -> None:
    pages = [page for section in FOUND for page in section.pages]
    folders = [*(ROOT / "docs").glob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
    wanted = {PurePosixPath(path.relative_to(ROOT)) for path in folders} - {INDEX}
    has_rows_for(
        wanted, pages, "{} is on no page of the site: link it in a section of docs/README.md"
    )
    assert len({*map(place, pages)}) == len(pages), "listed twice, or two pages at one place"


def test_every_section_says_what_it_has() -> None:
    assert [section.title for section in FOUND if not section.summary.endswith(".")] == []


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    notebook = {
        "cells": [
            {
                "cell_type": "markdown",
                "attachments": {"plot.png": {"image/png": base64.b64encode(b"picture").decode()}},
                "source": ["![A plot](attachment:plot.png)\n", "[A page](../docs/one.md#here)"],
            }
        ]
    }
    files = {
        "README.md": f"# Ours\n\n{BADGE}\n\n[One](docs/one.md)\n\n## More\n\n[Two](docs/two.md)\n",
        "docs/README.md": "# All\n\n## One\n\nOne page.\n\n* [One](one.md)\n\n"
        "## Two\n\nSome pages.\n\n"
        "* [A notebook](../notebooks/a.ipynb)\n* [Changes](../CHANGELOG.md)\n",
        "docs/one.md": "# One\n\n"
        "[code](../ours/code.toml), [changes](../CHANGELOG.md), [x](#one)\n",
        "CHANGELOG.md": "# Changes\n\n[One](docs/one.md)\n",
        "ours/code.toml": "a = 1\n",
        "notebooks/a.ipynb": json.dumps(notebook),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_every_link_of_every_page_leads_to_a_file(tmp_path: Path) -> None:
    Assembly(ROOT, tmp_path).assemble({})
    assert (tmp_path / "index.md").is_file()


def test_links_lead_to_where_pages_are_on_the_site(repository: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    Assembly(repository, site).assemble({})
    one = (site / "one.md").read_text()
    assert "[code](files/ours/code.toml), [changes](project/changelog.md), [x](#one)" in one
    assert (site / "files/ours/code.toml").read_text() == "a = 1\n"
    assert "[One](../one.md)" in (site / "project/changelog.md").read_text()
    front = (site / "index.md").read_text()
    assert "[One](one.md)" in front
    assert "docs/two.md" not in front, "only the first screen"
    assert "<img" not in front, "no badge"
    assert {"One </one>", "Two </two/index>"} <= {*front.splitlines()}
    assert {"/tutorials/a", "/project/changelog"} <= {
        *(site / "two/index.md").read_text().splitlines()
    }


def test_a_picture_within_a_notebook_becomes_a_file(repository: Path, tmp_path: Path) -> None:
    Assembly(repository, tmp_path / "site").assemble({})
    (cell,) = json.loads((tmp_path / "site/tutorials/a.ipynb").read_text())["cells"]
    assert cell["source"] == ["![A plot](a_plot.png)\n", "[A page](../one.md#here)"]
    assert (tmp_path / "site/tutorials/a_plot.png").read_bytes() == b"picture"


def test_a_second_build_touches_what_has_changed_and_removes_what_is_gone(
    repository: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    Assembly(repository, site).assemble({"old.md": lambda: "old"})
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*.md")}
    (repository / "CHANGELOG.md").write_text("# Others\n")
    Assembly(repository, site).assemble({})
    after = {path: path.stat().st_mtime_ns for path in site.rglob("*.md")}
    assert {path.name for path in before.keys() - after.keys()} == {"old.md"}
    changed = {path.name for path in after if after[path] != before[path]}
    assert changed == {"changelog.md"}


def test_a_link_to_no_file_ends_the_build(repository: Path, tmp_path: Path) -> None:
    (repository / "docs/one.md").write_text("[code](../ours/gone.toml)")
    with pytest.raises(ValueError, match=r"gone\.toml"):
        Assembly(repository, tmp_path / "site").assemble({})


@pytest.mark.parametrize(
    "tag",
    [
        '<script async src="https://foreign.example/a.js"></script>',
        '<link href="//foreign.example/a.css" rel="stylesheet" />',
        '<img alt="" src="http://foreign.example/a.png">',
    ],
)
def test_a_page_that_loads_something_from_elsewhere_is_refused(tmp_path: Path, tag: str) -> None:
    (tmp_path / "page.html").write_text(f'<a href="https://foreign.example">told</a>{tag}')
    with pytest.raises(Refusal, match=r"foreign\.example"):
        check_loaded(tmp_path)


def test_a_page_that_only_links_elsewhere_is_fine(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<a href="https://foreign.example">told</a><img src="a">')
    check_loaded(tmp_path)


def test_the_reference_has_every_verb_kind_and_setting() -> None:
    pages = {name: written() for name, written in REFERENCE.items()}
    headings = {line for page in pages.values() for line in page.splitlines() if line[:1] == "#"}
    unwritten = "the site's reference has no heading '{}': scripts/website/reference/ writes it"
    has_rows_for({f"## {name}" for name in TABLE}, headings, unwritten)
    has_rows_for({f"### {kind.value}" for kind in Kind}, headings, unwritten)
    sections = [line for line in SHIPPED.read_text().splitlines() if line.startswith("[")]
    has_rows_for({f"## {line.strip('[]')}" for line in sections}, headings, unwritten)
    assert {"### JobEntry", "### Snapshot", "### Problem"} <= headings
    assert {"## Cluster", "## JobSpec"} <= headings
    assert "`MNTRAIN_CHECKPOINT_DIR`" in pages["variables.md"]
    assert pages["roles.md"].count("| masked |") == sum("viewer" in roles for roles in MAY.values())

"""Terms: the page's tooltips say what docs/glossary.md says."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from jupyter_mntrain.metrics.definitions import definitions
from jupyter_mntrain.metrics.summary import JobNumbers, RankSummary

ROOT = Path(__file__).resolve().parents[1]
TERM = re.compile(r"^    (?:'([^']+)'|(\w+)): trans\.__\(\s*'([^']*)'\s*\)", re.MULTILINE)


@functools.cache
def terms() -> dict[str, str]:
    text = (ROOT / "labextension/src/terms.tsx").read_text(encoding="utf-8")
    return {quoted or bare: meaning for quoted, bare, meaning in TERM.findall(text)}


@functools.cache
def glossary() -> dict[str, str]:
    """The rows of its tables, without Markdown, with the page's apostrophes."""
    rows: dict[str, str] = {}
    for line in (ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            word, meaning = line.strip("| ").split(" | ", 1)
            rows[word] = re.sub(r"[`*]", "", meaning).replace("'", "’")
    return rows


@pytest.mark.parametrize("word", terms())
def test_a_tooltip_says_what_the_glossary_says(word: str) -> None:
    row = glossary().get(word)
    assert row is not None, f"'{word}' has no row in docs/glossary.md: add it to its table"
    assert terms()[word] == row, "labextension/src/terms.tsx and docs/glossary.md differ"


def test_every_term_of_the_page_is_found() -> None:
    text = (ROOT / "labextension/src/terms.tsx").read_text(encoding="utf-8")
    assert len(terms()) == text.count("trans.__(") >= 10


@pytest.mark.parametrize("word", definitions())
def test_the_glossary_says_what_a_figure_is_defined_as(word: str) -> None:
    row = glossary().get(word)
    assert row == re.sub(r"[`*]", "", definitions()[word].meaning).replace("'", "’")


def test_every_defined_figure_is_one_that_a_job_has() -> None:
    fields = {*JobNumbers.__struct_fields__, *RankSummary.__struct_fields__}
    assert {one.field for one in definitions().values()} <= fields

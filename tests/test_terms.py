"""Terms: what figures are is said in the same words wherever somebody reads it."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest

from jupyter_mntrain.command_line.parser import HelpWanted
from jupyter_mntrain.metrics.definitions import definitions, meaning_of
from jupyter_mntrain.metrics.summary import JobNumbers, LinkSummary, RankSummary, Window
from jupyter_mntrain.model.records.metrics import ComparedTransfer
from jupyter_mntrain.train.reports.base import NUMBERS
from jupyter_mntrain.verbs.command import parse
from jupyter_mntrain.verbs.table import TABLE

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


SAID_WITH_ANOTHER = {
    "counts_padding", "first_not_finite_step", "missing", "not_finite", "skipped", "skipped_step",
    "slowest_rank",
}  # fmt: skip
"""Fields of JSON that are no figures of their own."""

OF_REPORTS = {"learning_rate", "grad_norm"}


def test_every_figure_of_a_job_is_defined_and_only_once() -> None:
    defined = [field for one in definitions().values() for field in one.fields]
    assert len(defined) == len(set(defined)), "a name means one thing"
    of_job = {*JobNumbers.__struct_fields__, *Window.__struct_fields__}
    assert of_job - set(defined) == SAID_WITH_ANOTHER
    records = (RankSummary, LinkSummary, ComparedTransfer)
    others = {name for one in records for name in one.__struct_fields__}
    assert set(defined) <= of_job | others | OF_REPORTS
    figures = {name for name in others if name.endswith(("_s", "_bytes"))}
    assert figures <= set(defined)


def test_reports_and_the_schema_say_what_the_definition_says() -> None:
    assert NUMBERS["train/tokens_per_s"] == meaning_of("tokens_per_s")
    assert NUMBERS["evaluation/loss"] == meaning_of("evaluation_loss")
    page = (ROOT / "labextension/src/schema.ts").read_text(encoding="utf-8")
    output = (ROOT / "docs/output.schema.json").read_text(encoding="utf-8")
    for one in definitions().values():
        if not set(one.fields) <= OF_REPORTS:
            told = f"{one.meaning}. Unit: {one.unit}; over: {one.over}"
            assert told in page
            assert json.dumps(told, ensure_ascii=False) in output


@pytest.mark.parametrize("verb", ["status", "compare", "jobs"])
def test_help_says_what_the_definition_says(verb: str) -> None:
    with pytest.raises(HelpWanted) as shown:
        parse([verb, "--help"], program="mntrain")
    text = str(shown.value)
    assert max(map(len, text.splitlines())) <= 80
    told = " ".join(text.split())
    words = TABLE[verb].explains
    assert words
    for word in words:
        (field, *_) = definitions()[word].fields
        assert f"{word}: {meaning_of(field)}" in told

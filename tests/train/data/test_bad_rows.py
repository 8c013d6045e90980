"""Bad rows: refused together with their kinds, or left out, counted and limited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.sections import DataSection
from jupyter_mntrain.train.data.corpus import read_corpus
from jupyter_mntrain.train.data.records import BadRows, RowError
from jupyter_mntrain.train.data.tokens import Tokens, trained_tokens
from tests.wording import wording

BAD = ['{"text":', '{"body": 1}', "[1]", "[2]", '{"text": "\\ud800"}', '{"text": "\udcff"}']


@pytest.fixture
def data(tmp_path: Path) -> Path:
    good = [json.dumps({"text": f"{n} machines train in a pipeline"}) for n in range(60)]
    lines = [*good[:3], *BAD, *good[3:]]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8", errors="surrogateescape")
    return path


def section(path: Path, **more: Any) -> DataSection:
    return DataSection(source=str(path), vocabulary_size=270, sequence_length=16, **more)


def tokens(path: Path, tmp_path: Path, **more: Any) -> Tokens:
    given = section(path, **more)
    return trained_tokens(read_corpus(given), given, cache=tmp_path / "cache")


@pytest.mark.wording
def test_all_kinds_are_named_at_once(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        tokens(data, tmp_path)
    said = str(caught.value)
    assert "\n" not in said
    for words in (
        f"{data} line 6: not an object with fields (and 1 more: {data} line 7)",
        f"{data} line 4: not JSON",
        f'{data} line 5: no text in field "text"',
        f"{data} line 8: text that is not valid Unicode",
        f"{data} line 9: not UTF-8 text",
        "6 of 66 rows cannot be trained on",
        'data.on_bad_rows = "skip"',
    ):
        assert words in said


def test_they_are_skipped_and_counted_up_to_a_limit(data: Path, tmp_path: Path) -> None:
    skipping: dict[str, Any] = {"on_bad_rows": "skip", "bad_rows_limit": 0.1}
    found = tokens(data, tmp_path, **skipping)
    assert (found.counts.rows, len(found.ends)) == (66, 60)
    assert [one.count for one in found.counts.skipped] == [2, 1, 1, 1, 1]
    assert found.counts.skipped[0].examples == (f"{data} line 6", f"{data} line 7")
    again = tokens(data, tmp_path, **skipping)
    assert again.counts == found.counts
    assert again.ids.tolist() == found.ids.tolist()
    with pytest.raises(RecipeError, match=wording(r"data\.bad_rows_limit = 0\.05")):
        tokens(data, tmp_path, on_bad_rows="skip")
    with pytest.raises(RecipeError):  # of what was skipped nothing is taken from the cache
        tokens(data, tmp_path)


def test_what_a_template_rejects_is_skipped_too(tmp_path: Path) -> None:
    template = tmp_path / "strict.jinja"
    template.write_text(
        "{% for m in messages %}{% if m.content == '13' %}{{ raise_exception('unlucky') }}"
        "{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    )
    path = tmp_path / "x.jsonl"
    rows = [{"prompt": "How many?", "completion": str(n)} for n in range(60)]
    path.write_text("\n".join(map(json.dumps, rows)))
    more: dict[str, Any] = {"format": "chat", "chat_template": str(template)}
    with pytest.raises(RecipeError, match=wording("14: the chat template rejects it: unlucky")):
        tokens(path, tmp_path, **more)
    found = tokens(path, tmp_path, on_bad_rows="skip", **more)
    assert len(found.ends) == 59
    assert [one.examples for one in found.counts.skipped] == [(f"{path} line 14",)]


def test_reading_ends_early_where_nothing_can_be_right() -> None:
    bad = BadRows(DataSection())
    for number in range(999):
        bad.add(RowError(f"line {number}", "not JSON", fix="repair it"))
    assert not bad.gives_up
    bad.add(RowError("line 999", "not JSON", fix="repair it"))
    assert bad.gives_up
    skipping = BadRows(DataSection(on_bad_rows="skip"))
    for number in range(2000):
        skipping.add(RowError(f"line {number}", "not JSON", fix="repair it"))
    assert not skipping.gives_up


def test_nothing_but_empty_documents(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("\n\n")
    with pytest.raises(RecipeError):
        tokens(path, tmp_path)


def test_json_that_is_nested_without_end(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "fine"}\n' + "[" * 200_000)
    with pytest.raises(RecipeError, match=wording("line 2: JSON that is nested too deeply")):
        list(read_corpus(section(path)).documents())

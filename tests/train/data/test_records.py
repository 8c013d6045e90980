"""Data files: the same documents from every format."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parts.data import DataSection
from jupyter_mntrain.train.data.corpus import read_corpus
from tests.wording import wording

TEXTS = [f"{n} machines" for n in range(7)]


def found(source: Path, **more: str) -> list[object]:
    corpus = read_corpus(DataSection(source=str(source), **more))  # type: ignore[arg-type]
    return [one.document for one in corpus.documents()]


def test_parquet_json_and_lines_hold_the_same(tmp_path: Path) -> None:
    rows = [{"body": text, "n": n} for n, text in enumerate(TEXTS)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "b.json").write_text(json.dumps(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet", row_group_size=2)
    for name in ("a.jsonl", "b.json", "c.parquet"):
        assert found(tmp_path / name, text_field="body") == TEXTS
    assert found(tmp_path, text_field="body") == TEXTS * 3
    with pytest.raises(
        RecipeError, match=wording(r"c\.parquet row 1: no text in field .text.*body, n")
    ):
        found(tmp_path / "c.parquet")


def test_what_datasets_saves(tmp_path: Path) -> None:
    made = datasets.Dataset.from_dict({"text": TEXTS})
    made.save_to_disk(tmp_path / "one", num_shards=2)
    assert found(tmp_path / "one") == TEXTS
    both = datasets.DatasetDict({"train": made, "test": made.select(range(2))})
    both.save_to_disk(tmp_path / "both")
    assert found(tmp_path / "both") == TEXTS
    assert found(tmp_path / "both", split="test") == TEXTS[:2]
    with pytest.raises(RecipeError, match=wording(r"data\.split = dev.*use one of test, train")):
        found(tmp_path / "both", split="dev")


@pytest.mark.wording
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", b'{"text": "x"}', "not a list of objects"),
        ("a.json", b"[1, 2]", "entry 1: not an object"),
        ("a.json", b"[", "not JSON"),
        ("a.jsonl", b'["text"]', "line 1: not an object"),
        ("a.parquet", b"PAR1 and then nothing", "cannot be read"),
    ],
)
def test_files_that_are_not_what_they_say(
    name: str, content: bytes, says: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecipeError, match=says):
        found(tmp_path / name)


def test_only_files_with_conversations_are_read_for_chat(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("about")
    with pytest.raises(RecipeError, match=wording("contains no UTF-8 text")):
        found(tmp_path, format="chat")
    row = {"prompt": "2+2", "completion": "4"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    ((asks, answers),) = found(tmp_path, format="chat")  # type: ignore[misc]
    assert (asks["content"], answers["content"]) == ("2+2", "4")

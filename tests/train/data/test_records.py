"""Data files: the same documents from every format."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.sections import DataSection
from jupyter_mntrain.train.data.corpus import read_corpus
from tests.wording import says, wording

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


def test_only_files_with_conversations_are_read_for_chat(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("about")
    with pytest.raises(RecipeError, match=wording("contains no UTF-8 text")):
        found(tmp_path, format="chat")
    row = {"prompt": "2+2", "completion": "4"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    ((asks, answers),) = found(tmp_path, format="chat")  # type: ignore[misc]
    assert (asks["content"], answers["content"]) == ("2+2", "4")


@pytest.mark.wording
def test_files_without_a_byte_and_files_alike_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(RecipeError, match=r"a\.jsonl: empty"):
        found(tmp_path / "a.jsonl")
    for name in ("b.jsonl", "c.jsonl"):
        (tmp_path / name).write_text(json.dumps({"text": TEXTS[0]}))
    assert found(tmp_path) == [TEXTS[0]] * 2
    assert "2 files are the same, all trained on: b.jsonl, c.jsonl" in described(tmp_path)


def test_compressed_files_and_names_in_capitals(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": text}) for text in TEXTS).encode()
    (tmp_path / "A.JSONL").write_bytes(b"\xef\xbb\xbf" + lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines[:100]) + gzip.compress(lines[100:]))
    (tmp_path / "c.json.zst").write_bytes(zstd(json.dumps([{"text": text} for text in TEXTS])))
    (tmp_path / "d.TXT").write_bytes(b"\xef\xbb\xbfalone")
    (tmp_path / "e.txt.gz").write_bytes(gzip.compress("é".encode("latin-1")))
    (tmp_path / "f.bin.gz").write_bytes(gzip.compress(b"no data"))
    assert found(tmp_path) == [*TEXTS * 3, "alone"]
    for name in ("A.JSONL", "b.jsonl.gz", "c.json.zst"):
        assert found(tmp_path / name) == TEXTS
    said = described(tmp_path)
    assert says("4 files; 1 left out, which are in an unsupported format: f.bin.gz", said)
    assert says("; 1 left out, which are not UTF-8: e.txt.gz", said)
    # Progress is of bytes on disk.
    heard: list[float] = []
    corpus = read_corpus(DataSection(source=str(tmp_path / "b.jsonl.gz")))
    list(corpus.documents(progress=lambda what, done, total=None, unit="": heard.append(done)))
    assert heard[-1] == (tmp_path / "b.jsonl.gz").stat().st_size


def described(source: Path) -> str:
    return read_corpus(DataSection(source=str(source))).description


def zstd(text: str) -> bytes:
    return bytes(pa.Codec("zstd").compress(text.encode(), asbytes=True))


@pytest.mark.wording
@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_compressed_file_that_was_cut_off(name: str, tmp_path: Path) -> None:
    text = "\n".join(json.dumps({"text": f"{n * 7919}"}) for n in range(5000))
    whole = gzip.compress(text.encode()) if name.endswith("gz") else zstd(text)
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecipeError, match=rf"{name} cannot be read|not JSON"):
        found(tmp_path / name)
    (tmp_path / name).write_bytes(b"no such format")
    with pytest.raises(RecipeError, match=f"{name} cannot be read"):
        found(tmp_path / name)


def test_columns_of_csv(tmp_path: Path) -> None:
    long = "x" * 200_000 + '\n"quoted", and a comma'
    for name, delimiter in (("a.csv", ","), ("b.tsv", "\t")):
        with (tmp_path / name).open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerows([["text", "n"], ["one", 1], [long, 2]])
        assert found(tmp_path / name) == ["one", long]
    chat = tmp_path / "chat.csv"
    chat.write_text("prompt,completion\n2+2,4\n")
    ((asks, answers),) = found(chat, format="chat")  # type: ignore[misc]
    assert (asks["content"], answers["content"]) == ("2+2", "4")
    (tmp_path / "a.csv").write_text("text,n\none\n")
    with pytest.raises(RecipeError, match=wording("line 2: more or fewer fields")):
        found(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text('text,n\n"one,2\n')
    with pytest.raises(RecipeError, match=wording("a.csv line 2: not CSV")):
        found(tmp_path / "a.csv")


def test_conversations_nested_in_parquet(tmp_path: Path) -> None:
    call = {"function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
    plain = {"function": {"name": "name", "arguments": {"who": "me"}}}
    said = [
        {"role": "user", "content": "2+2"},
        {"role": "assistant", "tool_calls": [call, plain]},
        {"role": "assistant", "content": "4"},
    ]
    pq.write_table(pa.Table.from_pylist([{"messages": said}]), tmp_path / "a.PARQUET")
    ((asks, calls, answers),) = found(tmp_path, format="chat")  # type: ignore[misc]
    assert (asks, answers) == (said[0], said[2])
    assert [one["function"] for one in calls["tool_calls"]] == [call["function"], plain["function"]]

"""Data as others write it: read as it is meant, or refused by what is wrong; nothing unsaid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import DataSection
from jupyter_mntrain.train.data.chat import ChatWriter
from jupyter_mntrain.train.data.conversations import messages_of
from jupyter_mntrain.train.data.corpus import Corpus, read_corpus
from jupyter_mntrain.train.data.tokens import untrained_tokenizer
from tests.train.data.test_records import found
from tests.wording import says, wording

TEXTS = [f"{n} machines" for n in range(4)]
LINES = "\n".join(json.dumps({"text": text}) for text in TEXTS)
ASKED = {"role": "user", "content": "who are you?"}
SAID = {"role": "assistant", "content": "Samantha."}


def corpus_of(source: Path, **more: Any) -> Corpus:
    return read_corpus(DataSection(source=str(source), **more))


@pytest.mark.parametrize("name", ["a.json", "a.ndjson", "a.jsonl"])
def test_an_object_on_each_line_is_read_whatever_the_file_is_called(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(LINES)
    assert found(tmp_path / name) == TEXTS
    assert found(tmp_path) == TEXTS


@pytest.mark.wording
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", b'{"text": "x"}', "not a list of objects"),
        ("a.json", b"[1, 2]", "entry 1: not an object"),
        ("a.json", b"[", "not JSON"),
        ("a.jsonl", b'["text"]', "line 1: not an object"),
        ("a.parquet", b"PAR1 and then nothing", "cannot be read"),
        ("a.csv", b"text,text\nx,y\n", 'two of its columns are called "text"'),
        ("a.csv", b"text;label\nx;y\n", "not separated by commas.*commas, or with tabs"),
        ("a.csv", "text,n\nx,1\n".encode("utf-16"), r"is UTF-16.*iconv"),
        ("a.jsonl", LINES.encode("utf-16"), r"is UTF-16.*iconv"),
        ("a.json", LINES.encode("utf-16-be").join([b"\xfe\xff", b""]), "is UTF-16"),
        ("a.json", b'{"text":\n"x"}', "not a list of objects"),
        ("a.json", b'[{"text": "x"},\n{"text"', "not JSON.*one list of objects"),
        ("a.jsonl", b'[{"text": "x"}]', r"line 1: not an object.*in a \.json file"),
        ("a.jsonl", b'{\n"text": "x"}', "line 1: not JSON.*an object on each line"),
        ("a.jsonl", b'{"text": 5}', 'line 1: field "text" is not text but 5.*write it as text'),
        ("a.jsonl", b'{"text": null}', 'field "text" is not text: it has no value'),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(
    name: str, content: bytes, says: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecipeError, match=says):
        found(tmp_path / name)


def test_what_programs_keep_in_a_folder_is_not_trained_on_and_said(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(LINES)
    for name in (
        ".git/description.txt",
        ".ipynb_checkpoints/rows-checkpoint.jsonl",
        "__MACOSX/rows.jsonl",
        "README.md",
        "dataset_infos.json",
        "rows.jsonl.xz",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    for name in ("nothing.json", "nothing.parquet"):
        (tmp_path / name).touch()
    assert found(tmp_path) == TEXTS
    said = corpus_of(tmp_path).description
    assert says("1 file;", said)
    assert says(
        "3 left out, which are hidden: .git/description.txt, "
        ".ipynb_checkpoints/rows-checkpoint.jsonl, __MACOSX/rows.jsonl",
        said,
    )
    assert says("2 left out, which are about the data: README.md, dataset_infos.json", said)
    assert says("1 left out, which are in an unsupported format: rows.jsonl.xz", said)
    assert says("2 left out, which are empty: nothing.json, nothing.parquet", said)


def test_a_folder_of_texts_is_read_with_its_readme(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("import this")
    (tmp_path / "README.md").write_text("read me")
    assert found(tmp_path) == ["read me", "import this"]


def test_files_that_are_called_like_held_out_ones_are_said(tmp_path: Path) -> None:
    for name in ("train-00000-of-1.jsonl", "test-00000-of-1.jsonl", "testimony.jsonl"):
        (tmp_path / name).write_text(f"{LINES}\n{json.dumps({'text': name})}")
    said = corpus_of(tmp_path).description
    assert said.endswith("3 files; also trained on: test-00000-of-1.jsonl")
    (tmp_path / "train-00000-of-1.jsonl").rename(tmp_path / "a.jsonl")
    assert "trained on" not in corpus_of(tmp_path).description


def test_the_loss_leaves_out_answers_of_weight_0() -> None:
    writer = ChatWriter(untrained_tokenizer(), None, answers_only=True)
    row = {"messages": [ASKED, {**SAID, "weight": 0}, ASKED, {**SAID, "weight": 1}]}
    messages = messages_of(row, "here")
    text, answers, _ = writer.write(messages, "here")
    _, all_answers, _ = writer.write(messages_of({"messages": [ASKED, SAID] * 2}, "here"), "here")
    assert answers is not None
    assert all_answers is not None
    assert answers == all_answers[1:]
    assert text[slice(*answers[0])].startswith("Samantha.")
    none = messages_of({"messages": [ASKED, {**SAID, "weight": 0}]}, "line 3")
    with pytest.raises(RecipeError, match=wording("line 3: all of its answers have weight 0")):
        writer.write(none, "line 3")
    with pytest.raises(RecipeError, match=wording("weight other than 0 and 1")):
        messages_of({"messages": [ASKED, {**SAID, "weight": 0.5}]}, "line 3")


def test_roles_in_capitals_and_rows_of_preferences() -> None:
    capitals = [{"from": "Human", "value": "hi"}, {"from": "GPT", "value": "ho"}]
    roles = [one["role"] for one in messages_of({"conversations": capitals}, "here")]
    assert roles == ["user", "assistant"]
    with pytest.raises(RecipeError, match=wording("line 1: two answers to choose from")):
        messages_of({"prompt": "a", "chosen": "b", "rejected": "c"}, "line 1")


def test_roles_of_other_names_are_who_the_recipe_says(tmp_path: Path) -> None:
    turns = [{"from": "Asker", "value": "hi"}, {"from": "ai", "value": "you there?"}]
    row = {"conversations": [*turns, {"from": "Bot 7", "value": "ho"}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    settings = ["data.format=chat", f"data.source={tmp_path}"]
    roles = 'data.roles={user = ["Asker", "ai"], assistant = ["Bot 7"]}'
    said, other = (
        read_corpus(parse_recipe("", [*settings, one]).data)
        for one in (roles, roles.replace("Asker", "asker"))
    )
    (found,) = said.documents()
    assert [one["role"] for one in found.document] == ["user", "user", "assistant"]  # type: ignore[index]
    assert said.digest != other.digest  # tokens that were kept are of other turns
    with pytest.raises(RecipeError, match=wording(r'data.roles = {user = \["Asker"\]}')):
        list(other.documents())
    with pytest.raises(RecipeError, match=wording("data.roles")):
        parse_recipe("", [*settings, 'data.roles={person = ["Asker"]}'])

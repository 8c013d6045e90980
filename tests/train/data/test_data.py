from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.sections import DataSection
from jupyter_mntrain.train.data.batches import Batches
from jupyter_mntrain.train.data.corpus import Corpus, read_corpus
from jupyter_mntrain.train.data.sequences import rows_of
from jupyter_mntrain.train.data.tokens import (
    END_OF_TEXT_ID,
    Tokens,
    model_tokenizer,
    model_tokens,
    text_ids,
    trained_tokens,
    untrained_tokenizer,
)
from tests.wording import wording

WORDS = "pipeline parallel training across machines with throughput and bubbles "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "texts"
    (root / "deep").mkdir(parents=True)
    (root / "b.txt").write_text("b " + WORDS * 20)
    (root / "a.md").write_text("a " + WORDS * 20)
    (root / "deep" / "c.jsonl").write_text(
        "".join(json.dumps({"text": f"{n} {WORDS}"}) + "\n" for n in range(5)) + "\n"
    )
    (root / "picture.png").write_bytes(b"\x89PNG")
    (root / "latin.txt").write_bytes("é".encode("latin-1"))
    return root


class Heard:
    """What a rank would say, all of it."""

    def __init__(self) -> None:
        self.said: dict[str, list[tuple[float, float | None, str]]] = {}

    def __call__(self, what: str, done: float, total: float | None = None, unit: str = "") -> None:
        self.said.setdefault(what, []).append((done, total, unit))


def texts(corpus: Corpus) -> list[str]:
    found = [one.document for one in corpus.documents()]
    assert all(isinstance(one, str) for one in found)
    return found  # type: ignore[return-value]


def sized(vocabulary: int) -> DataSection:
    return DataSection(vocabulary_size=vocabulary)


def section(source: Path | str, **fields: object) -> DataSection:
    return DataSection(source=str(source), **fields)  # type: ignore[arg-type]


def test_documents_come_in_one_order_without_what_is_no_text(folder: Path) -> None:
    corpus = read_corpus(section(folder))
    documents = texts(corpus)
    assert [text[0] for text in documents] == ["a", "b", "0", "1", "2", "3", "4"]
    assert texts(corpus) == documents


def test_the_hash_is_of_names_and_contents(folder: Path) -> None:
    before = read_corpus(section(folder)).digest
    assert read_corpus(section(folder)).digest == before
    (folder / "b.txt").rename(folder / "bb.txt")
    renamed = read_corpus(section(folder)).digest
    (folder / "a.md").write_text("changed")
    assert len({before, renamed, read_corpus(section(folder)).digest}) == 3


def test_a_copy_elsewhere_has_the_same_hash(folder: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for root in (one, two):
        root.mkdir()
        (root / "x.txt").write_text(WORDS)
    assert read_corpus(section(one)).digest == read_corpus(section(two)).digest


def test_the_python_library_is_there_and_leaves_out_tests_and_packages() -> None:
    corpus = read_corpus(DataSection())
    documents = texts(corpus)
    assert len(documents) > 200
    assert sum(map(len, documents)) > 2_000_000
    assert any("class TestCase" in text for text in documents)  # unittest is library, not test
    assert not any("class BuiltinTest(unittest.TestCase)" in text for text in documents)
    assert corpus.digest == read_corpus(DataSection()).digest


def test_sources_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.bin").write_bytes(b"1")
    with pytest.raises(RecipeError, match=wording("no such file or folder")):
        read_corpus(section(tmp_path / "gone"))
    with pytest.raises(RecipeError, match=wording("no UTF-8 text")):
        read_corpus(section(tmp_path / "empty"))
    with pytest.raises(RecipeError, match=wording(r"not a \.txt, \.jsonl, \.json or \.parquet")):
        read_corpus(section(tmp_path / "x.bin"))


def test_a_bad_line_of_jsonl_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "fine"}\n{"body": "b", "id": 1}\n')
    corpus = read_corpus(section(path))
    with pytest.raises(
        RecipeError, match=wording(r"line 2: no text in field .text.*its fields: body, id")
    ):
        list(corpus.documents())
    path.write_text('{"text": "fine"}\n{"text":\n')
    with pytest.raises(RecipeError, match=wording("line 2: not JSON")):
        list(read_corpus(section(path)).documents())
    path.write_text('{"body": "b"}\n')
    assert texts(read_corpus(section(path, text_field="body"))) == ["b"]


def test_tokens_decode_to_the_text(folder: Path, tmp_path: Path) -> None:
    corpus = read_corpus(section(folder))
    tokens = trained_tokens(corpus, sized(270), cache=tmp_path)
    (path,) = tmp_path.glob("tokenizer-*.json")
    ids = tokens.ids.tolist()
    ends = [place for place, token in enumerate(ids) if token == END_OF_TEXT_ID]
    assert len(ends) == len(list(corpus.documents()))
    first = Tokenizer.from_file(str(path)).decode(ids[: ends[0]])
    assert first == texts(corpus)[0]
    assert tokens.vocabulary_size == 270
    assert max(ids) < 270


def test_tokens_are_cached_by_content(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = trained_tokens(read_corpus(section(folder)), sized(270), cache=cache)
    files = {path.name: path.stat().st_mtime_ns for path in cache.iterdir()}
    again = trained_tokens(read_corpus(section(folder)), sized(270), cache=cache)
    assert {path.name: path.stat().st_mtime_ns for path in cache.glob("*.json")}.items() <= (
        files.items()
    )
    assert np.array_equal(first.ids, again.ids)
    (folder / "b.txt").write_text("other " + WORDS * 20)
    other = trained_tokens(read_corpus(section(folder)), sized(270), cache=cache)
    assert other.digest != first.digest


def test_training_a_tokenizer_twice_gives_the_same(folder: Path, tmp_path: Path) -> None:
    corpus = read_corpus(section(folder))
    digests = {
        trained_tokens(corpus, sized(280), cache=tmp_path / name).digest for name in ("a", "b")
    }
    assert len(digests) == 1


def test_ranks_that_start_at_once_share_the_cache(folder: Path, tmp_path: Path) -> None:
    corpus = read_corpus(section(folder))
    found: list[int] = []

    def rank() -> None:
        found.append(len(trained_tokens(corpus, sized(270), cache=tmp_path / "shared").ids))

    threads = [threading.Thread(target=rank) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert not list((tmp_path / "shared").glob("*.tmp"))


def test_too_little_text_for_the_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("short")
    with pytest.raises(RecipeError, match=wording("yields only 261 tokens")):
        trained_tokens(read_corpus(section(path)), sized(1000), cache=tmp_path / "cache")


def test_a_models_own_tokenizer(folder: Path, tmp_path: Path) -> None:
    corpus = read_corpus(section(folder))
    trained_tokens(corpus, sized(270), cache=tmp_path / "cache")
    (path,) = (tmp_path / "cache").glob("tokenizer-*.json")
    model = tmp_path / "model"
    model.mkdir()
    with pytest.raises(RecipeError, match=wording(r"neither tokenizer\.json")):
        model_tokens(corpus, sized(270), model, 7, cache=tmp_path / "cache")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(max_length=3)  # as many published tokenizers have it
    tokenizer.save(str(model / "tokenizer.json"))
    tokens = model_tokens(corpus, sized(270), model, 7, cache=tmp_path / "cache")
    assert tokens.ids[-1] == 7
    assert len(tokens.ids) > 100


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab"'),
        ("tokenizer_config.json", '{"tokenizer_class": '),
        ("tokenizer_config.json", "[]"),
    ],
)
def test_a_tokenizer_that_is_cut_short_is_named(name: str, content: str, tmp_path: Path) -> None:
    untrained_tokenizer().save_pretrained(tmp_path)
    assert model_tokenizer(tmp_path).eos_token == "<|endoftext|>"
    (tmp_path / name).write_text(content)
    with pytest.raises(RecipeError, match=wording(f"cannot read {name}")) as refused:
        model_tokenizer(tmp_path)
    assert str(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_text_begins_as_the_tokenizer_has_it(folder: Path, tmp_path: Path) -> None:
    corpus = read_corpus(section(folder))
    trained_tokens(corpus, sized(270), cache=tmp_path / "cache")
    (path,) = (tmp_path / "cache").glob("tokenizer-*.json")
    plain = Tokenizer.from_file(str(path))
    begins = Tokenizer.from_file(str(path))
    begins.add_special_tokens(["<s>"])
    first = begins.token_to_id("<s>")
    begins.post_processor = TemplateProcessing("<s> $A", special_tokens=[("<s>", first)])
    ids = {}
    for name, tokenizer in (("plain", plain), ("begins", begins)):
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token="<s>" if name == "begins" else None
        ).save_pretrained(tmp_path / name)
        found = model_tokens(corpus, sized(270), tmp_path / name, 7, cache=tmp_path / "cache")
        ids[name] = np.split(found.ids, found.ends)[:-1]
    assert [one.tolist() for one in ids["begins"]] == [[first, *one] for one in ids["plain"]]
    again = AutoTokenizer.from_pretrained(tmp_path / "begins")
    assert text_ids(again, "one") == again("one").input_ids
    assert text_ids(AutoTokenizer.from_pretrained(tmp_path / "plain"), "one")[0] != first


def tokens_in(*lengths: int, answers: list[int] | None = None) -> Tokens:
    """Documents of so many tokens, which are numbered through."""
    ends = np.cumsum(lengths)
    counts = None if answers is None else np.isin(np.arange(ends[-1]), answers)
    ids = np.arange(ends[-1], dtype=np.int32)
    return Tokens(ids, ends, counts, digest="", tokenizer=None)  # type: ignore[arg-type]


def batches(count: int = 1000, *, batch_size: int = 4, length: int = 9, seed: int = 0) -> Batches:
    rows = rows_of(tokens_in(count), DataSection(sequence_length=length))
    return Batches(rows, batch_size=batch_size, seed=seed)


def test_a_batch_is_rows_of_neighboring_tokens() -> None:
    batch = batches().batch(0)
    assert batch.inputs.shape == batch.labels.shape == batch.positions.shape == (4, 9)
    assert batch.inputs.dtype == batch.labels.dtype == torch.int64
    assert torch.equal(batch.labels, batch.inputs + 1)
    assert (batch.inputs[:, 1:] - batch.inputs[:, :-1] == 1).all()
    assert torch.equal(batch.positions, torch.arange(9).expand(4, 9))
    assert batch.tokens == batch.counted == 36


def test_an_epoch_sees_every_sequence_once_and_the_next_in_another_order() -> None:
    data = batches(1 + 9 * 8)
    epochs = [
        torch.cat([data.batch(step).inputs for step in steps])[:, 0].tolist()
        for steps in ((0, 1), (2, 3))
    ]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(0, 72, 9))
    assert epochs[0] != epochs[1]


@given(step=st.integers(0, 500), seed=st.integers(0, 2**63 - 1))
def test_a_batch_depends_on_seed_and_step_alone(step: int, seed: int) -> None:
    fresh, used = batches(seed=seed), batches(seed=seed)
    for earlier in (0, 300, 7):
        used.batch(earlier)
    assert torch.equal(fresh.batch(step).inputs, used.batch(step).inputs)


def test_seeds_differ_and_the_fingerprint_shows_it() -> None:
    assert batches(seed=1).fingerprint() == batches(seed=1).fingerprint()
    assert batches(seed=1).fingerprint() != batches(seed=2).fingerprint()


def test_a_text_shorter_than_a_sequence() -> None:
    assert batches(10).batch(0).inputs.shape == (4, 9)
    with pytest.raises(
        RecipeError, match=wording(r"data\.sequence_length = 9: the text has 9 tokens")
    ):
        batches(9)


def test_reading_and_tokenizing_say_how_many_bytes_they_have_read(
    folder: Path, tmp_path: Path
) -> None:
    heard = Heard()
    corpus = read_corpus(section(folder), heard)
    kept = sum(p.stat().st_size for p in folder.rglob("*") if p.suffix in {".txt", ".md", ".jsonl"})
    reading = heard.said.pop("reading the text")
    assert reading[0] == (0, kept, "B")
    assert reading[-1] == (kept, kept, "B")
    assert len(reading) == 6, "nothing yet, each of four files, the end"

    trained_tokens(corpus, sized(270), cache=tmp_path / "cache", progress=heard)
    whole = kept - len("é".encode("latin-1"))
    assert list(heard.said) == ["training the tokenizer", "tokenizing the text"]
    for steps in heard.said.values():
        assert steps[0] == (0, whole, "B")
        assert steps[-1] == (whole, whole, "B")
        assert [done for done, _, _ in steps] == sorted(done for done, _, _ in steps)
        assert len(steps) > 8, "each line of a .jsonl counts"

    cached = Heard()
    trained_tokens(corpus, sized(270), cache=tmp_path / "cache", progress=cached)
    assert cached.said == {}


def test_a_rank_that_waits_for_another_s_tokens_says_so(folder: Path, tmp_path: Path) -> None:
    corpus = read_corpus(section(folder))
    waits = threading.Event()
    waiting: list[float] = []

    def other(what: str, done: float, total: float | None = None, unit: str = "") -> None:
        if what.startswith("waiting"):
            waiting.append(done if total is None else -1)
            waits.set()

    def waiter() -> None:
        trained_tokens(corpus, sized(270), cache=tmp_path, progress=other)

    thread = threading.Thread(target=waiter)

    def first(what: str, done: float, total: float | None = None, unit: str = "") -> None:
        if what == "tokenizing the text" and done == 0:  # we hold the cache now
            thread.start()
            assert waits.wait(10)

    trained_tokens(corpus, sized(270), cache=tmp_path, progress=first)
    thread.join()
    assert waiting == [0, -1]

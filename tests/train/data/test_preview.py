"""Preview: people see which tokens are learned, which are special, and where documents end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import decoders
from transformers import LlamaConfig, PreTrainedTokenizerBase

from jupyter_mntrain.model.records.sequences import MOST_LINES, DataPreview, ShownSequence
from jupyter_mntrain.recipe.sections import DataSection
from jupyter_mntrain.train import parse_recipe
from jupyter_mntrain.train.data.chat import CHATML_OF_TOKENS
from jupyter_mntrain.train.data.corpus import read_corpus
from jupyter_mntrain.train.data.preview import Preview
from jupyter_mntrain.train.data.sequences import rows_of
from jupyter_mntrain.train.data.tokens import Tokens, model_tokens
from jupyter_mntrain.train.prepare import preview
from tests.train.data.test_special_tokens import bytes_, wrapped


def byte_tokenizer() -> PreTrainedTokenizerBase:
    """A token for each character of ASCII, ChatML's markers, `<s>` and `</s>`."""
    made = bytes_()
    made.decoder = decoders.ByteLevel()
    return wrapped(made)


TOKENIZER = byte_tokenizer()


def tokens_of(documents: Sequence[str], answers: Sequence[Sequence[bool]] | None = None) -> Tokens:
    ids = [TOKENIZER(one, add_special_tokens=False).input_ids for one in documents]
    learned = None if answers is None else np.concatenate([np.array(one, bool) for one in answers])
    flat = np.array([token for one in ids for token in one], np.int32)
    return Tokens(flat, np.cumsum([*map(len, ids)]), learned, "", TOKENIZER)


def shown(tokens: Tokens, length: int, packing: Any) -> list[ShownSequence]:
    rows = rows_of(tokens, DataSection(sequence_length=length, packing=packing))
    return [Preview(TOKENIZER).shown(rows.row(place)) for place in range(len(rows))]


def test_a_conversation_is_seen_as_it_is_learned(tmp_path: Path) -> None:
    asked = {"role": "user", "content": "What is </s>?\x1b[2J"}
    said = [
        [asked, {"role": "assistant", "content": "An end."}],
        [asked, {"role": "assistant", "content": "No.\nNo."}],
    ]
    (tmp_path / "chat.jsonl").write_text(
        "".join(json.dumps({"messages": one}) + "\n" for one in said)
    )
    (tmp_path / "chatml.jinja").write_text("{{ '<s>' }}" + CHATML_OF_TOKENS)
    TOKENIZER.save_pretrained(tmp_path / "model")
    section = DataSection(
        source=str(tmp_path / "chat.jsonl"),
        format="chat",
        answers_only=True,
        sequence_length=160,
        chat_template=str(tmp_path / "chatml.jinja"),
    )
    corpus, model = read_corpus(section), tmp_path / "model"
    tokens = model_tokens(corpus, section, model, None, cache=tmp_path / "cache")
    first = Preview(tokens.tokenizer).shown(rows_of(tokens, section).row(0))
    assert first.lines() == [
        "⟨<s>⟩⟨<|im_start|>⟩user",
        r"What is </s>?\x1b[2J⟨<|im_end|>⟩",
        "⟨<|im_start|>⟩assistant",
        "⟦An end.⟨<|im_end|>⟩⟧",
        "── end of the document ──",
        "⟨<s>⟩⟨<|im_start|>⟩user",
        r"What is </s>?\x1b[2J⟨<|im_end|>⟩",
        "⟨<|im_start|>⟩assistant",
        "⟦No.",
        "No.⟨<|im_end|>⟩⟧",
        "── end of the document ──",
    ]
    assert (first.documents, first.learned) == (2, len("An end.") + len("No.\nNo.") + 2)


def test_the_ends_of_documents_are_seen_in_one_long_text() -> None:
    tokens = tokens_of(["one</s>", "two</s>", "three</s>"])
    first, second = shown(tokens, 6, "wrapped")
    # The last token of each is only learned; the next sequence begins with it.
    assert first.lines() == [
        *("one⟨</s>⟩", "── end of the document ──"),
        *("two", "── cut: it continues in another sequence ──"),
    ]
    assert second.lines() == [
        *("── it began in another sequence ──", "o⟨</s>⟩", "── end of the document ──"),
        *("three", "── cut: it continues in another sequence ──"),
    ]
    (both,) = shown(tokens_of(["one</s>", "two</s>"]), 7, "wrapped")
    assert both.lines()[-2:] == ["two⟨</s>⟩", "── end of the document ──"]


LETTERS = st.text("abc", min_size=10, max_size=30)
"""At most four documents in a sequence, none of which is left out."""


@given(
    st.lists(LETTERS, min_size=2, max_size=9),
    st.randoms(use_true_random=False),
    st.sampled_from(["none", "best-fit", "wrapped"]),
    st.integers(8, 40),
)
def test_what_is_marked_is_what_the_loss_counts(
    texts: list[str], chance: Random, packing: str, length: int
) -> None:
    """Learned letters in capitals: each sequence has them where the data has."""
    answers = [[chance.random() < 0.4 for _ in text] for text in texts]
    answers[0][1] = True
    marked = [
        "".join(char.upper() if yes else char for char, yes in zip(text, some, strict=True))
        for text, some in zip(texts, answers, strict=True)
    ]
    assume(length < sum(map(len, texts)))
    sequences = shown(tokens_of(texts, answers), length, packing)
    for one in sequences:
        pieces = "".join(
            (run.text.upper() if run.is_learned else run.text) if run.kind == "text" else "|"
            for run in one.runs
        )
        assert sum(char.isupper() for char in pieces) == one.learned
        parts = [part for part in pieces.split("|") if part]
        assert len(parts) == one.documents
        if packing == "wrapped":
            assert "".join(parts)[1:] in "".join(marked)
        # What is learned of a part's first token is learned elsewhere.
        assert all(any(part[1:] in text[1:] for text in marked) for part in parts)
        ends = [run.kind for run in one.runs if run.kind in {"end", "cut"}]
        assert len(ends) == one.documents


def test_long_sequences_are_shown_in_little_room() -> None:
    turns = "<|im_start|>user\n" * 300 + "</s>"
    texts = ["x" * 20_000, *[turns] * 30, "\n" * 5000]
    tokens = tokens_of(texts)
    assert len(tokens.ids) < 131_000
    for packing in ("best-fit", "wrapped"):
        for one in shown(tokens, len(tokens.ids) - 1, packing):
            assert len(msgspec.json.encode(one)) < 20_000
            assert len(one.lines()) <= MOST_LINES
            seen = "".join(run.text for run in one.runs)
            count = len(TOKENIZER(seen, add_special_tokens=False).input_ids)
            last = 1 if packing == "wrapped" else one.documents
            assert count + sum(run.tokens for run in one.runs) == one.tokens + last
            assert [run.documents for run in one.runs if run.documents] == [one.documents - 3]


def test_a_character_of_several_tokens_is_whole() -> None:
    (one,) = shown(tokens_of(["Zoë 🙂 </s>"]), 20, "none")
    assert one.lines()[0] == "Zoë 🙂 ⟨</s>⟩"


@pytest.mark.parametrize(("end", "tokens"), [([], 10), (None, 10), (5, 12), ([6, 5], 12)])
def test_each_text_ends_with_a_token_if_the_config_has_one(
    end: Any, tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    seen = previewed(
        tmp_path, end, [{"text": "abcdef"}, {"text": "ghijkl"}], "data.sequence_length=8"
    )
    assert sum(one.tokens for one in seen.sequences) == tokens


def test_the_day_that_a_template_writes_is_said_and_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "day.jinja").write_text(
        "{{ strftime_now('%d.%m.%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    changes = ("data.format=chat", f'data.chat_template="{tmp_path / "day.jinja"}"')
    seen = previewed(tmp_path, 5, [{"messages": said}], *changes, "data.sequence_length=16")
    assert any("26 July 2024" in line for line in seen.summary)
    assert "".join(text for text, _ in seen.sequences[0].marked()).startswith("26.07.2024a")


def previewed(folder: Path, end: Any, rows: Sequence[Any], *changes: str) -> DataPreview:
    """Of a model whose texts end with this id."""
    data, model = folder / "rows.jsonl", folder / "model"
    data.write_text("\n".join(map(json.dumps, rows)))
    LlamaConfig(vocab_size=300, eos_token_id=end).save_pretrained(model)
    TOKENIZER.save_pretrained(model)
    usual = [f'model.path="{model}"', f'data.source="{data}"', "data.packing=best-fit"]
    return preview(parse_recipe("", [*usual, *changes]))

"""Pieces: their tokens are those of the whole text, or it stays whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from jupyter_mntrain.train.data.encoding import pieces_of

TEXT = "def pipeline(stages):\n    return stages + 1\n\n\nA line of words,  and 12 numbers.\n" * 30


def trained(*, metaspace: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
        alphabet = sorted({*TEXT, "▁"})
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


BYTES = trained()


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    found: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return found


@given(
    st.lists(st.sampled_from(["\n", " ", "\t", "a", "bc", "é", "1", "return", "."]), max_size=99)
)
def test_the_tokens_of_the_pieces_are_those_of_the_text(words: list[str]) -> None:
    text = "".join(words)
    pieces = list(pieces_of(text, BYTES, most=12))
    assert "".join(piece.text for piece in pieces) == text
    assert [token for piece in pieces for token in ids(BYTES, piece.text)] == ids(BYTES, text)
    assert all(text[piece.begin :].startswith(piece.text) for piece in pieces)
    assert [piece.is_last for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def test_a_long_text_becomes_pieces_of_at_most_so_many_characters() -> None:
    pieces = list(pieces_of(TEXT, BYTES, most=300))
    assert len(pieces) >= len(TEXT) / 300
    assert max(len(piece.text) for piece in pieces) <= 300


@pytest.mark.parametrize("text", [TEXT, "x" * 5000])
def test_where_no_cut_keeps_the_tokens_a_text_stays_whole(text: str) -> None:
    [piece] = pieces_of(text, trained(metaspace=True), most=300)
    assert piece.text == text


def test_a_token_over_a_line_end_is_not_cut() -> None:
    tokenizer = trained()
    tokenizer.add_tokens(["\nA"])
    text = "\nA" * 400
    pieces = list(pieces_of(text, tokenizer, most=101))
    assert [token for piece in pieces for token in ids(tokenizer, piece.text)] == ids(
        tokenizer, text
    )


def test_a_normalizer_that_begins_each_text_anew_leaves_it_whole() -> None:
    tokenizer = trained()
    tokenizer.normalizer = normalizers.Prepend("▁")
    assert len(list(pieces_of(TEXT, tokenizer, most=300))) == 1

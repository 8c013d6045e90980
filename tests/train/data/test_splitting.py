"""Long conversations: split between turns, by policy, and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.learning_rate import with_steps
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import DataSection, Recipe, TrainSection
from jupyter_mntrain.train.data.conversations import split_turns
from jupyter_mntrain.train.data.corpus import read_corpus
from jupyter_mntrain.train.data.sequences import rows_of
from jupyter_mntrain.train.data.summary import Sequences, summarize
from jupyter_mntrain.train.data.tokens import Tokens, trained_tokens
from tests.train.data.test_data import tokens_in
from tests.wording import says, wording

SYSTEM = {"role": "system", "content": "s"}


def talk(letters: str) -> list[dict[str, str]]:
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    return [{"role": roles[one], "content": one} for one in letters]


@pytest.mark.parametrize(
    ("letters", "most", "pieces"),
    [
        ("uaua", 4, ["uaua"]),
        ("uauaua", 4, ["uaua", "ua"]),
        ("suauaua", 5, ["suaua", "sua"]),
        ("suaua", 3, ["sua", "sua"]),
        ("auaua", 3, ["aua", "ua"]),  # an assistant that speaks first
        ("uatauua", 4, ["uata", "uua"]),  # tools' results stay with their question
        ("uataua", 2, ["uata", "ua"]),  # one that does not fit is kept whole
        ("uauau", 4, ["uaua"]),  # what nobody answers is left out
    ],
)
def test_questions_stay_with_their_answers(letters: str, most: int, pieces: list[str]) -> None:
    found = split_turns(talk(letters), lambda some: len(some) <= most)
    assert ["".join(one["content"] for one in piece) for piece in found] == pieces


@pytest.mark.parametrize(
    ("too_long", "lengths"),
    [("cut", [8, 3, 8, 8, 1]), ("truncate", [8, 3, 8]), ("drop", [8, 3])],
)
def test_documents_longer_than_a_sequence(too_long: str, lengths: list[int]) -> None:
    section = DataSection(sequence_length=8, packing="none", too_long=too_long)  # type: ignore[arg-type]
    rows = rows_of(tokens_in(9, 4, 18), section)
    assert [rows.row(place).tokens for place in range(len(rows))] == lengths
    assert rows.filled_tokens == sum(lengths)


def test_long_conversations_become_several_and_all_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    turns = [
        one
        for n in range(8)
        for one in (
            {"role": "user", "content": f"What is {n} squared, please?"},
            {"role": "assistant", "content": f"It is {n * n}."},
        )
    ]
    rows = [{"messages": [SYSTEM, *turns]}, {"messages": turns[:2]}, {"messages": []}]
    path.write_text("\n".join(map(json.dumps, rows)))
    more: dict[str, Any] = {"format": "chat", "on_bad_rows": "skip", "bad_rows_limit": 0.5}
    given = DataSection(
        source=str(path), sequence_length=128, vocabulary_size=280, too_long="split", **more
    )
    tokens = trained_tokens(read_corpus(given), given, cache=tmp_path / "cache")
    texts = documents(tokens)
    assert len(texts) > 3
    assert all(text.startswith("<|im_start|>system\ns<|im_end|>") for text in texts[:-1])
    assert sum(text.count("squared") for text in texts) == 9
    assert tokens.pairs.max() <= 128
    assert (tokens.counts.split, tokens.counts.rows) == (1, 3)
    recipe = Recipe(data=given, train=TrainSection(steps=10, batch_size=2))
    lines = told(recipe, tokens)
    for number, words in enumerate(
        (
            f"{len(texts)} documents, {len(tokens.ids):,} tokens: ",
            "10 steps are ",
            "1 conversations longer than a sequence were split between turns",
            f"1 of 3 rows skipped: has no assistant turn ({path} line 3)",
        )
    ):
        assert says(words, lines[number])
    count = len(rows_of(tokens, given))
    epochs = Recipe(data=given, train=TrainSection(steps=None, epochs=3.0, batch_size=2))
    line = told(with_steps(epochs, count), tokens)[1]
    assert says(f"3 epochs = {-(-3 * count // 2)} steps; an epoch is {count / 2:.1f} steps", line)
    shorter = DataSection(source=str(path), sequence_length=16, vocabulary_size=280, **more)
    whole = trained_tokens(read_corpus(shorter), shorter, cache=tmp_path / "cache")
    assert len(documents(whole)) == 2
    lines = told(Recipe(data=shorter), whole)
    assert says("2 documents are longer than a sequence", lines[2])


def told(recipe: Recipe, tokens: Tokens) -> list[str]:
    one = Sequences(tokens, rows_of(tokens, recipe.data))
    return list(summarize(recipe, [one], tokens.counts))


def documents(tokens: Tokens) -> list[str]:
    begins = [0, *tokens.ends[:-1].tolist()]
    spans = zip(begins, tokens.ends.tolist(), strict=True)
    return [tokens.tokenizer.decode(tokens.ids[begin:end]) for begin, end in spans]


def test_policies_without_an_effect_are_refused() -> None:
    with pytest.raises(RecipeError, match=wording("wrapped sequences")):
        parse_recipe('[data]\ntoo_long = "drop"')
    with pytest.raises(RecipeError, match=wording("only conversations have turns")):
        parse_recipe('[data]\ntoo_long = "split"\npacking = "none"')
    assert parse_recipe('[data]\nformat = "chat"\ntoo_long = "split"').data.too_long == "split"

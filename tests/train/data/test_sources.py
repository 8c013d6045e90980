"""Several sources by weight, and text of its own to evaluate on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.asked_paths import asked_paths
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train.data.batches import Batches, Mixture, counts_of
from jupyter_mntrain.train.data.corpus import read_corpus
from jupyter_mntrain.train.data.sequences import JoinedRows, WrappedRows, rows_of
from jupyter_mntrain.train.data.summary import Sequences, summarize
from jupyter_mntrain.train.data.tokens import like_tokens, trained_tokens
from jupyter_mntrain.workload.workload import _absolute
from tests.train.data.test_data import tokens_in
from tests.wording import says, wording

TWO = """
[data]
sequence_length = 8
vocabulary_size = 270
evaluation_path = "test.txt"
[[data.sources]]
path = "a.txt"
weight = 3
[[data.sources]]
path = "b.txt"
[evaluation]
interval_steps = 5
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    for name, count in (("a.txt", 400), ("b.txt", 90), ("test.txt", 20)):
        (tmp_path / name).write_text(f"{name[0]}{count} machines in a pipeline; " * count)
    return parse_recipe(TWO, _absolute(parse_recipe(TWO), tmp_path))


def test_relative_paths_are_of_the_recipes_folder(recipe: Recipe, tmp_path: Path) -> None:
    assert recipe.data.paths == tuple(
        map(str, (tmp_path / n for n in ("a.txt", "b.txt", "test.txt")))
    )
    assert [one.weight for one in recipe.data.sources] == [3, 1]
    asked = asked_paths(recipe)
    assert {one.path for one in asked if one.use == "data"} == set(recipe.data.paths)


def test_each_source_has_its_tokens_and_one_tokenizer(recipe: Recipe, tmp_path: Path) -> None:
    corpus = read_corpus(recipe.data)
    for _ in range(2):  # the second time from the cache
        tokens = trained_tokens(corpus, recipe.data, cache=tmp_path / "cache")
        a, b = tokens.sources()
        assert np.array_equal(np.concatenate([a.ids, b.ids]), tokens.ids)
        assert a.tokenizer.decode(a.ids[:-1]) == (tmp_path / "a.txt").read_text()
        assert b.tokenizer.decode(b.ids[:-1]) == (tmp_path / "b.txt").read_text()
    assert recipe.data.evaluation_path is not None
    other = recipe.data.of_path(recipe.data.evaluation_path)
    test = like_tokens(read_corpus(other), other, tokens, cache=tmp_path / "cache")
    assert test.tokenizer.decode(test.ids[:-1]) == (tmp_path / "test.txt").read_text()
    assert test.ids[-1] == tokens.ids[-1]
    sources = [Sequences(one, rows_of(one, recipe.data)) for one in (a, b)]
    lines = list(summarize(recipe, sources, tokens.counts))
    assert says(f"75.0% from {tmp_path / 'a.txt'}: 1 documents, ", lines[0])
    joined = JoinedRows([one.rows for one in sources])
    assert len(joined) == sum(len(one.rows) for one in sources)
    assert (
        joined.row(len(joined) - 1).inputs.tolist()
        == sources[1].rows.row(len(sources[1].rows) - 1).inputs.tolist()
    )


def test_weights_are_kept_and_each_source_is_used_up_before_it_is_repeated() -> None:
    a, b = tokens_in(8 * 100 + 1), tokens_in(8 * 700 + 1)
    b = replace(b, ids=b.ids + 10_000)
    mixture = Mixture([WrappedRows(a, 8), WrappedRows(b, 8)], [3, 1], 0)
    assert counts_of([3, 1]).tolist() == [750, 250]
    seen = Counter(int(mixture.at(position).inputs[0]) for position in range(2000))
    of_a = [count for first, count in seen.items() if first < 10_000]
    of_b = [count for first, count in seen.items() if first >= 10_000]
    assert of_a == [15] * 100
    assert of_b == [1] * 500
    light = counts_of([1, 9999])
    assert light[0] == 10
    assert light.sum() == 100_000


def test_batches_of_a_mixture_depend_on_seed_and_step_alone() -> None:
    sources = [WrappedRows(tokens_in(count), 8) for count in (100, 900)]

    def batches(seed: int = 0) -> Batches:
        return Batches(*sources, batch_size=4, seed=seed, weights=[1, 2])

    used, fresh = batches(), batches()
    for step in (0, 600, 7):
        used.batch(step)
    assert torch.equal(used.batch(250).inputs, fresh.batch(250).inputs)
    assert batches(1).fingerprint() != fresh.fingerprint()


@pytest.mark.wording
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('sources = [{path = "a", weight = 0}]', r"data\.sources\[0\]\.weight = 0 is not allowed"),
        ('sources = [{path = "a"}, {path = "b", weight = -1}]', r"data\.sources\[1\]\.weight = -1"),
        ('sources = [{path = "a", weights = 1}]', r"data\.sources\[0\]\.weights: no such field"),
        ('source = "a"\nsources = [{path = "b"}]', "both given"),
        ('evaluation_path = "a"', "no evaluations are scheduled"),
    ],
)
def test_sources_that_make_no_sense(text: str, says: str) -> None:
    with pytest.raises(RecipeError, match=wording(says)):
        parse_recipe(f"[data]\n{text}")

"""Packing: whole documents in each sequence, none lost or repeated, none attends to another."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise, permutations

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from jupyter_mntrain.families.presets import FAMILIES, PRESETS
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.sections import DataSection, Recipe
from jupyter_mntrain.train.data.batches import Batch, Batches, sample_of
from jupyter_mntrain.train.data.sequences import NOT_COUNTED, best_fit, hold_out, rows_of
from jupyter_mntrain.train.data.summary import Sequences, summarize
from tests.train.data.test_data import tokens_in
from tests.wording import wording

LENGTHS = st.lists(st.integers(1, 40), max_size=60)


@given(lengths=LENGTHS)
def test_every_document_is_in_one_sequence_and_none_is_too_full(lengths: list[int]) -> None:
    sequences = best_fit(lengths, 40)
    assert sorted(one for sequence in sequences for one in sequence) == list(range(len(lengths)))
    filled = [sum(lengths[one] for one in sequence) for sequence in sequences]
    assert all(0 < size <= 40 for size in filled)
    # Else two of them would have been one.
    assert sum(size <= 20 for size in filled) <= 1


@given(lengths=st.lists(st.integers(1, 40), max_size=6))
def test_few_more_sequences_are_used_than_the_fewest(lengths: list[int]) -> None:
    # Some order fills each sequence before the next one as the best packing does.
    fewest = min(map(_filled_in_order, permutations(lengths)))
    assert len(best_fit(lengths, 40)) <= 11 / 9 * fewest + 6 / 9


def _filled_in_order(lengths: Sequence[int]) -> int:
    """Sequences that are needed if each document goes into the newest one, or a new one."""
    count = left = 0
    for length in lengths:
        is_new = length > left
        count += is_new
        left = (40 if is_new else left) - length
    return count


def test_the_least_room_that_is_enough_is_taken() -> None:
    assert best_fit([6, 5, 4, 5, 3], 10) == [[0, 2], [1, 3], [4]]
    assert best_fit([7, 6, 4, 3], 10) == [[0, 3], [1, 2]]


def packed(*lengths: int, length: int = 8, packing: str = "best-fit", **more: object) -> Batch:
    section = DataSection(sequence_length=length, packing=packing)  # type: ignore[arg-type]
    rows = rows_of(tokens_in(*lengths, **more), section)  # type: ignore[arg-type]
    return sample_of(rows, len(rows))


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=30))
def test_every_pair_of_neighbors_in_a_document_is_learned_once(lengths: list[int]) -> None:
    ends = np.cumsum(lengths).tolist()
    pairs = [n for n in range(ends[-1] - 1) if n + 1 not in ends]
    if not pairs:
        with pytest.raises(RecipeError, match=wording("the text has")):
            packed(*lengths)
        return
    batch = packed(*lengths)
    counts = batch.labels != NOT_COUNTED
    assert sorted(batch.inputs[counts].tolist()) == pairs
    assert torch.equal(batch.labels[counts], batch.inputs[counts] + 1)
    assert batch.counted == batch.tokens == len(pairs)
    # Each document, or piece of one, begins at position 0 and runs on by one.
    for positions in batch.positions.tolist():
        assert positions[0] == 0
        assert all(b in {a + 1, 0} for a, b in pairwise(positions))
    # The host says where they end: in every sequence, and in every part of a batch.
    for part in [batch, *batch.parts(2), batch.share(0, 2), batch.filled(len(batch) + 1)]:
        assert part.ends is not None
        for positions, ends in zip(part.positions.tolist(), part.ends.tolist(), strict=True):
            begins = [place for place, one in enumerate(positions) if one == 0]
            assert ends[: len(begins)] == [*begins[1:], len(positions)]
            assert set(ends[len(begins) :]) <= {len(positions)}
            assert part.longest > max(positions)


def test_each_has_a_sequence_of_its_own_where_none_are_packed() -> None:
    batch = packed(3, 4, 12, packing="none")
    assert batch.inputs.tolist() == [
        [0, 1, 0, 0, 0, 0, 0, 0],
        [3, 4, 5, 0, 0, 0, 0, 0],
        [7, 8, 9, 10, 11, 12, 13, 14],
        [15, 16, 17, 0, 0, 0, 0, 0],
    ]
    assert batch.positions[0].tolist() == [0, 1, 0, 1, 2, 3, 4, 5]
    assert batch.tokens == 2 + 3 + 8 + 3


def test_only_answers_count_and_what_has_none_is_left_out() -> None:
    batch = packed(4, 5, 3, answers=[2, 3, 6])
    assert len(batch) == 1
    assert batch.inputs[0].tolist() == [4, 5, 6, 7, 0, 1, 2, 0]
    assert batch.labels[0].tolist() == [-100, 6, -100, -100, -100, 2, 3, -100]
    assert (batch.counted, batch.tokens) == (3, 7)


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=20),
    answers=st.sets(st.integers(0, 600), min_size=1),
)
def test_every_answered_token_is_learned_once(lengths: list[int], answers: set[int]) -> None:
    begins = {0, *np.cumsum(lengths).tolist()}  # nothing is before them
    learned = sorted(one for one in answers if one < sum(lengths) and one not in begins)
    if not learned:
        return
    batch = packed(*lengths, answers=sorted(answers))
    assert sorted(batch.labels[batch.labels != NOT_COUNTED].tolist()) == learned
    assert (batch.labels != NOT_COUNTED).any(dim=1).all()


def test_what_attention_costs_is_counted_by_document() -> None:
    wrapped = rows_of(tokens_in(50, 50), DataSection(sequence_length=10))
    assert wrapped.seen_tokens() == 10
    section = DataSection(sequence_length=10, packing="best-fit")
    assert rows_of(tokens_in(11), section).seen_tokens() == 10
    assert rows_of(tokens_in(3, 9), section).seen_tokens() == pytest.approx((4 + 64) / 10)
    assert rows_of(tokens_in(3, 9), section).seen_tokens(3) == pytest.approx((4 + 8 * 3) / 10)
    assert wrapped.seen_tokens(3) == 3


@pytest.mark.wording
@pytest.mark.parametrize(("packing", "inputs"), [("wrapped", 40), ("best-fit", 4 + 11 + 29)])
def test_the_numbers_of_the_data_s_line_add_up(packing: str, inputs: int) -> None:
    section = DataSection(sequence_length=40, packing=packing)  # type: ignore[arg-type]
    tokens = tokens_in(5, 12, 30)
    rows = rows_of(tokens, section)
    line = next(summarize(Recipe(data=section), [Sequences(tokens, rows)], tokens.counts))
    documents, every, used, count, length, padding, rest = map(
        float, re.findall(r"\d[\d,]*(?:\.\d+)?", line.replace(",", ""))
    )
    assert (documents, every, used) == (3, 5 + 12 + 30, inputs)
    assert used + rest == every
    assert padding == pytest.approx(100 * (1 - used / (count * length)), abs=0.05)


@pytest.mark.parametrize("packing", ["wrapped", "best-fit"])
def test_what_is_held_out_is_not_trained_on(packing: str) -> None:
    section = DataSection(sequence_length=8, packing=packing)  # type: ignore[arg-type]
    tokens = tokens_in(*[10] * 20)
    kept, held = hold_out(tokens, section, share=0.23)
    assert kept.ends[-1] == len(kept.ids)
    assert held.ends[-1] == len(held.ids)
    assert len(kept.ids) + len(held.ids) == 200
    if packing == "best-fit":
        assert len(kept.ids) == 150, "whole documents, at least as many as asked for"
    learned = Batches(rows_of(kept, section), batch_size=19, seed=0).batch(0)
    tested = sample_of(rows_of(held, section), 64)
    assert not set(learned.inputs.flatten().tolist()) & (set(tested.labels.flatten().tolist()))
    with pytest.raises(RecipeError, match=wording("share")):
        hold_out(tokens_in(100), DataSection(sequence_length=8, packing="best-fit"), share=0.1)


# Of torch, about how transformers calls flex attention.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:flex_attention called without")
@pytest.mark.parametrize("attention", ["eager", "sdpa", "flex_attention"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_document_is_as_if_it_were_alone(family: str, attention: str) -> None:
    batch = packed(9, 6, 4, 7, 13, length=16)
    config = AutoConfig.for_model(**PRESETS[f"{family}-tiny"], vocab_size=64)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    begins = 0
    # The compiler has nothing to do with who sees whom, and fails on some machines' CPUs.
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        together = model(
            input_ids=batch.inputs, position_ids=batch.positions, use_cache=False
        ).logits
        for row, ids in enumerate(batch.inputs):
            starts = [n for n, place in enumerate(batch.positions[row].tolist()) if place == 0]
            for begin, end in zip(starts, [*starts[1:], 16], strict=True):
                alone = model(input_ids=ids[None, begin:end], use_cache=False).logits[0]
                assert torch.allclose(together[row, begin:end], alone, atol=2e-6)
                begins += 1
    assert begins > len(batch)

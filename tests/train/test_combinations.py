"""The command that compares real chat templates with transformers, in short."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.train.combinations.__main__ import main
from tests.train.combinations.cases import COMBINATIONS
from tests.train.combinations.compared import NOT_LEARNED, compare
from tests.train.combinations.trained import readings


@pytest.mark.slow
def test_tokens_and_what_is_learned_of_them_are_what_transformers_makes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["--tokens"])
    said = capsys.readouterr().out
    assert code == 0, said
    assert f"{len(COMBINATIONS)} of {len(COMBINATIONS)} equal" in said


@pytest.mark.slow
def test_losses_are_those_of_transformers_on_every_number_of_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["--every", "25"])
    said = capsys.readouterr().out
    assert code == 0, said
    assert [line.split()[1:4] for line in said.splitlines()[1:-1]] == [
        ["llama3", "llama3", "all"],
        ["mistral_v2", "mistral3", "answers"],
        ["alpaca", "gpt2", "weighted"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "says"),
    [("inputs", "is '!', and '<|eot_id|>'"), ("labels", "'<|eot_id|>', is not learned")],
)
def test_the_first_token_that_differs_is_named(changed: str, says: str, tmp_path: Path) -> None:
    one = next(one for one in COMBINATIONS if (one.template, one.mask) == ("llama3", "answers"))
    [(_, told)] = readings([one], tmp_path)
    end = one.reference(tmp_path).tokenizer.eos_token_id
    inputs, labels, _ = told[1][0].batches[0]
    tokens, other = (inputs, 0) if changed == "inputs" else (labels, NOT_LEARNED)
    tokens[tuple(np.argwhere(tokens == end)[0])] = other
    (said,) = compare(one, tmp_path, told).differences
    assert says in said

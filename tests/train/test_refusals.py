"""What one rank cannot do is said by all: one line, not the words of a network."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.train.families import write_model
from tests.train.forked import train
from tests.train.ranks import run_ranks
from tests.train.tokenizer_files import SIZE, TEXT, write_tokenizer

INDEX = "model.safetensors.index.json"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    write_model("olmo2", model, vocab_size=SIZE).save_pretrained(model, max_shard_size="20KB")
    (model / "model.safetensors").unlink()
    write_tokenizer("json", model, "PreTrainedTokenizerFast")
    (tmp_path / "a.txt").write_text("\n".join(TEXT))
    file = tmp_path / "recipe.toml"
    file.write_text(
        f'[model]\npath = "{model}"\n'
        f'[data]\nsource = "{tmp_path / "a.txt"}"\nsequence_length = 16\n'
        '[train]\ndevice = "cpu"\nsteps = 1\nbatch_size = 4\n[pipeline]\nmicrobatches = 2\n'
    )
    return file


@pytest.mark.slow
def test_an_index_with_a_wrong_shard_is_named_by_every_rank(recipe: Path) -> None:
    index = recipe.parent / "model" / INDEX
    listed = json.loads(index.read_text())
    names = listed["weight_map"]
    tensor, right = next(iter(names.items()))
    wrong = names[tensor] = next(one for one in names.values() if one != right)
    index.write_text(json.dumps(listed))
    for ended in run_ranks(recipe, ["one", "two"]):
        assert ended.exit_code == 2
        assert "Traceback" not in ended.err
        said = [line for line in ended.err.splitlines() if line.startswith("mntrain: ")]
        assert len(said) == 1
        assert wrong in said[0]
        assert tensor in said[0]


def train_with_a_fault(words: list[str]) -> None:
    """The trainer, whose second rank has a fault that nobody foresaw."""
    from jupyter_mntrain.train import prepare

    def broken(*_: object) -> None:
        raise TypeError("a fault of our own")

    if os.environ["RANK"] == "1":
        prepare.refuse_unfit = broken
    train(words)


def train_as_another_version(words: list[str]) -> None:
    """The trainer, whose second rank writes messages otherwise."""
    from jupyter_mntrain.train import prepare

    if os.environ["RANK"] == "1":
        prepare.VERSION = "0"
    train(words)


@pytest.mark.slow
def test_ranks_whose_messages_differ_say_so_before_they_exchange_any(recipe: Path) -> None:
    (recipe.parent / "model" / INDEX).unlink()
    write_model("olmo2", recipe.parent / "model", vocab_size=SIZE)
    words = ("--set", "pipeline.transfer=int8")
    for ended in run_ranks(recipe, ["one", "two"], *words, program=train_as_another_version):
        assert ended.exit_code == 2
        assert "Traceback" not in ended.err
        (said,) = (line for line in ended.err.splitlines() if line.startswith("mntrain: "))
        assert "format of transfers" in said
        assert "pipeline.transfer" in said


@pytest.mark.slow
def test_a_fault_of_one_rank_is_told_by_the_others(recipe: Path) -> None:
    first, second = run_ranks(recipe, ["one", "two"], program=train_with_a_fault)
    assert "TypeError: a fault of our own" in second.err
    assert "Traceback" in second.err
    assert first.exit_code == 2
    assert "two: rank 1: TypeError: a fault of our own" in first.err
    assert "Traceback" not in first.err

"""Model export: transformers loads what a run exports."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import msgspec
import pytest
import torch
from huggingface_hub import ModelCard
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
)

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.quantities import by_size
from jupyter_mntrain.recipe.parse import preset_config
from jupyter_mntrain.recipe.sections import DataSection, ModelSection
from jupyter_mntrain.train import TrainResult, parse_recipe, train
from jupyter_mntrain.train.checkpoint.export import CONTENTS, ModelContents
from jupyter_mntrain.train.data.batches import Batch, sample_of
from jupyter_mntrain.train.data.corpus import read_corpus
from jupyter_mntrain.train.data.sequences import hold_out, rows_of
from jupyter_mntrain.train.data.tokens import Tokens, trained_tokens
from tests.train.ranks import run_ranks
from tests.wording import says, wording

VOCABULARY = 300

FIELDS: dict[str, dict[str, Any]] = {
    "llama": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        }
    },
    "mistral": {"sliding_window": 6},
    "qwen2": {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2},
    "qwen3": {},
}
"""What makes each family's positions or attention unlike a plain Llama's."""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"bubble {n} schedule {n * n} microbatch\n" for n in range(400)))
    return path


def changes(text: Path, *more: str) -> list[str]:
    return [
        *(f"data.source={text}", f"data.vocabulary_size={VOCABULARY}"),
        *("data.sequence_length=16", "pipeline.microbatches=2", "train.device=cpu"),
        *("train.steps=3", "train.batch_size=4", "optimizer.warmup_steps=0"),
        *more,
    ]


def alone(text: Path, *more: str) -> TrainResult:
    return train(parse_recipe("", changes(text, *more)))


def tokens_of(text: Path) -> Tokens:
    section = DataSection(source=str(text), vocabulary_size=VOCABULARY)
    return trained_tokens(read_corpus(section), section)


def evaluated(directory: Path, rows: Batch) -> float:
    """The mean loss per token of a directory's model, as transformers has it."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(rows.inputs).logits.flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, rows.labels.flatten()).item()


def described(config: Any) -> dict[str, Any]:
    return {k: v for k, v in config.to_dict().items() if k != "_name_or_path"}


def hugging_face(family: str, directory: Path, text: Path, *, tied: bool) -> None:
    """A directory as people download it."""
    section = ModelSection(preset=f"{family}-tiny", tie_embeddings=tied)
    config = AutoConfig.for_model(
        **preset_config(section), **FIELDS[family], vocab_size=VOCABULARY, eos_token_id=0
    )
    torch.manual_seed(3)
    AutoModelForCausalLM.from_config(config).save_pretrained(directory, max_shard_size="60KB")
    tokens_of(text).tokenizer.save_pretrained(directory)
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    (directory / "LICENSE").write_text("free")


def test_shards_are_cut_in_order_and_a_large_tensor_has_one_of_its_own() -> None:
    sizes = {"a": 3, "b": 3, "c": 9, "d": 1, "e": 2}
    assert list(by_size(sizes, sizes.__getitem__, 6)) == [["a", "b"], ["c"], ["d", "e"]]
    assert list(by_size([], sizes.__getitem__, 6)) == []


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", list(FIELDS))
def test_a_directory_that_is_trained_with_no_rate_comes_out_as_it_went_in(
    family: str, tied: bool, text: Path, tmp_path: Path
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    hugging_face(family, source, text, tied=tied)
    more = [f"model.path={source}", f"output.directory={target}", "output.shard_gb=0.0001"]
    # So small a rate that no float32 moves.
    alone(text, *more, "optimizer.learning_rate=1e-30")
    before, after = (AutoModelForCausalLM.from_pretrained(one) for one in (source, target))
    assert described(after.config) == described(before.config)
    ids = torch.arange(24).view(2, 12)
    assert torch.equal(before(ids).logits, after(ids).logits)
    assert len(list(target.glob("*.safetensors"))) > 2
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "LICENSE"):
        assert (target / name).read_bytes() == (source / name).read_bytes()
    names = json.loads((target / "model.safetensors.index.json").read_text())["weight_map"]
    assert ("lm_head.weight" in names) is not tied


EVALUATE = ("model.preset=llama-tiny", "evaluation.interval_steps=3", "evaluation.share=0.2")


def rows_held_out(text: Path) -> Batch:
    section = DataSection(source=str(text), sequence_length=16)
    _, held = hold_out(tokens_of(text), section, share=0.2)
    return sample_of(rows_of(held, section), 64)


@pytest.mark.slow
def test_transformers_has_the_loss_that_training_ended_with(text: Path, tmp_path: Path) -> None:
    result = alone(text, *EVALUATE, f"output.directory={tmp_path / 'out'}")
    assert result.evaluations[3] < result.evaluations[0]
    loss = evaluated(tmp_path / "out", rows_held_out(text))
    assert loss == pytest.approx(result.evaluations[3], rel=1e-6)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.decode(tokenizer("bubble 7 schedule").input_ids) == "bubble 7 schedule"
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["dtype"], config["eos_token_id"]) == ("float32", tokenizer.eos_token_id)
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.library_name == "transformers"
    assert f"{result.evaluations[3]:.4f}" in card.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "shared", "gather"),
    [("eager-1f1b", True, True), ("eager-1f1b", False, True), ("zbv", False, False)],
)
def test_ranks_write_their_own_tensors_each(
    schedule: str, shared: bool, gather: bool, text: Path, tmp_path: Path
) -> None:
    """In a directory of all, or one of each node: then the head's gets them, or each keeps its."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("")
    nodes = [tmp_path / one for one in ("a", "b")]
    for node in nodes:
        node.mkdir()
    where = str(tmp_path / "out") if shared else "out"
    words = changes(text, *EVALUATE, f"output.directory={where}", f"pipeline.schedule={schedule}")
    words += ["model.tie_embeddings=true", "pipeline.microbatches=4"]
    words.append(f"output.gather={str(gather).lower()}")
    ended = run_ranks(
        recipe, ["a", "b"], *(w for one in words for w in ("--set", one)), directories=nodes
    )
    assert [one.exit_code for one in ended] == [0, 0], [one.err for one in ended]
    out = tmp_path / "out" if shared else nodes[0] / "out"
    contents = msgspec.json.decode((out / CONTENTS).read_bytes(), type=ModelContents)
    assert contents.step == 3
    assert {one.host for one in contents.files.values()} == {"a", "b"}
    for one in contents.files.values():
        is_with_head = shared or gather or one.host == "a"
        assert (out / one.name).exists() is is_with_head
        if not is_with_head:
            shutil.copyfile(tmp_path / one.host / "out" / one.name, out / one.name)
        content = (out / one.name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (one.size_bytes, one.sha256)
    assert (nodes[1] / "out").exists() is not (shared or gather)
    assert not list(tmp_path.rglob(".out.*"))
    said = next(line for line in ended[0].out.splitlines() if "evaluation after step 3" in line)
    loss = evaluated(out, rows_held_out(text))
    assert f"{loss:.4f}" in said


@pytest.mark.slow
def test_a_directory_in_use_is_refused_before_the_first_step(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    words = ("model.preset=llama-tiny", f"output.directory={out}")
    with pytest.raises(RecipeError, match=wording("the directory is not empty")) as caught:
        alone(text, *words)
    assert says("output.replace", caught.value.fix or "")
    assert (out / "thesis.txt").exists()
    alone(text, *words, "output.replace=true")
    assert (out / "config.json").exists()
    assert not (out / "thesis.txt").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(RecipeError, match=wording("cannot write the model")):
        alone(text, "model.preset=llama-tiny", f"output.directory={tmp_path / 'file' / 'out'}")


@pytest.mark.slow
def test_a_run_replaces_the_model_that_it_wrote_itself(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("model.preset=llama-tiny", f"output.directory={tmp_path / 'out'}")
    monkeypatch.setenv("MNTRAIN_RUN", "j-00000001")
    alone(text, *words)
    alone(text, *words)
    monkeypatch.setenv("MNTRAIN_RUN", "j-00000002")
    with pytest.raises(RecipeError, match=wording("the directory is not empty")):
        alone(text, *words)


@pytest.mark.slow
def test_beside_the_checkpoints_where_no_directory_is_named(text: Path, tmp_path: Path) -> None:
    words = ("model.preset=llama-tiny", f"checkpoint.directory={tmp_path / 'saves'}")
    alone(text, *words)
    assert (tmp_path / "saves" / "model" / "model.safetensors").exists()
    # Launched again it goes on from the last checkpoint, and its model takes the place.
    alone(text, *words)
    alone(text, *words, "output.at_end=false", f"checkpoint.directory={tmp_path / 'more'}")
    assert not (tmp_path / "more" / "model").exists()

"""``train()``, called in this process."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

import msgspec
import pytest
import torch.distributed as dist
from transformers import AutoTokenizer

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.sequences import DataPreview
from jupyter_mntrain.recipe.sections import PYTHON_LIBRARY, DataSection
from jupyter_mntrain.train import TrainResult, parse_recipe, train
from jupyter_mntrain.train.data.corpus import read_corpus
from jupyter_mntrain.train.data.tokens import trained_tokens
from tests.wording import says, wording

STEPS = 8


def result(text: Path, *overrides: str) -> TrainResult:
    changes = [
        *("model.preset=llama-tiny", f"data.source={text}", "data.vocabulary_size=300"),
        *("data.sequence_length=16", "pipeline.microbatches=2", "train.device=cpu"),
        *(f"train.steps={STEPS}", "train.batch_size=4", "optimizer.warmup_steps=0"),
    ]
    return train(parse_recipe("", [*changes, *overrides]))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"bubble {n} schedule {n * n} microbatch\n" for n in range(400)))
    return path


@pytest.mark.slow
def test_the_loss_falls_and_a_second_run_is_the_same(text: Path) -> None:
    first = result(text)
    assert (first.rank, first.world_size, first.tokens_per_step) == (0, 1, 64)
    assert len(first.losses) == len(first.gradient_norms) == len(first.step_s) == STEPS
    assert first.losses[0] == pytest.approx(5.7, abs=0.1)  # ln(300)
    assert first.losses[-1] < first.losses[0] - 0.3
    assert result(text).losses == first.losses


@pytest.mark.slow
def test_microbatches_and_accumulation_do_not_change_what_is_learned(text: Path) -> None:
    whole = result(text, "pipeline.microbatches=1")
    for change in ("pipeline.microbatches=4", "train.accumulation=2"):
        assert result(text, change).losses == pytest.approx(whole.losses, rel=1e-5)


@pytest.mark.slow
def test_seeds_change_model_and_data_apart(text: Path) -> None:
    runs = [result(text, *c) for c in ([], ["train.seed=1"], ["data.seed=1"])]
    assert len({run.losses for run in runs}) == 3


@pytest.mark.slow
def test_it_evaluates_first_between_steps_and_at_the_end_and_trains_the_same(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MNTRAIN_METRICS_DIR", str(tmp_path))
    section = ("evaluation.interval_steps=3", "evaluation.share=0.2", "evaluation.sequences=5")
    seldom = ("evaluation.interval_steps=1000", *section[1:])
    run = result(text, *section)
    assert sorted(run.evaluations) == [0, 3, 6, 8]
    assert run.evaluations[8] < run.evaluations[0] - 0.2
    assert result(text, *seldom).losses == run.losses, "evaluating changes nothing"
    assert result(text).evaluations == {}
    samples = [json.loads(line) for line in (tmp_path / "rank-0.ndjson").read_text().splitlines()]
    told = [(one["step"], one["loss"]) for one in samples if one["kind"] == "evaluation"]
    assert told[:4] == sorted(run.evaluations.items()), "the one before the first step, too"


@pytest.mark.slow
def test_sources_by_weight_and_text_of_its_own_to_evaluate_on(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, held = tmp_path / "b.txt", tmp_path / "held.txt"
    other.write_text(text.read_text()[:3000])
    held.write_text(text.read_text()[-3000:])
    run = result(
        text,
        *(f"data.source={PYTHON_LIBRARY}", f"data.evaluation_path={held}"),
        f'data.sources=[{{path="{text}", weight=3}}, {{path="{other}"}}]',
        *("evaluation.interval_steps=1", "train.steps=2"),
    )
    assert sorted(run.evaluations) == [0, 1, 2]
    said = capsys.readouterr().out
    assert says(f"data: 75.0% from {text}: 1 documents, ", said)
    assert says(f"data: 25.0% from {other}: 1 documents, ", said)


def test_epochs_are_counted_said_and_recorded(
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MNTRAIN_METRICS_DIR", str(tmp_path / "metrics"))
    more = ("train.epochs=0.05", "optimizer.min_ratio=0.5", "optimizer.schedule=linear")
    run = result(text, *more, "evaluation.interval_steps=100", "evaluation.share=0.2")
    steps = len(run.losses)
    said = capsys.readouterr().out
    assert says(f"data: 0.05 epochs = {steps} steps; an epoch is ", said)
    assert f"step {steps}/{steps} " in said
    assert steps == ceil(0.05 * float(said.partition("an epoch is ")[2].split()[0]))
    assert max(run.evaluations) == steps
    lines = (tmp_path / "metrics" / "rank-0.ndjson").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    (begun,) = [one for one in told if one["kind"] == "start"]
    assert begun["total_steps"] == steps
    # The first sequences are in the log as on the page.
    data = msgspec.convert(begun["data"], DataPreview)
    assert len(data.sequences) == 3
    assert all(f"data: {line}\n" in said for line in data.lines())
    rates = [one["learning_rate"] for one in told if one["kind"] == "step"]
    assert rates[-1] == pytest.approx(0.5 * rates[0])


def test_too_little_text_to_hold_any_out_is_one_line(text: Path) -> None:
    with pytest.raises(
        RecipeError, match=wording(r"evaluation.share = 0\.001 holds out \d+ of \d+ tokens")
    ):
        result(text, "evaluation.interval_steps=1", "evaluation.share=0.001")


@pytest.mark.parametrize("attention", ["flex_attention", "flash_attention_2"])
def test_attention_that_cannot_be_trained_here_is_one_line(text: Path, attention: str) -> None:
    with pytest.raises(RecipeError, match=f'model.attention = "{attention}"'):
        result(text, f"model.attention={attention}", "model.dtype=bfloat16")


@pytest.mark.slow
def test_conversations_are_learned_and_the_model_brings_its_template(
    tmp_path: Path,
) -> None:
    rows = [
        {"prompt": f"What is {n} plus {n}?", "completion": f"It is {n + n}."} for n in range(200)
    ]
    data, out = tmp_path / "chat.jsonl", tmp_path / "out"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["data.format=chat", "data.answers_only=true", "data.sequence_length=64"]
    run = result(data, *words, f"output.directory={out}", "evaluation.interval_steps=8")
    assert run.losses[-1] < run.losses[0] - 0.3
    assert run.evaluations[8] < run.evaluations[0]
    asked = [{"role": "user", "content": "What is 3 plus 3?"}]
    written = AutoTokenizer.from_pretrained(out).apply_chat_template(
        asked, tokenize=False, add_generation_prompt=True
    )
    assert written == "<|im_start|>user\nWhat is 3 plus 3?<|im_end|>\n<|im_start|>assistant\n"


def test_bfloat16_trains(text: Path) -> None:
    losses = result(text, "model.dtype=bfloat16").losses
    assert losses[-1] < losses[0] - 0.3


@pytest.mark.slow
def test_clipping_limits_the_step(text: Path) -> None:
    # The reported norm is the one before clipping.
    free, clipped = result(text), result(text, "optimizer.clip_norm=1e-6")
    assert free.gradient_norms[0] == clipped.gradient_norms[0]
    assert free.losses != clipped.losses


def test_a_refusal_leaves_no_process_group(text: Path) -> None:
    with pytest.raises(RecipeError, match=wording("no such file")):
        result(text, "data.source=/nowhere")
    assert not dist.is_initialized()
    assert result(text).losses
    assert not dist.is_initialized()


@pytest.mark.slow
def test_a_saved_model_goes_on_learning_with_its_own_tokenizer(text: Path, tmp_path: Path) -> None:
    directory = saved_model(text, tmp_path / "model", vocabulary_size=280)
    losses = from_directory(text, directory).losses
    assert losses[0] == pytest.approx(5.6, abs=0.15)  # ln(280)
    # The weights are the directory's: the seed of fresh ones makes no difference.
    assert from_directory(text, directory, "train.seed=1").losses == losses
    assert losses[-1] < losses[0] - 0.3


def test_a_tokenizer_the_model_has_no_room_for(text: Path, tmp_path: Path) -> None:
    directory = saved_model(text, tmp_path / "model", vocabulary_size=260)
    with pytest.raises(
        RecipeError, match=wording(r"the model has 260 tokens\. Fix: use tokenizer and")
    ):
        from_directory(text, directory)


def from_directory(text: Path, directory: Path, *overrides: str) -> TrainResult:
    changes = [f"model.path={directory}", f"data.source={text}", "train.device=cpu"]
    changes += ["data.sequence_length=16", "pipeline.microbatches=2", "train.batch_size=4"]
    changes += [f"train.steps={STEPS}", "optimizer.warmup_steps=0"]
    changes += ["optimizer.learning_rate=1e-2"]  # the model is tiny and the steps are few
    return train(parse_recipe("", [*changes, *overrides]))


def saved_model(text: Path, directory: Path, *, vocabulary_size: int) -> Path:
    """What transformers leaves in a directory, and a tokenizer of 280 tokens next to it."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=vocabulary_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        eos_token_id=0,
    )
    Qwen2ForCausalLM(config).save_pretrained(directory)
    cache = directory / "cache"
    section = DataSection(source=str(text), vocabulary_size=280)
    trained_tokens(read_corpus(section), section, cache=cache)
    next(cache.glob("tokenizer-*.json")).rename(directory / "tokenizer.json")
    return directory

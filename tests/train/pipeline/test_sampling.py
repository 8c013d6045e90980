"""Samples during training equal what transformers generates with the same weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.train import TrainResult, parse_recipe, train
from tests.searches import runs_all
from tests.train.ranks import Ended, run_ranks

SENTENCE = "The agent on each node launches one stage. "
PROMPTS = ("The agent on", "each")
STEPS, TOKENS = 60, 24


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(SENTENCE * 400)
    return path


def changes(text: Path, *more: str) -> list[str]:
    """Enough to know one sentence by heart: no two tokens are about as likely then."""
    return [
        *("model.preset=llama-tiny", f"data.source={text}", "data.vocabulary_size=275"),
        *("data.sequence_length=32", "pipeline.microbatches=2", "train.device=cpu"),
        *(f"train.steps={STEPS}", "train.batch_size=8", "optimizer.learning_rate=5e-3"),
        *(f"evaluation.interval_steps={STEPS // 2}", "evaluation.sequences=4", *more),
    ]


def asking(prompts: tuple[str, ...] = PROMPTS, tokens: int = TOKENS) -> list[str]:
    return [
        f"evaluation.prompts={json.dumps(prompts, ensure_ascii=False)}",
        f"evaluation.prompt_tokens={tokens}",
    ]


def alone(text: Path, *more: str) -> TrainResult:
    return train(parse_recipe("", changes(text, *more)))


def greedy(directory: Path, *prompts: str, tokens: int = TOKENS) -> list[str]:
    """As transformers goes on from each, with a cache and one at a time."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    found = []
    for prompt in prompts:
        given = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        ids = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
        found.append(tokenizer.decode(ids[0, given.shape[1] :], skip_special_tokens=True))
    return found


def samples_of(metrics: Path, kind: str = "text", rank: int = 0) -> list[dict[str, Any]]:
    lines = (metrics / f"rank-{rank}.ndjson").read_text().splitlines()
    return [one for one in map(json.loads, lines) if one["kind"] == kind]


@pytest.mark.slow
def test_every_evaluation_has_a_text_for_each_prompt(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MNTRAIN_METRICS_DIR", str(tmp_path))
    run = alone(text, *asking(), f"output.directory={tmp_path / 'out'}")
    assert list(run.samples) == [0, STEPS // 2, STEPS]
    assert list(run.samples[STEPS]) == greedy(tmp_path / "out", *PROMPTS)
    assert (SENTENCE * 3).startswith(PROMPTS[0] + run.samples[STEPS][0])
    told = [(one["step"], one["prompt"], one["text"]) for one in samples_of(tmp_path)]
    assert told == [
        (step, prompt, text)
        for step, texts in run.samples.items()
        for prompt, text in zip(PROMPTS, texts, strict=True)
    ]
    logged = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sample ")]
    assert len(logged) == len(told)
    assert logged[-1] == f"sample after step {STEPS}: 'each' → {run.samples[STEPS][1]!r}"


@pytest.mark.slow
def test_asking_changes_nothing_of_the_training(text: Path) -> None:
    few = ("train.steps=8", "evaluation.interval_steps=2")
    torch.manual_seed(0)
    silent = alone(text, *few)
    after = torch.get_rng_state()
    asked = alone(text, *few, *asking())
    assert asked.losses == silent.losses
    assert asked.gradient_norms == silent.gradient_norms
    assert asked.evaluations == silent.evaluations
    assert torch.equal(torch.get_rng_state(), after)
    assert (len(asked.samples), silent.samples) == (5, {})


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["plain", "chunked"])
def test_prompts_that_do_not_fit_in_one_microbatch_go_in_several(
    loss: str, text: Path, tmp_path: Path
) -> None:
    prompts = tuple(SENTENCE[begin : begin + 9].strip() for begin in range(0, 32, 5))
    words = [f"memory.loss={loss}", "train.batch_size=4", f"output.directory={tmp_path / 'out'}"]
    run = alone(text, *asking(prompts), *words)
    assert list(run.samples[STEPS]) == greedy(tmp_path / "out", *prompts)


ALL_CASES = pytest.mark.skipif(
    not runs_all(), reason="test_equality.py chooses tokens on every schedule: MNTRAIN_ALL_CASES"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "ranks"),
    [
        pytest.param("interleaved-1f1b", 2, marks=ALL_CASES),
        pytest.param("1f1b", 3, marks=ALL_CASES),
        ("zbv", 3),
    ],
)
def test_on_several_ranks_it_is_what_transformers_writes(
    schedule: str, ranks: int, text: Path, tmp_path: Path
) -> None:
    words = [f"pipeline.schedule={schedule}", f"output.directory={tmp_path / 'out'}"]
    words.append(f"evaluation.interval_steps={STEPS}")
    ended = trained(text, tmp_path / "metrics", ranks, *words, *asking(tokens=12))
    told = [one["text"] for one in samples_of(tmp_path / "metrics")]
    assert told[-2:] == greedy(tmp_path / "out", *PROMPTS, tokens=12)
    assert (SENTENCE * 3).startswith(PROMPTS[0] + told[-2])
    assert f"sample after step {STEPS}: 'The agent on' → {told[-2]!r}" in ended[0].out.splitlines()
    others = [samples_of(tmp_path / "metrics", rank=rank) for rank in range(1, ranks)]
    assert not any(others), "the first rank speaks for all"


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [pytest.param("eager-1f1b", marks=ALL_CASES), "zbv"])
def test_on_several_ranks_asking_changes_nothing_of_the_training(
    schedule: str, text: Path, tmp_path: Path
) -> None:
    few = [f"pipeline.schedule={schedule}", "train.steps=6", "evaluation.interval_steps=2"]
    trained(text, tmp_path / "silent", 2, *few)
    trained(text, tmp_path / "asked", 2, *few, *asking(tokens=6))
    silent, asked = (samples_of(tmp_path / one, "step") for one in ("silent", "asked"))
    for number in ("loss", "grad_norm"):
        assert [one[number] for one in asked] == [one[number] for one in silent]
    assert len(samples_of(tmp_path / "asked")) == 4 * len(PROMPTS)


def trained(text: Path, metrics: Path, ranks: int, *more: str) -> list[Ended]:
    words = ["model.layers=6", "pipeline.microbatches=6", "train.batch_size=6", *more]
    recipe = text.with_name("recipe.toml")
    recipe.write_text("")
    sets = [word for one in changes(text, *words) for word in ("--set", one)]
    ended = run_ranks(recipe, [f"n{rank}" for rank in range(ranks)], *sets, metrics=metrics)
    assert [one.exit_code for one in ended] == [0] * ranks, [one.err for one in ended]
    return ended


@pytest.mark.slow
def test_a_prompt_for_chat_is_the_users_turn_and_the_answer_ends_by_itself(tmp_path: Path) -> None:
    rows = [{"prompt": f"Who are you? {n % 3}", "completion": "I am Samantha."} for n in range(300)]
    data = tmp_path / "chat.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["data.format=chat", "data.answers_only=true", "data.vocabulary_size=300"]
    words += ["data.sequence_length=64"]
    run = alone(data, *words, *asking(("Who are you? 2",)))
    assert run.samples[STEPS] == ("I am Samantha.",)


@pytest.mark.wording
@pytest.mark.parametrize(
    ("prompts", "tokens", "says"),
    [
        (("a", SENTENCE), 20, "data.sequence_length = 24. Fix: use prompt_tokens = "),
        (("each " * 30,), 4, "Fix: shorten it, or use longer sequences"),
    ],
)
def test_a_prompt_that_leaves_no_room_is_one_line(
    prompts: tuple[str, ...], tokens: int, says: str, text: Path
) -> None:
    with pytest.raises(RecipeError) as caught:
        alone(text, *asking(prompts, tokens), "data.sequence_length=24")
    assert says in str(caught.value)

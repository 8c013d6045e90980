"""Model card: valid for the hub, with what is known and without the machine's folders."""

from __future__ import annotations

import msgspec
from huggingface_hub import ModelCard

from jupyter_mntrain.model.records.checkpoint import RunFigures
from jupyter_mntrain.recipe.learning_rate import with_steps
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.train.checkpoint.export import model_card
from jupyter_mntrain.train.checkpoint.result import TrainResult
from tests.wording import says

CACHE = "/home/me/.cache/huggingface/hub/models--meta-llama--Llama-3.2-1B/snapshots/abc"

RESULT = TrainResult(
    rank=0,
    world_size=2,
    tokens_per_step=512,
    losses=(3.0, 2.0, 1.25),
    gradient_norms=(1.0, 1.0, 1.0),
    step_s=(9.0, 0.5, 0.5),
    tokens_per_s=154.2,
    evaluations={0: 3.5, 30: 1.5, 40: float("nan"), 60: 1.75},
)
FIGURES = RESULT.figures(60, ("100.0% from /home/me/a.jsonl: 8 documents, 4,000 tokens",))


def card_of(*changes: str, figures: RunFigures = FIGURES) -> ModelCard:
    return ModelCard(model_card(parse_recipe("", changes), "samantha", figures))


def test_a_card_has_the_base_model_data_figures_and_settings() -> None:
    card = card_of(
        *(f"model.path={CACHE}", "data.source=/home/me/a.jsonl", "train.steps=80"),
        *("train.batch_size=4", "data.sequence_length=128", "optimizer.learning_rate=8e-3"),
        "output.directory=/home/me/out",
    )
    assert card.data.to_dict() == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "base_model": "meta-llama/Llama-3.2-1B",
        "tags": ["jupyter_mntrain"],
    }
    assert "/home/me" not in card.content
    for row in (
        "| steps | 60 of 80 |",
        "| loss of the last step | 1.2500 |",
        "| evaluation loss, step 60 | 1.7500 |",
        "| best evaluation loss, step 30 | 1.5000 |",
        "| tokens per second | 154 on 2 ranks |",
    ):
        assert says(row, card.text)
    assert "from a.jsonl: 8 documents, 4,000 tokens" in card.text
    assert "learning_rate = 0.008" in card.text
    assert 'source = "a.jsonl"' in card.text
    assert "[output]" not in card.text


def test_the_steps_of_epochs_are_a_figure_and_no_setting() -> None:
    written = parse_recipe("", ["train.epochs=3", "train.batch_size=8"])
    known = ModelCard(model_card(with_steps(written, 200), "samantha", FIGURES))
    assert "| steps | 60 of 75 |" in known.text
    assert "| epochs to make | 3 |" in known.text
    unknown = ModelCard(model_card(written, "samantha", FIGURES))
    assert "| steps | 60 |" in unknown.text
    for card in (known, unknown):
        assert "[train]\nepochs = 3.0\nbatch_size = 8\n" in card.content


def test_what_is_not_known_is_left_out() -> None:
    card = card_of("model.preset=llama-tiny", figures=RunFigures(steps=3))
    assert card.data.to_dict().get("base_model") is None
    assert "loss" not in card.text
    assert "second" not in card.text
    assert card_of("model.path=base", figures=RunFigures(steps=3)).data.base_model is None


def test_figures_go_on_from_those_of_an_earlier_attempt() -> None:
    earlier = RunFigures(20, loss=2.5, evaluations={10: 1.25, 20: 1.3, 70: 0.5})
    assert FIGURES.after(earlier).evaluations == {10: 1.25, 60: 1.75}
    assert FIGURES.after(earlier).loss == 1.25
    nothing = msgspec.structs.replace(RESULT, losses=(), step_s=(), evaluations={})
    again = nothing.figures(60, ()).after(earlier)
    assert (again.loss, again.evaluations) == (2.5, {10: 1.25, 20: 1.3})
    read = msgspec.json.decode(msgspec.json.encode(FIGURES), type=RunFigures)
    assert read == FIGURES

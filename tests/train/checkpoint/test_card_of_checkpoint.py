"""The card of a checkpoint's model says what that of the run's own says, also of a resumed run."""

from __future__ import annotations

from pathlib import Path

import msgspec
from huggingface_hub import ModelCard

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.telemetry.progress import unwatched
from jupyter_mntrain.train.checkpoint.keeping import export_checkpoint
from jupyter_mntrain.train.checkpoint.resuming import find_newest
from jupyter_mntrain.train.world import join_world
from tests.train.checkpoint.saved import EVERY, STEPS, forget, run
from tests.train.test_command import write_text

EVALUATED = (f"evaluation.interval_steps={EVERY}", "optimizer.learning_rate=1e-3")


def exported(kept: Path, target: Path) -> str:
    """The card of the newest checkpoint, written from what the checkpoint itself holds."""
    with join_world("cpu", 60.0) as world:
        source = CheckpointDirectory(kept)
        found = find_newest(world, source)
        assert found is not None
        recipe = msgspec.convert(found.manifest.recipe, Recipe)
        options = {"recipe": recipe, "run": "r", "progress": unwatched}
        export_checkpoint(world, source, found, target, **options)  # type: ignore[arg-type]
    return ModelCard.load(target / "README.md").text


def figures_of(card: str) -> dict[str, str]:
    rows = [line.strip("| ").split(" | ") for line in card.splitlines() if line.startswith("| ")]
    return dict(rows[1:])  # type: ignore[arg-type]


def test_both_cards_say_the_same_and_a_resumed_run_knows_its_best(tmp_path: Path) -> None:
    text, kept = write_text(tmp_path / "text"), tmp_path / "kept"
    end = tmp_path / "end" / "model"
    whole = run(text, kept, *EVALUATED, "output.at_end=true", f"output.directory={end}")
    at_end = ModelCard.load(end / "README.md").text
    card = exported(kept, tmp_path / "exported" / "model")
    assert card == at_end
    found = figures_of(card)
    assert found["loss of the last step"] == f"{whole.losses[-1]:.4f}"
    assert found[f"evaluation loss, step {STEPS}"] == f"{whole.evaluations[STEPS]:.4f}"
    assert "tokens per second" in found
    assert "documents" in card

    forget(kept, STEPS)
    run(text, kept, *EVALUATED, "optimizer.learning_rate=10")
    again = figures_of(exported(kept, tmp_path / "again"))
    lowest = min(loss for step, loss in whole.evaluations.items() if step < STEPS)
    assert f"{lowest:.4f}" in again.values()

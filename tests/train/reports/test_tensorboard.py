"""TensorBoard reports, read back with its own reader."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.train import parse_recipe
from jupyter_mntrain.train.reports import open_reports
from jupyter_mntrain.train.reports.base import NUMBERS, Run
from jupyter_mntrain.train.reports.tensorboard import TensorBoard
from jupyter_mntrain.train.world import World
from tests.train.reports.reported import RANK_0, STEPS, result, run_of


def read(directory: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), {"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def curve(events: Any, name: str) -> dict[int, float]:
    points = [(one.step, one.value) for one in events.Scalars(name)]
    assert len(dict(points)) == len(points), f"{name} has a step twice: {points}"
    return dict(points)


@pytest.mark.slow
def test_tensorboard_is_beside_the_checkpoints_without_being_asked_for(
    text: Path, tmp_path: Path
) -> None:
    run = result(text, f"checkpoint.directory={tmp_path}/kept")
    events = read(tmp_path / "kept" / "tensorboard")
    assert set(events.Tags()["scalars"]) == set(NUMBERS)
    steps = range(1, STEPS + 1)
    assert curve(events, "train/loss") == pytest.approx(dict(zip(steps, run.losses, strict=True)))
    norms = dict(zip(steps, run.gradient_norms, strict=True))
    assert curve(events, "train/grad_norm") == pytest.approx(norms)
    seconds = dict(zip(steps, run.step_s, strict=True))
    assert curve(events, "train/step_s") == pytest.approx(seconds)
    # Tokens over wall time, which is more than that of the steps.
    rates = curve(events, "train/tokens_per_s")
    assert 0 < rates[STEPS] < 64 * (STEPS - 2) / sum(run.step_s[2:])
    assert run.tokens_per_s is not None
    assert run.tokens_per_s < 64 * STEPS / sum(run.step_s)
    assert curve(events, "train/tokens") == {step: 64.0 * step for step in steps}
    assert curve(events, "evaluation/loss") == pytest.approx(run.evaluations)
    assert curve(events, "train/learning_rate")[1] == pytest.approx(1e-3)


def test_tensorboard_has_the_recipe_as_text_and_as_hyperparameters(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    run = run_of(tmp_path, run_name="first")
    writer = TensorBoard(run)
    writer.close()
    events = read(tmp_path / "tensorboard")
    [recipe] = events.Tensors("recipe/text_summary")
    shown = recipe.tensor_proto.string_val[0].decode()
    assert "    [pipeline]\n" in shown
    assert '    run_name = "first"' in shown
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    hparams = HParamsPluginData.FromString(content).session_start_info.hparams
    assert hparams["train.steps"].number_value == 100
    assert hparams["optimizer.kind"].string_value == "adamw"


def test_a_recipe_with_records_in_a_section_is_text_as_well() -> None:
    given = ('data.sources=[{path = "a"}, {path = "b", weight = 2}]', 'data.roles={user = ["me"]}')
    data = tomllib.loads(Run(parse_recipe("", given), "j", None, first_step=0).toml)["data"]
    assert data["sources"] == [{"path": "a"}, {"path": "b", "weight": 2.0}]
    assert data["roles"] == {"user": ["me"]}


@pytest.mark.slow
def test_a_run_that_goes_on_replaces_the_steps_it_makes_again(text: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    where = [f"checkpoint.directory={kept}", "checkpoint.interval_steps=4"]
    # The first one is lost after step 6, with a checkpoint of step 4.
    first = result(text, *where, "checkpoint.at_end=false")
    again = result(text, *where)
    assert len(again.losses) == 2
    assert len(list((kept / "tensorboard").iterdir())) == 2
    events = read(kept / "tensorboard")
    steps = range(1, STEPS + 1)
    losses = [*first.losses[:4], *again.losses]
    assert curve(events, "train/loss") == pytest.approx(dict(zip(steps, losses, strict=True)))
    seconds = [*first.step_s[:4], *again.step_s]
    assert curve(events, "train/step_s") == pytest.approx(dict(zip(steps, seconds, strict=True)))
    assert sorted(curve(events, "evaluation/loss")) == [0, 2, 4, 6]


def test_what_was_told_is_on_disk_although_the_rank_is_killed(tmp_path: Path) -> None:
    writer = TensorBoard(run_of(tmp_path))
    writer.log(1, {"train/loss": 2.5})
    assert curve(read(tmp_path / "tensorboard"), "train/loss") == {1: 2.5}
    writer.close()


@pytest.mark.slow
def test_without_a_directory_there_is_no_tensorboard(
    text: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result(text)
    assert "report:" not in capfd.readouterr().out
    result(text, 'report.to=["tensorboard"]')
    assert "no tensorboard: this run has no checkpoint.directory" in capfd.readouterr().out
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_tensorboard_that_is_not_there_is_one_line(tmp_path: Path, said: list[str]) -> None:
    settings: dict[str, Any] = {"directory": tmp_path, "first_step": 0, "say": said.append}
    open_reports(Recipe(), RANK_0, has=lambda _: False, **settings)
    assert said == [f"report: for curves in {tmp_path / 'tensorboard'}, pip install tensorboard"]
    nobody = parse_recipe("", ["report.to=[]"])
    open_reports(nobody, RANK_0, has=lambda _: False, **settings)
    other = World(rank=1, local_rank=1, size=2, host="node1", device=torch.device("cpu"))
    open_reports(Recipe(), other, **settings)
    assert len(said) == 1
    assert list(tmp_path.iterdir()) == []

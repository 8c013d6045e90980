"""``settings``, and where settings of a real spec come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.cli import main
from jupyter_mntrain.launch.settings import settings_of_job
from jupyter_mntrain.model.errors import RecipeError, SpecError
from jupyter_mntrain.verbs.panel.panel import Panel
from jupyter_mntrain.workload.workload import from_path, from_spec
from tests.standin.cluster import StandInCluster, node
from tests.verbs.panel.opened import RECIPE, choose, open_panel
from tests.wording import says


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(RECIPE + '[data]\nsource = "texts"\n')
    return path


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    assert main(["settings", *words, "--json"]) == 0
    return {one["name"]: one for one in json.loads(capsys.readouterr().out)}


def test_a_recipe_is_shown_before_it_runs(file: Path, capsys) -> None:
    found = shown(capsys, str(file), "--set", "train.steps=50")
    assert found["train.steps"] == {
        "name": "train.steps", "value": 50, "origin": "--set", "chosen": None,
    }  # fmt: skip
    assert found["train.batch_size"]["origin"] == "recipe"
    # The absolute path is the recipe's: nobody set it.
    assert found["data.source"]["origin"] == "recipe"
    assert found["data.source"]["value"] == str(file.parent / "texts")
    assert set(shown(capsys, str(file), "--changed")) == {
        "model.preset", "pipeline.microbatches", "train.batch_size", "data.source",
    }  # fmt: skip
    assert shown(capsys, "quick-check")["model.preset"]["value"] == "llama-8m"


def test_what_only_a_recipe_has_is_refused_of_a_job(capsys) -> None:
    for words in (["j-7f3a", "--data"], ["--set", "train.steps=5"]):
        assert main(["settings", *words]) == SpecError.exit_code
        assert says("is for a recipe", capsys.readouterr().err)


@pytest.mark.parametrize("words", [("gone.toml",), ("script.py",), ("small.toml", "--set", "x=1")])
def test_what_is_no_recipe_is_refused(
    words: tuple[str, ...], file: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(file.parent)
    assert main(["settings", *words, "--json"]) != 0
    assert json.loads(capsys.readouterr().err)["fix"]


def test_the_data_of_a_recipe_is_shown_without_a_job(file: Path, capsys) -> None:
    (file.parent / "texts").mkdir()
    (file.parent / "texts" / "one.txt").write_text("Once upon a time.\x1b[2J\n" * 400)
    small = [f"--set=data.{one}" for one in ("vocabulary_size=270", "sequence_length=16")]
    assert main(["settings", str(file), "--data", *small]) == 0
    said = capsys.readouterr().out
    assert says("the first 3 of", said)
    assert r"Once upon a time.\x1b[2J" in said
    assert "\x1b[2J" not in said
    assert main(["settings", str(file), "--data", *small, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["tokens"] for one in shown["sequences"]] == [16, 16, 16]
    assert str(file.parent / "texts") in shown["summary"][0]


def test_data_that_is_not_here_is_said(file: Path, capsys) -> None:
    assert main(["settings", str(file), "--data", "--json"]) == RecipeError.exit_code
    problem = json.loads(capsys.readouterr().err)
    assert says(f"{file.parent / 'texts'}: no such file or folder", problem["cause"])
    assert problem["fix"]


def origins(panel: Panel, form: Any) -> dict[str, str]:
    return {one.name: one.origin for one in settings_of_job(panel._built(form).spec)}


def test_a_launch_again_keeps_origins_and_names_what_is_changed_now(tmp_path, file) -> None:
    panel = open_panel(StandInCluster([node("a", 1)]), tmp_path, "small.toml")
    form = choose(panel, steps="7", priority="4", changes="train.seed=3")
    assert {
        name: origin
        for name, origin in origins(panel, form).items()
        if origin not in ("default", "auto", "recipe")
    } == {"train.steps": "panel", "train.seed": "panel", "launch.priority": "panel"}
    before = panel._built(form).spec
    again = from_spec(before, took="", directory=tmp_path, overrides=["train.steps=9"])
    found = {one.name: one.origin for one in again.settings()}
    assert (found["train.steps"], found["train.seed"]) == ("--set", "panel")
    assert found["data.source"] == "recipe"


def test_a_relative_path_that_was_set_is_not_the_recipes(file: Path) -> None:
    found = {one.name: one for one in from_path(file, overrides=["data.source=other"]).settings()}
    assert found["data.source"].origin == "--set"
    assert found["data.source"].value == str(file.parent / "other")


def test_a_recipe_that_is_not_there_is_answered_with_recipes_only(tmp_path: Path, capsys) -> None:
    (tmp_path / "small.py").write_text("")
    (tmp_path / "small-run.toml").write_text("")
    assert main(["settings", str(tmp_path / "smal-run.toml")]) == SpecError.exit_code
    assert says("use small-run.toml", capsys.readouterr().err)
    assert main(["settings", "quick-chek"]) == SpecError.exit_code
    assert says("use quick-check", capsys.readouterr().err)
    assert main(["settings", str(tmp_path / "small")]) == SpecError.exit_code
    assert "small.py" not in capsys.readouterr().err

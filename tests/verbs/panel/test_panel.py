"""Panel without widgets: launching, what it remembers, and the verb."""

from __future__ import annotations

import json
import shlex
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.launch.progress import SILENT
from jupyter_mntrain.model.errors import MntrainError, RefusedError, SpecError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.verbs.panel.choices import Choices, NodeChoice
from jupyter_mntrain.verbs.panel.last_choices import MOST_RECIPES, Memory
from jupyter_mntrain.verbs.panel.panel import Panel
from tests.standin.cluster import StandInCluster, node
from tests.standin.screen import make_context, run_words
from tests.verbs.panel.opened import choose, open_panel
from tests.wording import says, wording

# Launching


@pytest.mark.parametrize(
    ("target", "choices"),
    [
        ("small.toml", {}),
        ("small.toml", {"port": "29555", "head": "wopr", "environment": "A=1"}),
        (
            "small.toml",
            {"schedule": "interleaved-1f1b", "nodes": {"wopr": NodeChoice(gpus="1")}},
        ),
        ("small.toml", {"nodes": {"wopr": NodeChoice(gpus="gpu1", interface="eno1")}}),
        (
            "small.toml",
            {"nodes": {"muthur": NodeChoice(is_used=False)}, "changes": "train.steps=7"},
        ),
        ("llama-tiny", {"microbatches": 4}),
        ("train.py", {}),
    ],
)
def test_panel_and_command_line_start_the_same_spec(
    two: StandInCluster, here: Path, target: str, choices: dict[str, Any]
) -> None:
    panel = open_panel(two, here, target)
    form = choose(panel, **choices)
    assert form.blocked is None
    panel.launch(form, SILENT)
    *file, line = panel.command(form).splitlines()
    cell = panel.target.cell
    assert bool(file) == (cell is not None)
    command = shlex.split(line.replace("llama-tiny.toml ", ""))
    run_words(command[1:], make_context(two, directory=here, cell=cell))
    # Except for where its settings were chosen.
    ours, theirs = (msgspec.structs.replace(one, set_in={}) for one in two.launches)
    assert ours == theirs


def test_arguments_of_a_script_go_along(two: StandInCluster, here: Path) -> None:
    panel = open_panel(two, here, "train.py", arguments=("--lr", "0.1"))
    panel.launch(panel.form(), SILENT)
    assert two.launches[0].entry == ("train.py", "--lr", "0.1")
    assert panel.command(panel.form()).endswith("-- --lr 0.1")


def test_a_refusal_starts_nothing_and_is_not_remembered(
    panel: Panel, two: StandInCluster, here: Path
) -> None:
    two.refuses = RefusedError("GPU 0 was taken", fix="wait", node="wopr")
    with pytest.raises(MntrainError, match="wopr: GPU 0 was taken"):
        panel.launch(panel.form(), SILENT)
    assert open_panel(two, here, "small.toml").note == ""


# Memory


def test_the_last_choices_of_each_recipe_come_back(two: StandInCluster, here: Path) -> None:
    panel = open_panel(two, here, "small.toml")
    form = choose(panel, nodes={"muthur": NodeChoice(is_used=False)}, port="29555")
    panel.launch(form, SILENT)
    assert says("as launched at ", panel.note)
    again = open_panel(two, here)  # and it is the one launched last
    assert again.target.label == "small.toml"
    assert again.form().members == ("wopr",)
    assert again.choices.port == "29555"
    assert open_panel(two, here, "llama-8m").choices == Choices()
    # A node that has come since is not meant.
    two.become(node("wopr", 1, gpus=2), node("joshua", 5, gpus=4))
    assert again.form().members == ("wopr",)
    again.reset()
    assert again.form().members == ("wopr", "joshua")
    assert open_panel(two, here, "small.toml").choices == Choices()


def test_secrets_are_launched_and_neither_shown_nor_remembered(
    two: StandInCluster, here: Path
) -> None:
    panel = open_panel(two, here, "small.toml")
    form = choose(panel, environment="HF_TOKEN=only-mine A='two words'")
    assert "only-mine" not in panel.command(form)
    assert "--env HF_TOKEN --env 'A=two words'" in panel.command(form)
    panel.launch(form, SILENT)
    assert two.launches[0].environment == {"HF_TOKEN": "only-mine", "A": "two words"}
    assert "only-mine" not in (here / "state" / "panel.json").read_text()
    assert open_panel(two, here, "small.toml").choices.environment == "HF_TOKEN 'A=two words'"


def test_an_acknowledgment_of_mixed_versions_is_not_remembered(here: Path) -> None:
    memory = Memory(here / "state" / "panel.json")
    chosen = Choices(port="1", mixed_versions=True)
    memory.remember("r", chosen, job=JobId("j-00000001"), now_s=1.0)
    assert memory.all()["r"].choices == Choices(port="1")


def test_memory_is_private_bounded_and_its_damage_is_said(two: StandInCluster, here: Path) -> None:
    path = here / "state" / "panel.json"
    memory = Memory(path)
    for number in range(MOST_RECIPES + 3):
        chosen, job = Choices(port=str(number + 1)), JobId(f"j-{number:08x}")
        memory.remember(f"r{number}", chosen, job=job, now_s=float(number))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(memory.all()) == MOST_RECIPES
    assert next(iter(memory.all())) == f"r{MOST_RECIPES + 2}"
    path.write_text("{")
    panel = open_panel(two, here, "small.toml")
    assert says("cannot read the panel's last choices", panel.note)
    assert panel.form().blocked is None
    job = panel.launch(panel.form(), SILENT)
    assert job.id
    assert says("could not be stored", panel.note)


# The verb


def test_targets_are_recipes_here_then_presets(panel: Panel) -> None:
    labels = [target.label for target in panel.targets]
    assert labels[:3] == ["small.toml", "preset llama-8m", "preset llama-tiny"]
    assert "pyproject.toml" not in labels
    assert len(labels) == len(set(labels))


def test_without_a_notebook_the_panel_is_text_with_the_command(do, here, text) -> None:
    outcome = do("panel", "small.toml", directory=here)
    said = text(outcome.renderable)
    assert "The clickable panel needs a notebook; this is its text form." in said
    assert "mntrain launch small.toml --member muthur --member wopr --member hal" in said
    assert json.loads(json.dumps(outcome.data))["command"].startswith("mntrain launch")


def test_the_command_names_the_cluster_that_was_named(do, here) -> None:
    outcome = do("--cluster", "lab", "panel", "small.toml", "--agent", "10.0.0.1", directory=here)
    command = outcome.data["command"]
    assert command.startswith("mntrain --cluster lab --agent 10.0.0.1 launch small.toml --member")


def test_what_is_neither_file_nor_preset_is_said(do, here) -> None:
    with pytest.raises(SpecError, match=wording(r"use small\.toml")):
        do("panel", "smal.toml", directory=here)  # codespell:ignore
    with pytest.raises(SpecError, match=wording("use llama-8m")):
        do("panel", "lama-8m", directory=here)

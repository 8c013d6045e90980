"""Settings, and where each came from."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_mntrain.launch.settings import set_in_panel, settings_of_job
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import TRAINER, JobSpec, Participant
from jupyter_mntrain.model.records.setting import Setting
from jupyter_mntrain.recipe.changes.settings import fields_of, settings_of_recipe
from jupyter_mntrain.recipe.parse import parse_recipe

TEXT = """
[model]
preset = "llama-tiny"
[train]
steps = 5
log_interval = 10
[memory]
loss = "auto"
"""


def by_name(settings: tuple[Setting, ...]) -> dict[str, Setting]:
    return {one.name: one for one in settings}


def job(*overrides: str, **fields: Any) -> JobSpec:
    words = (word for one in overrides for word in ("--set", one))
    basis: dict[str, Any] = {
        "entry": ("-m", TRAINER, "recipe.toml", *words),
        "participants": (Participant(node="a"),),
        "files": {"recipe.toml": TEXT},
    }
    return JobSpec(**(basis | fields))


def test_every_field_has_its_value_and_its_origin() -> None:
    found = settings_of_recipe(TEXT, ["train.batch_size=16", "train.steps=6", "train.steps=7"])
    recipe = parse_recipe(TEXT, ["train.batch_size=16", "train.steps=7"])
    assert [(one.name, one.value) for one in found] == list(fields_of(recipe))
    named = by_name(found)
    origins = {name: named[name].origin for name in (
        "train.steps", "train.batch_size", "train.log_interval", "train.seed", "memory.loss",
        "optimizer.precision", "optimizer.warmup_steps", "model.path", "model.layers",
    )}  # fmt: skip
    assert origins == {
        "train.steps": "--set",
        "train.batch_size": "--set",
        "train.log_interval": "recipe",  # also where it is the default's value
        "train.seed": "default",
        "memory.loss": "recipe",
        "optimizer.precision": "auto",
        "optimizer.warmup_steps": "auto",
        "model.path": "default",
        "model.layers": "auto",
    }


def test_what_auto_means_is_said_where_it_is_known() -> None:
    named = by_name(settings_of_recipe(TEXT, ["model.dtype=bfloat16", "pipeline.schedule=zbv"]))
    assert named["optimizer.precision"].chosen == "float32-master"
    assert named["pipeline.stages_per_rank"].in_effect == 2
    assert named["memory.loss"].chosen == "plain"
    assert named["model.layers"].chosen == 4
    assert named["data.packing"].chosen == "wrapped"
    assert named["model.tie_embeddings"].chosen is False
    assert named["data.tokenizer"].chosen == "train"
    assert named["report.project"].chosen == "mntrain"
    assert named["pipeline.in_flight"].chosen is None
    assert named["train.steps"].in_effect == 5
    assert named["train.steps"].chosen is None


def test_a_job_also_has_the_options_of_its_launch() -> None:
    spec = job(max_restarts=2, torchrun_arguments=("--token=hf_abcdefghijklmnopqrstuvwxyz012345",))
    named = by_name(settings_of_job(spec))
    assert (named["launch.restarts"].value, named["launch.restarts"].origin) == (2, "option")
    assert named["launch.priority"].origin == "default"
    assert "hf_abc" not in str(named["launch.torchrun"].value)
    script = JobSpec(entry=("a.py",), participants=(), files={"a.py": ""})
    assert all(one.name.startswith("launch.") for one in settings_of_job(script))


def test_what_only_a_job_knows_is_said_of_a_job() -> None:
    named = by_name(settings_of_job(job("train.on_nan=report"), JobId("j-00000007")))
    assert named["report.run_name"].in_effect == "j-00000007"
    assert (named["launch.on_nan"].origin, named["launch.on_nan"].chosen) == ("auto", "report")
    own = by_name(settings_of_job(job("report.run_name=mine", on_nan="stop"), JobId("j-00000007")))
    assert own["report.run_name"].in_effect == "mine"
    assert own["launch.on_nan"].in_effect == "stop"
    script = JobSpec(entry=("a.py",), participants=(), files={"a.py": ""})
    assert by_name(settings_of_job(script))["launch.on_nan"].chosen == "report"


def test_no_limit_is_not_one_that_mntrain_chooses() -> None:
    named = by_name(settings_of_job(job()))
    assert named["launch.queue_limit"].origin == named["launch.lost_limit"].origin == "default"
    assert named["launch.port"].origin == "auto"


def test_what_the_panel_chose_came_from_there_and_survives_a_file() -> None:
    spec = set_in_panel(job("train.steps=9", priority=3), ["train.steps=9"])
    spec = msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec)
    named = by_name(settings_of_job(spec))
    assert named["train.steps"].origin == "panel"
    assert named["launch.priority"].origin == "panel"
    assert named["launch.restarts"].origin == "default"


def test_a_wrong_setting_is_refused_as_at_a_launch() -> None:
    with pytest.raises(RecipeError):
        settings_of_recipe(TEXT, ["train.step=1"])

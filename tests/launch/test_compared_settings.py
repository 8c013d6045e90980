"""Comparison of jobs: what is in effect counts, not how it was chosen."""

from __future__ import annotations

from jupyter_mntrain.launch.compared_settings import compare_settings, compared_settings
from jupyter_mntrain.launch.settings import settings_of_job
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.recipe.changes.settings import settings_of_recipe

RECIPE = '[model]\npreset = "llama-tiny"\n[train]\nsteps = 100\n'


def test_settings_that_differ_keep_the_order_of_the_jobs_and_their_origins() -> None:
    plain = settings_of_recipe(RECIPE)
    longer = settings_of_recipe(RECIPE, ["train.steps=200"])
    found = compare_settings([plain, longer, plain])
    (steps,) = (one for one in found.differing if one.name == "train.steps")
    assert [one and (one.value, one.origin) for one in steps.values] == [
        (100, "recipe"),
        (200, "--set"),
        (100, "recipe"),
    ]
    assert "model.preset" in found.same
    assert "train.steps" not in found.same


def test_a_default_that_is_spelled_out_is_no_difference() -> None:
    plain = settings_of_recipe(RECIPE)
    (batch,) = (one.value for one in plain if one.name == "train.batch_size")
    told = settings_of_recipe(RECIPE, [f"train.batch_size={batch}"])
    assert compare_settings([plain, told]).differing == ()


def test_a_script_has_no_settings_of_a_recipe_and_names_do_not_count() -> None:
    script = JobSpec(entry=("a.py",), participants=(Participant("n"),), name="a")
    options = settings_of_job(script)
    found = compare_settings([options, (*settings_of_recipe(RECIPE), *options)])
    (preset,) = (one for one in found.differing if one.name == "model.preset")
    assert preset.values[0] is None
    assert "launch.name" not in {*found.same, *(one.name for one in found.differing)}


def test_other_nodes_are_a_difference() -> None:
    both = [
        JobSpec(entry=("a.py",), participants=participants)
        for participants in (
            (Participant("wopr", 2), Participant("muthur", interface="eno1")),
            (Participant("wopr", 2),),
        )
    ]
    (nodes,) = compare_settings([compared_settings(one) for one in both]).differing
    assert [one and one.value for one in nodes.values] == ["wopr:2, muthur:1:eno1", "wopr:2"]


def test_scripts_differ_by_arguments_variables_and_what_is_in_their_files() -> None:
    def spec(words: str, variables: dict[str, str], text: str) -> JobSpec:
        return JobSpec(
            entry=("train.py", *words.split()),
            participants=(),
            environment=variables,
            files={"train.py": text},
        )

    one = spec("--lr 1", {"KIND": "lengths", "API_KEY": "k" * 40}, "a")
    other = spec("--lr 2", {"KIND": "tokens", "API_KEY": "k" * 40}, "b")
    found = compare_settings([compared_settings(one), compared_settings(other)])
    differing = {setting.name: setting.values for setting in found.differing}
    assert set(differing) == {"launch.program", "launch.env.KIND", "launch.files.train.py"}
    assert [value.value for value in differing["launch.program"] if value] == [
        "train.py --lr 1",
        "train.py --lr 2",
    ]
    assert "launch.env.API_KEY" in found.same
    assert "kkkk" not in str(compared_settings(one))

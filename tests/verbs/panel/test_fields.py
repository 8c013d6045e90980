"""Plain fields of the panel: their values, and what is wrong with each."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.launch.progress import SILENT
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.verbs.panel.choices import (
    Choices,
    launch_words,
    overrides,
    with_field,
    with_restart,
)
from jupyter_mntrain.verbs.panel.fields import FormField
from jupyter_mntrain.verbs.panel.form import Form
from jupyter_mntrain.verbs.panel.panel import Panel
from tests.standin.cluster import StandInCluster
from tests.verbs.panel.opened import choose, open_panel
from tests.wording import says


def field(form: Form, name: str) -> FormField:
    return next(one for one in form.fields if one.name == name)


def wrong(form: Form) -> dict[str, Kind]:
    return {one.name: one.problem.kind for one in form.fields if one.problem is not None}


def test_fields_show_the_recipes_own_values_and_change_nothing(panel: Panel) -> None:
    form = panel.form()
    assert {one.name: one.text for one in form.fields} == {
        "steps": "100", "batch": "12", "data": "python-library", "name": "small",
        "priority": "0", "restarts": "0", "min_nodes": "", "workdir": "", "python": "",
    }  # fmt: skip
    assert panel.command(form) == "mntrain launch small.toml --member muthur --member wopr"


def test_only_what_was_changed_is_in_the_command_and_in_the_job(panel: Panel) -> None:
    form = choose(panel, steps=" 7 ", data="/srv/my data", name="-x", priority="-5", batch="24")
    words = shlex.split(panel.command(form))[7:]
    assert words == [
        "--name=-x", "--priority=-5", "--set", "train.steps=7", "--set", "train.batch_size=24",
        "--set", "data.source=/srv/my data",
    ]  # fmt: skip
    assert form.blocked is None
    spec = panel._built(form).spec
    assert (spec.name, spec.priority) == ("-x", -5)
    assert "train.steps=7" in spec.entry


def test_epochs_leave_the_steps_open_until_a_number_is_given(panel: Panel) -> None:
    form = choose(panel, changes="train.epochs=3")
    assert (field(form, "steps").text, field(form, "steps").told) == ("", "3 epochs")
    assert form.blocked is None
    form = choose(panel, steps="60")
    assert (form.blocked, field(form, "steps").text) == (None, "60")
    assert panel.command(form).endswith(" --set train.steps=60")
    assert "epochs" not in panel.command(form), "both at once are refused"


def test_a_field_wins_over_the_same_setting_among_the_changes(panel: Panel) -> None:
    form = choose(panel, changes="train.steps=50")
    assert field(form, "steps").text == "50"
    form = choose(panel, steps="60")
    assert (field(form, "steps").own, field(form, "steps").text) == ("50", "60")
    recipe = panel._built(form).workload.recipe
    assert recipe is not None
    assert recipe.train.steps == 60


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("steps", "abc"), ("steps", "0"), ("steps", "1.5"), ("batch", "-1"), ("batch", "7"),
        ("priority", "1001"), ("priority", "high"), ("name", "x" * 200), ("restarts", "0"),
        ("restarts", "9999"), ("min_nodes", "3"), ("min_nodes", "0"), ("steps", "9" * 30),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_used_stays_with_its_reason_beside_it(
    panel: Panel, name: str, text: str
) -> None:
    form = choose(panel, restart="failed", **{name: text})
    assert list(wrong(form)) == [name]
    assert field(form, name).text == text
    assert form.blocked == field(form, name).problem
    assert form.settings == ()
    # It stays while something else changes; the rest of the form goes on.
    form = choose(panel, microbatches=3)
    assert (list(wrong(form)), field(form, name).text) == ([name], text)
    assert form.microbatches == 3


def test_several_wrong_fields_each_have_a_reason(panel: Panel) -> None:
    form = choose(panel, steps="x", batch="7", priority="y")
    assert set(wrong(form)) == {"steps", "batch", "priority"}
    assert form.settings == ()
    assert form.prediction is not None
    form = choose(panel, steps="", batch="", priority="")
    assert (wrong(form), form.blocked) == ({}, None)


def test_a_wrong_setting_elsewhere_empties_no_field(panel: Panel) -> None:
    form = choose(panel, changes="train.step=5")
    assert form.blocked is not None
    shown = {one.name: one.text for one in form.fields}
    assert (shown["steps"], shown["name"], wrong(form)) == ("100", "small", {})


def test_going_on_with_fewer_nodes_needs_restarts(panel: Panel) -> None:
    (problem,) = [one.problem for one in choose(panel, min_nodes="1").fields if one.problem]
    assert "--" not in str(problem)
    panel.choices = with_field(panel.choices, "restarts", "5")
    form = panel.form()
    assert (wrong(form), panel.choices.restart) == ({}, "failed")
    spec = panel._built(form).spec
    assert (spec.max_restarts, spec.min_nodes) == (5, 1)
    panel.choices = with_restart(panel.choices, "never")
    assert (panel.choices.restarts, list(wrong(panel.form()))) == ("", ["min_nodes"])


def test_no_restarts_are_never_and_what_is_no_number_allows_none(panel: Panel) -> None:
    for text in ("-1", "many"):
        panel.choices = with_field(with_restart(panel.choices, "never"), "restarts", text)
        assert panel.choices.restart == "never"
        assert list(wrong(panel.form())) == ["restarts"]
        assert says("restarts: ", str(panel.form().blocked))
    panel.choices = with_field(with_restart(panel.choices, "failed"), "restarts", "0")
    assert (panel.choices.restart, wrong(panel.form())) == ("never", {})


def test_a_script_has_no_fields_of_a_recipe(two: StandInCluster, here: Path) -> None:
    form = open_panel(two, here, "train.py").form()
    assert [one.name for one in form.fields] == [
        "name", "priority", "restarts", "min_nodes", "project", "workdir", "python",
    ]  # fmt: skip
    assert field(form, "name").text == "train"


def test_fields_come_back_after_a_launch(two: StandInCluster, here: Path) -> None:
    panel = open_panel(two, here, "small.toml")
    form = choose(panel, steps="7", name="mine", priority="2")
    panel.launch(form, SILENT)
    again = open_panel(two, here, "small.toml")
    assert (again.choices.steps, again.choices.name, again.choices.priority) == ("7", "mine", "2")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12))
def test_any_path_is_the_data_of_the_recipe(text: str) -> None:
    chosen = Choices(data=text)
    if text.strip():
        (override,) = overrides(chosen)
        assert parse_recipe("", [override]).data.source == text.strip()
    assert msgspec.structs.replace(chosen, data="") == Choices()
    assert launch_words(Choices(), ["a"], head=None, target="r") == ["r", "--member", "a"]

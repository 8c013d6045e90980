"""Fields of the panel, by typing."""

from __future__ import annotations

from jupyter_mntrain.notebook.panel.widgets import blocked
from tests.notebook.panel.opened import until


def test_what_is_typed_is_launched_and_the_recipes_own_value_is_no_change(open_one) -> None:
    page = open_one()
    fields = page.view.fields.widgets | page.view.restarts.widgets
    assert {name: field.value for name, field in fields.items()} == {
        "steps": "100", "batch": "12", "data": "python-library", "name": "small",
        "priority": "0", "restarts": "0", "min_nodes": "",
    }  # fmt: skip
    fields["steps"].value = "7"
    fields["restarts"].value = "2"
    until(lambda: page.panel.choices.restarts == "2")
    until(lambda: page.view.settings.widgets["restart"].value == "failed")
    page.click(page.view.launch_bar.toggle)
    until(
        lambda: (
            "small.toml --member muthur --member wopr --restarts 2 --set train.steps=7"
            in page.view.launch_bar.commands.value
        )
    )
    fields["steps"].value = "100"
    until(lambda: page.panel.choices.steps == "")
    until(lambda: "train.steps" not in page.view.launch_bar.commands.value)
    fields["steps"].value = "8"
    until(lambda: page.panel.choices.steps == "8")
    fields["steps"].value = ""
    until(lambda: fields["steps"].value == "100")


def test_a_wrong_text_stays_in_its_field_and_the_reason_stands_beside_it(open_one) -> None:
    page = open_one()
    steps, reason = page.view.fields.widgets["steps"], page.view.fields.problems["steps"]
    assert reason.value == ""
    steps.value = "<b>many"
    until(lambda: blocked(page.view.launch_bar.launch))
    assert "&lt;b&gt;many" in reason.value
    page.row("wopr").use.value = False
    until(lambda: page.panel.choices.node("wopr").is_used is False)
    assert (steps.value, "&lt;b&gt;many" in reason.value) == ("<b>many", True)
    steps.value = "12"
    until(lambda: not blocked(page.view.launch_bar.launch))
    assert reason.value == ""

"""Project, working directory and interpreter in the panel: refused as by a launch, before it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.launch.progress import SILENT
from jupyter_mntrain.model.errors import MntrainError, NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import FoundWorkplace
from jupyter_mntrain.verbs.panel.fields import FormField
from jupyter_mntrain.verbs.panel.form import Form
from jupyter_mntrain.verbs.panel.panel import Panel
from tests.standin.cluster import VERSIONS, StandInCluster
from tests.standin.screen import make_context, run_words
from tests.verbs.panel.opened import choose, kinds, open_panel, row
from tests.wording import says

ELSEWHERE = "/opt/lm/bin/python"
NO_PYTHON = Problem(
    kind=Kind.NO_PYTHON, cause="--python conda:lm: there is none", fix="create it there"
)


@pytest.fixture
def script(two: StandInCluster, here: Path) -> Panel:
    return open_panel(two, here, "train.py")


def looked(panel: Panel, **fields: Any) -> Form:
    """The form once the nodes have been asked."""
    panel.look(choose(panel, **fields))
    return panel.form()


def wrong(form: Form) -> dict[str, Problem]:
    return {one.name: one.problem for one in form.fields if one.problem is not None}


def refusal(two: StandInCluster, here: Path, *words: str) -> Problem:
    """Of a launch with these words."""
    with pytest.raises(MntrainError) as caught:
        run_words(("launch", "train.py", *words), make_context(two, directory=here))
    return caught.value.problem


def test_what_is_chosen_is_in_the_command_in_the_job_and_in_what_was_started(
    script: Panel, two: StandInCluster
) -> None:
    for name in ("muthur", "wopr"):
        two.found[name] = FoundWorkplace(python=ELSEWHERE, versions=VERSIONS)
    form = looked(script, python="conda:lm", workdir="/srv/my code")
    assert (form.blocked, wrong(form)) == (None, {})
    words = shlex.split(script.command(form))
    assert words[-4:] == ["--workdir", "/srv/my code", "--python", "conda:lm"]
    script.launch(form, SILENT)
    (spec,) = two.launches
    assert (spec.workdir, spec.python) == ("/srv/my code", "conda:lm")
    assert script.started is not None
    assert "--python conda:lm" in script.started[1]
    assert {(one.workdir, one.python) for one in two.workplaces_asked} == {
        ("/srv/my code", "conda:lm")
    }


def test_a_project_is_sent_and_comes_back_after_the_launch(
    script: Panel, two: StandInCluster, here: Path
) -> None:
    form = looked(script, project=".")
    assert form.blocked is None
    script.launch(form, SILENT)
    assert two.projects[0] is not None
    assert two.projects[0].names >= {"train.py"}
    assert open_panel(two, here, "train.py").choices.project == "."
    assert two.workplaces_asked == []  # the nodes need nothing for it


def test_how_much_would_be_sent_is_said_before_the_launch(
    script: Panel, two: StandInCluster, here: Path
) -> None:
    def sent(form: Form) -> FormField:
        return next(one for one in form.fields if one.name == "project")

    assert sent(looked(script)).told == ""
    (here / "lm").mkdir()
    (here / "lm" / "train.py").write_text("print(1)\n")
    (here / "lm" / ".env").write_text("TOKEN=hush\n")
    other = open_panel(two, here, "lm/train.py")
    form = looked(other, project="lm")
    field = sent(form)
    assert [note.kind for note in field.notes] == [Kind.PRIVATE_FILE]
    other.launch(form, SILENT)
    (project,) = two.projects
    assert project is not None
    assert field.told.endswith(project.shown_size)
    (here / "lm" / "data.py").write_text("")
    (here / "lm" / "train.py").write_text("import data\n")
    field = sent(looked(open_panel(two, here, "lm/train.py"), project=""))
    assert says("imports data from it", field.told)


def test_a_working_directory_from_here_is_looked_for_by_its_whole_path(
    script: Panel, two: StandInCluster, here: Path
) -> None:
    assert not wrong(looked(script, workdir="lm"))
    assert {one.workdir for one in two.workplaces_asked} == {str(here / "lm")}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("project", "no-such-folder"),
        ("python", "conda:"),
        ("python", "bin/python"),
    ],
)
def test_what_a_launch_would_refuse_is_said_beside_the_field_in_its_words(
    script: Panel, two: StandInCluster, here: Path, field: str, text: str
) -> None:
    form = looked(script, **{field: text})
    assert list(wrong(form)) == [field]
    assert form.blocked == wrong(form)[field]
    if field == "project":
        assert form.blocked == refusal(two, here, "--project", text)
    form = looked(script, **{field: ""})
    assert (form.blocked, wrong(form)) == (None, {})


def test_a_folder_to_send_and_one_of_the_nodes_exclude_each_other(
    script: Panel, two: StandInCluster, here: Path
) -> None:
    form = looked(script, project=".", workdir="/srv")
    assert wrong(form) == {"project": refusal(two, here, "--project", ".", "--workdir", "/srv")}


def test_a_node_that_lacks_it_is_marked_and_may_be_left_out(
    script: Panel, two: StandInCluster
) -> None:
    two.found["muthur"] = FoundWorkplace(python=ELSEWHERE, versions=VERSIONS)
    two.found["wopr"] = FoundWorkplace(lacks=(NO_PYTHON,))
    form = looked(script, python="conda:lm")
    assert kinds(form) == {"wopr": [Kind.NO_PYTHON]}
    assert form.blocked == msgspec.structs.replace(NO_PYTHON, node="wopr")
    fix = row(form, "wopr").checks[0].fix
    assert fix is not None
    script.choices = fix.choices
    script.look(script.form())
    form = script.form()
    assert (form.blocked, form.members) == (None, ("muthur",))


def test_the_versions_that_count_are_those_of_the_jobs_own_interpreter(
    script: Panel, two: StandInCluster
) -> None:
    other = msgspec.structs.replace(VERSIONS, torch="2.9.0")
    two.found["muthur"] = FoundWorkplace(python=ELSEWHERE, versions=VERSIONS)
    two.found["wopr"] = FoundWorkplace(python=ELSEWHERE, versions=other)
    assert kinds(script.form()) == {}
    form = looked(script, python=ELSEWHERE)
    assert kinds(form) == {"muthur": [Kind.MIXED_VERSIONS], "wopr": [Kind.MIXED_VERSIONS]}
    assert kinds(looked(script, python="")) == {}


def test_nodes_that_could_not_be_asked_are_a_warning_and_no_refusal(
    script: Panel, two: StandInCluster
) -> None:
    two.found["wopr"] = NodeError("does not answer any more", node="wopr")
    form = looked(script, python=ELSEWHERE)
    assert form.blocked is None
    assert [check.level for check in row(form, "wopr").checks] == ["slows"]


def test_nodes_are_asked_again_only_for_another_place(script: Panel, two: StandInCluster) -> None:
    looked(script, python=ELSEWHERE)
    looked(script, priority="5")
    assert len(two.workplaces_asked) == 1
    looked(script, workdir="/srv")
    assert len(two.workplaces_asked) == 2


def test_what_is_wrong_elsewhere_is_not_said_of_the_place(panel: Panel) -> None:
    form = looked(panel, python=ELSEWHERE, steps="many")
    assert list(wrong(form)) == ["steps"]

"""``accept``: what it is asked for, and what it trains; the rest is in tests/cluster/acceptance."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.recipe.stored import recipe_of
from jupyter_mntrain.verbs.nodes.accept import (
    RECIPE,
    default_sizes,
    training_spec,
    write_reports,
)
from tests.metrics.acceptance.observations import report
from tests.standin.cluster import StandInCluster
from tests.standin.screen import make_context


@pytest.mark.parametrize(
    ("nodes", "sizes"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (8, (1, 2, 4, 8)), (11, (1, 2, 4, 8, 11))],
)
def test_training_is_timed_on_powers_of_two_and_on_all(nodes, sizes):
    assert default_sizes(nodes) == sizes


@pytest.mark.parametrize("sizes", ["0,1", "two", "1,,2", "1-4", "", "99999"])
def test_numbers_of_nodes_are_numbers(do, sizes):
    with pytest.raises(MntrainError):
        do("accept", "--nodes", sizes)


@pytest.mark.parametrize("part", ["everything", ""])
def test_there_is_no_other_part(do, part):
    with pytest.raises(SpecError):
        do("accept", "--only", part)


def test_a_script_is_refused_as_it_cannot_be_predicted(do, tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    with pytest.raises(SpecError):
        do("accept", "--recipe", "train.py", directory=tmp_path)


def test_no_report_is_overwritten_and_the_folder_has_to_be_there(do, tmp_path):
    (tmp_path / "done.html").write_text("mine")
    for name in ("done", "missing/done"):
        with pytest.raises(SpecError):
            do("accept", "-o", name, directory=tmp_path)
    assert (tmp_path / "done.html").read_text() == "mine"


def test_reports_are_written_beside_each_other(tmp_path):
    written = write_reports(report(), tmp_path / "v1.2")
    assert [one.name for one in written] == ["v1.2.json", "v1.2.html", "v1.2.ipynb"]
    assert all(one.stat().st_size > 1000 for one in written)


def trained(*participants: Participant):
    context = make_context(StandInCluster())
    found = recipe_of(training_spec(context, RECIPE, participants, None))
    assert found is not None
    return found


def test_replicas_are_within_nodes_and_pipelines_between_them():
    gpus = tuple(Participant(node=name, nproc=4, gpus=(0, 1, 2, 3)) for name in ("a", "b"))
    recipe = trained(*gpus)
    assert recipe.data_parallel.replicas == 4
    assert recipe.pipeline_ranks(8) == 2
    assert recipe.model.preset == "llama-160m"
    assert trained(Participant(node="a"), Participant(node="b")).model.preset == "llama-8m"


def test_a_pipeline_has_a_layer_for_each_rank():
    unlike = (Participant(node="a", nproc=9), Participant(node="b", nproc=2))
    assert trained(*unlike).model.layers == 11

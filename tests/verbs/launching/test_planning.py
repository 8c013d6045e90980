"""``plan``: what it predicts for people and programs, and what it refuses."""

from __future__ import annotations

import io
from typing import Any

import pytest
from msgspec.structs import replace
from PIL import Image

from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.records.node import NodeView
from tests.standin.cluster import StandInCluster, node
from tests.standin.devices import device
from tests.standin.job_handle import StandInJob
from tests.standin.plans import plan_of
from tests.standin.screen import Paper
from tests.standin.training import sample_job
from tests.wording import says, wording

TWO = ("--member", "muthur:1", "--member", "wopr:1")


@pytest.fixture
def cards() -> StandInCluster:
    return StandInCluster([node("muthur", 2, gpus=1), node("wopr", 1, gpus=1)])


def test_programs_get_the_seconds_of_a_step_and_the_whole_plan(do, cards, recipe, as_json):
    data = as_json(do("plan", "r.toml", "--json", on=cards, directory=recipe))
    assert data["step_s"] > 0
    assert data["tokens_per_s"] > 0
    assert [rank["node"] for rank in data["ranks"]] == ["muthur", "wopr"]
    assert sum(sum(rank["layers"]) for rank in data["ranks"]) == 4
    assert {(link["sender"], link["receiver"]) for link in data["links"]} == {(0, 1), (1, 0)}
    assert all(link["speed"]["is_measured"] for link in data["links"])
    assert cards.launches == []


def test_people_get_every_rank_in_80_columns(do, cards, recipe, text):
    shown = text(do("plan", "r.toml", on=cards, directory=recipe).renderable, width=80)
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("muthur GPU 0", "wopr GPU 0", "r0 muthur", "r1 wopr"):
        assert word in shown
    assert says("Bottleneck", shown)
    assert says("not measured", shown), "the cards' speed is from a data sheet"


@pytest.mark.slow
def test_options_of_a_launch_count(do, cards, recipe, as_json):
    def step(*words: str) -> Any:
        return as_json(do("plan", "r.toml", *words, on=cards, directory=recipe))["step_s"]

    assert step("--link-capacity", "1mbit") > 2 * step("--link-capacity", "1gbit")
    assert step("--set", "model.layers=16") > step("--set", "model.layers=2")
    assert len(as_json(do("plan", "r.toml", *TWO[:2], on=cards, directory=recipe))["ranks"]) == 1


def test_a_notebook_gets_a_picture_of_the_step(do, cards, recipe):
    screen = Paper(in_background=True)
    outcome = do("plan", "r.toml", on=cards, directory=recipe, screen=screen)
    assert outcome.picture is not None
    assert Image.open(io.BytesIO(outcome.picture)).format == "PNG"
    assert outcome.picture_text
    assert do("plan", "r.toml", on=cards, directory=recipe).picture is None
    assert do("plan", "r.toml", "--json", on=cards, directory=recipe, screen=screen).picture is None


def test_cpus_can_be_planned_for(do, recipe, as_json):
    cpus = StandInCluster([node("muthur", 2), node("wopr", 1)])
    data = as_json(do("plan", "r.toml", on=cpus, directory=recipe))
    assert [rank["device"] for rank in data["ranks"]] == ["CPU", "CPU"]
    assert data["guesses"]


def test_links_that_were_not_measured_are_said_to_be_guesses(do, recipe, as_json):
    nodes = [node(name, at, capacity=None) for at, name in enumerate(("muthur", "wopr"), 1)]
    data = as_json(do("plan", "r.toml", on=StandInCluster(nodes), directory=recipe))
    assert not any(link["speed"].get("is_measured") for link in data["links"])
    assert any("link" in guess for guess in data["guesses"])


def test_a_script_is_refused(do, cards, tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    with pytest.raises(SpecError, match=wording("recipe")):
        do("plan", "train.py", on=cards, directory=tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ("gone.toml",),
        ("r.toml", "--member", "nobody:1"),
        ("r.toml", "--set", "pipeline.microbatches=7"),
        ("r.toml", "--set", "model.layers=1"),
        ("r.toml", "--set", "model.path=/nowhere/model"),
    ],
)
def test_what_cannot_be_planned_is_one_line_with_its_fix(do, cards, recipe, words):
    with pytest.raises(MntrainError) as caught:
        do("plan", *words, on=cards, directory=recipe)
    assert caught.value.fix
    assert "\n" not in str(caught.value)


def test_a_launch_says_in_a_line_what_is_expected(do, cards, recipe, text, as_json):
    screen = Paper()
    launched = do("launch", "r.toml", "--detach", on=cards, directory=recipe, screen=screen)
    said = [text(one).strip() for one in screen.said]
    schedule = as_json(launched)["plan"]["chosen"]["pipeline.schedule"]
    (line,) = [one for one in said if schedule in one]
    assert says("guessed", line)
    assert says("8 bits between muthur and wopr", line)
    for outcome in (launched, do("launch", "--dry-run", "r.toml", on=cards, directory=recipe)):
        assert as_json(outcome)["plan"]["step_s"] > 0
    dry = text(do("launch", "--dry-run", "r.toml", on=cards, directory=recipe).renderable)
    assert " ".join(line.split()) in " ".join(dry.split()), "in lines of their own width"


def test_a_launch_without_a_prediction_starts_all_the_same(do, cards, tmp_path, as_json):
    (tmp_path / "train.py").write_text("print(1)\n")
    outcome = do("launch", "train.py", "--detach", on=cards, directory=tmp_path)
    assert "plan" not in as_json(outcome)
    assert len(cards.launches) == 1


def measured(name: str, number: int, flops_per_s: float) -> NodeView:
    """A node whose CPU was measured."""
    view = node(name, number)
    assert view.info is not None
    inventory = replace(view.info.inventory, devices=(device(flops_per_s=flops_per_s),))
    return replace(view, info=replace(view.info, inventory=inventory))


def test_a_device_that_was_measured_counts_as_measured(do, recipe, as_json):
    slow, fast = (
        as_json(
            do(
                "plan", "r.toml", "--set", "model.dtype=float32", directory=recipe,
                on=StandInCluster([measured("muthur", 2, rate), measured("wopr", 1, rate)]),
            )
        )
        for rate in (1e9, 1e12)
    )  # fmt: skip
    assert all(rank["speed"]["is_measured"] for rank in slow["ranks"])
    assert "guesses" not in slow
    assert slow["step_s"] > fast["step_s"]


def test_nodes_that_nobody_named_are_in_the_order_that_is_fastest(do, recipe, as_json):
    """A slow node gets a layer, and not the head, which costs more than all layers."""
    cluster = StandInCluster([measured("muthur", 2, 1e10), measured("wopr", 1, 1e9)])
    changes = ("model.dtype=float32", "data.vocabulary_size=200000", "pipeline.schedule=1f1b")
    words = [word for change in changes for word in ("--set", change)]

    def told(*more: str) -> tuple[list[str], Any]:
        data = as_json(
            do("launch", "--dry-run", "r.toml", *words, *more, on=cluster, directory=recipe)
        )
        return [one["node"] for one in data["spec"]["participants"]], data["plan"]

    best, plan = told()
    assert best == ["wopr", "muthur"]
    assert told("--head", "muthur")[0] == ["muthur", "wopr"]
    assert told("--member", "muthur:1", "--member", "wopr:1")[0] == ["muthur", "wopr"]
    assert told("--member", "wopr:1", "--member", "muthur:1") == (best, plan)


def test_a_plan_from_a_job_has_the_speeds_that_it_achieved(do, recipe, text, as_json):
    nodes = [node("wopr", 1), node("muthur", 2)]

    def after(job_plan, *words):
        job = StandInJob(sample_job({"wopr": 1, "muthur": 1}, traced=(3, 5, 10), plan=job_plan))
        return do("plan", *words, on=StandInCluster(nodes, [job]), directory=recipe)

    whole = after(plan_of(), "--json", "r.toml")
    # The job computes for 1.0 s: as planned, or twice as long.
    fast, slow = (
        as_json(after(plan_of(1.2, planned), "r.toml", "--speeds-of", "j-7f3a", "--json"))
        for planned in (1.0, 0.5)
    )
    for one in (fast, slow):
        assert all("j-7f3a9c21" in rank["speed"]["source"] for rank in one["ranks"])
        assert all("j-7f3a9c21" in link["speed"]["source"] for link in one["links"])
        assert "guesses" not in one
    assert slow["ranks"][0]["computing_s"] == pytest.approx(2 * fast["ranks"][0]["computing_s"])
    assert as_json(whole)["guesses"]
    shown = text(after(plan_of(), "--speeds-of", "j-7f3a").renderable)
    assert says("with the speeds of job j-7f3a9c21", shown), "its own recipe"


def test_a_plan_from_a_job_without_one_is_refused(do, recipe):
    with pytest.raises(SpecError, match=wording("has no plan")):
        do("plan", "r.toml", "--speeds-of", "j-7f3a", directory=recipe)

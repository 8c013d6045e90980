"""``measure``: which of links and devices are measured, and how devices are told."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from tests.standin.cluster import node
from tests.standin.screen import Paper
from tests.wording import says

BOTH = ("wopr", "hal")
BUSY = Problem(kind=Kind.STILL_RUNNING, cause="a job runs on it", fix="wait", node="hal")


@pytest.mark.parametrize(
    ("words", "parts", "links"),
    [
        (BOTH, {"links", "devices", "problems"}, 1),
        (("--links", *BOTH), {"links"}, 1),
        (("--devices", *BOTH), {"devices", "problems"}, 0),
        (("--links", "--devices", *BOTH), {"links", "devices", "problems"}, 1),
        (("wopr",), {"devices", "problems"}, 0),  # it has no link
    ],
)
def test_links_and_devices_are_measured_unless_one_of_them_is_asked_for(
    do, cluster, as_json, words, parts, links
):
    data = as_json(do("measure", *words))
    assert set(data) == parts
    assert len(cluster.measured) == links
    assert bool(cluster.usage.devices_asked) == ("devices" in parts)


def test_each_device_and_dtype_has_a_line(do, text, cluster, as_json):
    cluster.become(*cluster.nodes(), node("cards", 7, gpus=2))
    outcome = do("measure", "--devices", "wopr:2", "cards")
    assert [
        (one["node"], one["gpu"], one["dtype"], one.get("ranks", 1))
        for one in as_json(outcome)["devices"]
    ] == [
        ("wopr", None, "float32", 2),
        ("wopr", None, "bfloat16", 2),
        ("cards", 0, "float32", 2),
        ("cards", 0, "bfloat16", 2),
        ("cards", 1, "float32", 2),
        ("cards", 1, "bfloat16", 2),
    ]
    shown = text(outcome.renderable)
    assert "100\u00a0GFLOP/s" in shown
    assert "20.0\u00a0GB/s" in shown
    assert "GPU 1, RTX" in shown
    assert "2 ranks of 4 threads" in shown
    assert "lower bound" not in shown


def test_a_disturbed_device_says_so(do, text, cluster):
    cluster.usage.disturbed = "alongside other processes"
    shown = text(do("measure", "--devices", "wopr").renderable)
    assert "alongside other processes" in shown
    assert says("lower bound", shown)


def test_the_interpreter_of_a_job_is_asked_for(do, cluster):
    do("measure", "--devices", "wopr", "--python", "conda:lm")
    assert [python for _, python in cluster.usage.devices_asked] == ["conda:lm"]


def test_a_node_that_cannot_measure_says_why_beside_the_others(do, text, cluster, as_json):
    cluster.usage.lacking["hal"] = BUSY
    outcome = do("measure", "--devices", *BOTH)
    assert {one["node"] for one in as_json(outcome)["devices"]} == {"wopr"}
    assert [one["node"] for one in as_json(outcome)["problems"]] == ["hal"]
    assert says("a job runs on it", text(outcome.renderable))


def test_where_no_node_can_measure_the_first_reason_is_the_error(do, text, cluster):
    cluster.usage.lacking = {"wopr": BUSY, "hal": BUSY}
    with pytest.raises(RefusedError) as caught:
        do("measure", "--devices", *BOTH)
    assert caught.value.kind == Kind.STILL_RUNNING
    outcome = do("measure", *BOTH)
    assert outcome.data["links"], "links are measured anyway"
    assert says("a job runs on it", text(outcome.renderable))


def test_the_progress_counts_nodes(do):
    paper = Paper()
    do("measure", "--devices", *BOTH, screen=paper)
    assert says("at most 1\u00a0min 00\u00a0s for each node", " ".join(map(str, paper.said)))

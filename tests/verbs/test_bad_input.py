"""Bad input to any verb: one line, a fix, and nothing is started."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, SpecError, TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from tests.standin.cluster import StandInCluster, node
from tests.wording import says, wording


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["launch"], ["nothing to launch", ".toml"]),
        (["launch", "gone.toml"], ["gone.toml"]),
        (["launch", "r.toml", "--member", "wpor:1"], ["'wpor'", "wopr"]),
        (["launch", "r.toml", "--member", "wopr:x"], ["'x'", "HOST:N[:IFACE]"]),
        (["launch", "r.toml", "--member", "gpus:9"], ["gpus", "2 GPUs", "9"]),
        (["launch", "r.toml", "--head", "nobody"], ["nobody", "not a participant"]),
        (["launch", "r.toml", "--set", "train.stesp=3"], ["train.stesp", "steps"]),
        (["launch", "r.toml", "--set", "train.steps=0"], ["train.steps = 0", "from 1"]),
        (
            ["launch", "r.toml", "--set", "train.steps=5", "--set", "train.epochs=2"],
            ["train.steps and train.epochs are both given", "remove one"],
        ),
        (["launch", "r.toml", "--set", "pipeline.in_flight=[1]"], ["in_flight"]),
        (["launch", "r.toml", "--wait", "--detach"], ["--wait", "--detach"]),
        (["launch", "r.toml", "--timeout", "5"], ["--timeout", "--wait"]),
        (["resume", "j-7f3a", "--timeout", "5"], ["--timeout", "--wait"]),
        (["launch", "r.toml", "-o", "x"], ["variables"]),
        (["chat", "models/x"], ["not known which node has", "--node", "wopr"]),
        (["chat", "j-7f3a", "--node", "wopr"], ["--node is for directories"]),
        (["chat", "j-7f3a", "--completion", "--system", "x"], ["has no system message"]),
        (["serve", "j-7f3a", "--listen", "wopr"], ["'wopr' is no IP address", "0.0.0.0"]),
        (["stop"], ["stop", "j-7f3a9c21"]),
        (["kill"], ["kill", "j-7f3a9c21"]),
        (["stop", "j-7f3a", "--grace", "-1"], ["-1"]),
        (["status", "j-nope"], ["j-nope", "jobs"]),
        (["plot"], ["-o"]),
        (["plot", "-o", "x.jpg"], ["x.jpg: the picture is written as PNG", "x.png"]),
        (["trace"], ["has not recorded a step yet", "after its third step"]),
        (["trace", "-o", "x.pdf"], ["x.pdf: a step is written as .json or as .png", "x.json"]),
        (["trace", "-o", "no/such/dir/x.json"], ["no/such/dir"]),
        (["nodes", "--allocation", "no/slots"], ["no/slots", "no such allocation directory"]),
        (["launch", "quick-chek"], ["use quick-check"]),
        (["plot", "-o", "no/such/dir/x.png"], ["no/such/dir"]),
        (
            ["measure", "--links", "wopr"],
            ["needs two nodes", "only wopr was chosen", "name "],
        ),
    ],
)
def test_bad_input_is_one_line_and_launches_nothing(do, cluster, recipe, words, told):
    cluster._nodes = (*cluster._nodes, node("gpus", 7, gpus=2))
    with pytest.raises(MntrainError) as caught:
        do(*words, directory=recipe)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert caught.value.fix
    assert all(says(word, message) for word in told)
    assert cluster.launches == []
    assert all(name == "watch" for job in cluster._jobs.values() for name, _ in job.calls)


@pytest.mark.parametrize(
    "words",
    [
        ["launch", "r.toml"],
        ["launch", "r.toml", "--dry-run"],
        ["launch", "j-7f3a"],
        ["jobs"],
        ["nodes"],
        ["nodes", "--agent", "127.0.0.2:8765", "--agent", "127.0.0.3:8765"],
        ["status"],
        ["status", "j-7f3a"],
        ["attach"],
        ["logs"],
        ["stacks"],
        ["export"],
        ["plot", "-o", "x.png"],
        ["generate", "j-7f3a", "Once"],
        ["stop"],
        ["save", "j-7f3a"],
        ["kill"],
        ["measure"],
        ["members"],
        ["revoke", "kim"],
    ],
)
def test_before_there_is_a_cluster_every_verb_that_needs_one_says_so(do, cluster, recipe, words):
    cluster.is_driver = False
    with pytest.raises(TrustError) as caught:
        do(*words, directory=recipe)
    assert caught.value.kind is Kind.NOT_TRUSTED
    assert says("no cluster named 'lab' exists on this machine yet", caught.value.cause)
    assert says("mntrain invite", caught.value.fix)


def test_a_cell_below_a_verb_that_takes_none_is_refused(do):
    with pytest.raises(SpecError, match=wording("takes no cell")):
        do("nodes", cell="x")


def test_no_job_at_all_says_how_to_begin(do):
    with pytest.raises(JobNotFoundError, match=wording("launch")):
        do("status", on=StandInCluster([node("wopr", 1)]))

"""``launch``: the spec that they make, and what they refuse."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import SILENCES, Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import Availability
from jupyter_mntrain.plan import resolved
from jupyter_mntrain.recipe.stored import recipe_of
from jupyter_mntrain.workload.workload import from_cell
from tests.doctor.faults import FAULTS
from tests.doctor.healthy import healthy
from tests.standin.availability import offered
from tests.standin.cluster import node
from tests.standin.job_handle import StandInJob
from tests.standin.screen import Paper
from tests.standin.training import sample_job
from tests.wording import says, wording

FIXED = tuple(
    word
    for one in (
        "pipeline.schedule=eager-1f1b",
        "pipeline.microbatches=8",
        "pipeline.split=even",
        "memory.checkpointing=none",
    )
    for word in ("--set", one)
)
"""Leaves nothing to a plan, which would make it fit."""

RECIPE = '[model]\npreset = "llama-tiny"\n'


def test_launch_builds_the_spec_that_was_asked_for(do, cluster, recipe):
    outcome = do(
        "launch", "r.toml", "--member", "wopr:1:eno1", "--member", "muthur:2", "--head", "muthur",
        "--port", "29511", "--env", "A=1", "--torchrun=--redirects=1", "--name", "mine",
        "--link-capacity", "1gbit", directory=recipe,
    )  # fmt: skip
    (spec,) = cluster.launches
    assert [p.node for p in spec.participants] == ["muthur", "wopr"]
    assert spec.participants[1].interface == "eno1"
    assert spec.world_size == 3
    assert (spec.port, spec.name) == (29511, "mine")
    assert spec.environment == {"A": "1"}
    assert spec.torchrun_arguments == ("--redirects=1",)
    assert spec.link_capacity_bytes_per_s == 125e6
    assert spec.files == {"recipe.toml": RECIPE}
    assert outcome.exit_code == 0


def test_launch_returns_at_once_and_says_how_to_follow(do, text, recipe, as_json):
    outcome = do("launch", "r.toml", directory=recipe)
    assert "mntrain attach j-7f3a9c21" in text(outcome.renderable)
    assert as_json(outcome)["job_id"] == "j-7f3a9c21"
    assert outcome.job is not None


def test_every_file_that_is_sent_is_named(do, text, recipe):
    (recipe / "train.py").write_text("open('a.json'), open('b.json')\n")
    for name in ("a.json", "b.json"):
        (recipe / name).write_text("{}")
    screen = Paper()
    files = ("--file", "a.json", "--file", "b.json")
    do("launch", "train.py", *files, screen=screen, directory=recipe)
    said = "".join(map(text, screen.said))
    assert says("sending 3 files: a.json, b.json, train.py", said)


@pytest.mark.parametrize("named", [(), ("--member", "wopr:1", "--member", "muthur:1")])
def test_its_nodes_are_found_once(do, recipe, monkeypatch, named):
    found = []
    real = resolved.find_participants
    monkeypatch.setattr(resolved, "find_participants", lambda *a: found.append(1) or real(*a))
    do("launch", "r.toml", *named, directory=recipe)
    assert len(found) == 1, "for its plan, its order, its memory and what is said of the nodes"


def test_a_job_may_be_left_to_wait_for_its_turn(do, cluster, text, recipe, as_json):
    words = ("launch", "r.toml", "--queue", "--priority", "5", "--restarts", "3")
    words += ("--on-stall", "abort", "--on-nan", "report")
    outcome = do(*words, "--min-nodes", "1", directory=recipe)
    assert "follow: mntrain attach" in text(outcome.renderable)
    assert as_json(outcome)["job_id"] == "j-7f3a9c21"
    assert cluster.launches == []
    (spec,) = cluster.queued
    assert (spec.priority, spec.max_restarts, spec.on_stall, spec.min_nodes) == (5, 3, "abort", 1)
    assert spec.on_nan == "report"
    with pytest.raises(SpecError, match=wording("from -1000 to 1000")):
        do("launch", "r.toml", "--priority", "high", directory=recipe)


def test_a_notebook_shows_the_launched_job_live_unless_detached(do, recipe):
    screen = Paper(in_background=True)
    do("launch", "r.toml", directory=recipe, screen=screen)
    do("launch", "r.toml", "--detach", directory=recipe, screen=screen)
    assert len(screen.shown) == 1


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 1), ("canceled", 1)])
def test_waiting_is_zero_only_when_every_rank_succeeded(do, cluster, recipe, state, code):
    cluster.to_launch = StandInJob(sample_job({"wopr": 1, "muthur": 1}), ends_as=state)
    assert do("launch", "r.toml", "--wait", directory=recipe).exit_code == code


def test_ctrl_c_detaches_and_says_that_the_job_goes_on(do, cluster, recipe, text):
    cluster.to_launch.interrupts_wait = True
    outcome = do("launch", "r.toml", "--wait", directory=recipe)
    assert outcome.exit_code == 130
    assert "continues" in text(outcome.renderable)
    assert cluster.to_launch.calls == []


def test_dry_run_is_shell_to_paste_and_starts_nothing(do, cluster, recipe, text, as_json):
    for words in (["dry-run"], ["launch", "--dry-run"]):
        outcome = do(*words, "r.toml", "--member", "wopr:1", directory=recipe)
        shown = text(outcome.renderable, width=40)
        assert "# wopr\ncd /state/jobs/j-00000000/attempt-1/work\n" in shown
        assert "export NCCL_SOCKET_IFNAME==eno1\n" in shown
        assert "export A='two words'\n" in shown
        assert "python -P -m torch.distributed.run -m jupyter_mntrain.train recipe.toml\n" in shown
        data = as_json(outcome)
        assert data["commands"][0]["argv"][0] == "python"
        assert data["spec"]["files"] == {"recipe.toml": RECIPE}
    assert cluster.launches == []


@pytest.mark.parametrize(("level", "code"), [("stops", 1), (None, 0)])
def test_a_dry_run_ends_with_1_if_something_would_stop_the_launch(do, cluster, recipe, level, code):
    if level:
        full = next(one for one in FAULTS if (one.check, one.level) == ("disk-space", level))
        cluster.doctor.case = full.make(healthy())
    names = [one.name for one in healthy().nodes]
    cluster.become(*(node(name, number) for number, name in enumerate(names, 1)))
    members = [word for name in names for word in ("--member", f"{name}:1")]
    words = ["launch", "r.toml", "--dry-run", *members]
    assert do(*words, directory=recipe).exit_code == code
    assert do(*words, "--skip-doctor", directory=recipe).exit_code == 0


def test_a_node_that_does_not_answer_is_said_to_be_left_out(do, cluster, recipe, as_json):
    cluster.become(node("wopr", 1), node("hal", 2, liveness="lost", reason="refused"))
    for words in (["launch", "--dry-run"], ["launch", "--detach"]):
        (left_out,) = as_json(do(*words, "r.toml", directory=recipe))["warnings"]
        assert left_out["node"] == "hal"
        assert left_out["kind"] in SILENCES
        assert "warnings" not in as_json(
            do(*words, "r.toml", "--member", "wopr:1", directory=recipe)
        )


def test_a_drained_node_is_left_out_or_waited_for(do, cluster, recipe, as_json):
    drained = Problem(kind=Kind.DRAINED, cause="its owner drained it: exam", fix="leave it out")
    cluster.become(node("wopr", 1), offered(node("hal", 2), Availability(), drained))
    (left_out,) = as_json(do("launch", "r.toml", "--detach", directory=recipe))["warnings"]
    assert (left_out["node"], left_out["kind"]) == ("hal", "drained")
    assert [one.node for one in cluster.launches[0].participants] == ["wopr"]
    with pytest.raises(RefusedError) as caught:
        do("launch", "r.toml", "--member", "hal:1", directory=recipe)
    assert (caught.value.node, caught.value.kind) == ("hal", Kind.DRAINED)
    queued = do("launch", "r.toml", "--queue", "--detach", directory=recipe)
    assert "warnings" not in as_json(queued)
    assert {one.node for one in cluster.queued[0].participants} == {"wopr", "hal"}


def test_a_rank_has_as_much_memory_as_is_offered(do, cluster, recipe, as_json):
    cluster.become(offered(node("gpu", 1, gpus=1), Availability(memory_bytes=1 << 28)))
    (rank,) = as_json(do("launch", "--dry-run", "r.toml", "--member", "gpu:1", directory=recipe))[
        "memory"
    ]
    assert (rank["gpu_bytes"], rank["fits"]) == (1 << 28, False)
    # The tensors alone would fit.
    assert rank["total_bytes"] - sum(rank["overhead"].values()) < 1 << 28


def test_a_dry_run_says_what_fits(do, cluster, recipe, text, as_json):
    cluster.become(node("gpu", 1, gpus=2), node("wopr", 2))
    members = ("--member", "gpu:gpu0,1", "--member", "wopr:1")
    small = do("launch", "--dry-run", "r.toml", *members, directory=recipe)
    assert "Estimated memory: rank 0 on gpu: weights " in " ".join(text(small.renderable).split())
    assert "too little" not in text(small.renderable)
    assert [one["node"] for one in as_json(small)["memory"]] == ["gpu", "gpu", "wopr"]
    changes = ("model.layers=8", "model.hidden_size=8192", "model.intermediate_size=28672")
    words = [*FIXED, *(word for one in changes for word in ("--set", one))]
    large = do("launch", "--dry-run", "r.toml", *members, *words, directory=recipe)
    shown = text(large.renderable, width=1000)
    assert says("; GPU 0 (RTX 3090) has 25.8 GB free, too little: use", shown)
    found = as_json(large)["memory"]
    assert [one["fits"] for one in found] == [False, False, True]
    assert found[0]["gpu_bytes"] == 24 << 30
    launched = do("launch", "r.toml", *members, *words, "--detach", directory=recipe)
    (note,) = as_json(launched)["warnings"]
    assert (note["kind"], note["node"], note["rank"]) == ("tight-memory", "gpu", 0)
    assert says("54.5 GB with CUDA's own memory", note["cause"])
    assert says("use more ranks", note["fix"])
    (recipe / "gone.toml").write_text('[model]\npath = "gone"\n')
    elsewhere = do("launch", "--dry-run", "gone.toml", *members, directory=recipe)
    gone = (
        f"Memory: {recipe}/gone is not on this machine; each rank reports it before its first step."
    )
    assert gone in text(elsewhere.renderable, width=1000)
    assert as_json(elsewhere)["memory"] is None


def test_a_dry_run_says_what_is_offloaded_and_whether_the_host_has_room(
    do, cluster, recipe, text, as_json
):
    cluster.become(node("gpu", 1, gpus=2), node("wopr", 2))
    members = ("--member", "gpu:gpu0,1", "--member", "wopr:1")
    offload = ("--set", "memory.offload_activations=true", "--set", "train.device=auto")
    small = do("launch", "--dry-run", "r.toml", *members, *offload, directory=recipe)
    assert " on the host; with CUDA 500.0 MB + NCCL " in text(small.renderable, width=1000)
    on_gpu, _, on_cpu = as_json(small)["memory"]
    assert on_gpu["estimate"]["host"] > 0
    assert "host" not in on_cpu["estimate"]
    assert on_cpu["overhead"]["process"] > 0
    assert (
        short_hosts(
            as_json(do("launch", "r.toml", *members, *offload, "--detach", directory=recipe))
        )
        == []
    )
    long = ("--set", "data.sequence_length=4096", "--set", "train.batch_size=4096")
    many = (*members, *offload, *long, *FIXED, "--set", "optimizer.kind=adafactor")
    large = do("launch", "--dry-run", "r.toml", *many, directory=recipe)
    assert says("its ranks keep ", text(large.renderable, width=1000))
    (note,) = short_hosts(as_json(do("launch", "r.toml", *many, "--detach", directory=recipe)))
    assert note["node"] == "gpu"
    assert says("GB are free", note["cause"])
    assert says("memory.offload_activations = false", note["fix"])


def short_hosts(data):
    """Notes of tight memory that are about a node, and not about a rank's GPU."""
    tight = [one for one in data.get("warnings", []) if one["kind"] == "tight-memory"]
    return [one for one in tight if one.get("rank") is None]


def test_a_cell_is_a_job(do, cluster, recipe):
    do("launch", "--set", "train.steps=7", cell="print(1)\n" if False else RECIPE, directory=recipe)
    (spec,) = cluster.launches
    assert spec.entry[-1] == "train.steps=7"
    assert spec.name == from_cell(RECIPE, directory=recipe).name


def test_further_files_go_along(do, cluster, recipe):
    (recipe / "helper.py").write_text("x = 1\n")
    do("launch", "r.toml", "--file", "helper.py", directory=recipe)
    assert cluster.launches[0].files["helper.py"] == "x = 1\n"


def test_a_cell_and_a_file_are_one_too_many(do, recipe):
    with pytest.raises(SpecError, match=wording("or a cell, not both")):
        do("launch", "r.toml", cell=RECIPE, directory=recipe)


def test_json_says_nothing_besides_the_data(do, recipe):
    screen = Paper()
    do("launch", "r.toml", "--wait", "--json", directory=recipe, screen=screen)
    do("measure", "--json", screen=screen)
    assert screen.said == []


def test_a_script_s_ranks_wait_as_long_as_the_launch_says(do, cluster, recipe):
    (recipe / "s.py").write_text("print('hi')\n")
    do("launch", "s.py", "--collective-timeout", "2min", directory=recipe)
    (spec, *_) = cluster.launches
    assert spec.environment["MNTRAIN_COLLECTIVE_TIMEOUT_S"] == "120"
    with pytest.raises(SpecError, match=wording("a recipe sets its own")):
        do("launch", "r.toml", "--collective-timeout", "2min", directory=recipe)
    with pytest.raises(SpecError, match=wording("between 10 s and a day")):
        do("launch", "s.py", "--collective-timeout", "1s", directory=recipe)


def test_debug_lets_everything_speak_and_what_is_set_by_hand_wins(do, cluster, recipe, as_json):
    words = ("r.toml", "--debug", "--env", "NCCL_DEBUG=WARN", "--set", "train.deterministic=false")
    do("launch", *words, "--member", "wopr:1", directory=recipe)
    (recipe / "s.py").write_text("print('hi')\n")
    mine = {"NCCL_DEBUG_SUBSYS": "NET"}
    words = ("s.py", "--debug", "--env", "NCCL_DEBUG_SUBSYS")
    do("launch", *words, directory=recipe, environment=mine)
    ours, script = cluster.launches
    assert ours.environment["NCCL_DEBUG"] == "WARN"
    assert ours.environment["TORCH_DISTRIBUTED_DEBUG"] == "DETAIL"
    assert ours.environment["CUDA_LAUNCH_BLOCKING"] == "1"
    train = recipe_of(ours).train
    assert (train.detect_anomaly, train.deterministic) == (True, False)
    assert script.environment["NCCL_DEBUG"] == "INFO"
    assert script.environment["NCCL_DEBUG_SUBSYS"] == "NET"
    shown = as_json(do("launch", "--dry-run", "r.toml", "--debug", directory=recipe))
    environment = shown["spec"]["environment"]
    assert environment["TORCH_CPP_LOG_LEVEL"] == "INFO"
    assert "CUDA_LAUNCH_BLOCKING" not in environment, "neighbors in a pipeline would wait"


def test_what_the_doctor_says_is_shown_and_told(do, cluster, recipe):
    screen = Paper()
    note = Problem(kind=Kind.DISK_FULL, cause="2 GB are free", fix="delete", node="wopr")
    cluster.notes = (note,)
    outcome = do("launch", "r.toml", "--detach", directory=recipe, screen=screen)
    assert any("wopr: 2 GB are free" in str(line) for line in screen.said)
    assert outcome.data["warnings"][-1]["kind"] == "disk-full"


def test_the_doctor_can_be_skipped(do, cluster, recipe):
    do("launch", "r.toml", "--detach", directory=recipe)
    assert cluster.unchecked == 0
    do("launch", "r.toml", "--detach", "--skip-doctor", directory=recipe)
    assert cluster.unchecked == 1

"""Every verb on a cluster in memory: what it says, what its data is, how it exits."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Leftover
from jupyter_mntrain.workload.workload import from_cell
from tests.standin.cluster import StandInCluster, StandInJob, node
from tests.standin.screen import Paper
from tests.standin.training import sample_job
from tests.wording import says

RECIPE = '[model]\npreset = "llama-tiny"\n'


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "r.toml").write_text(RECIPE)
    return tmp_path


def test_nodes_shows_state_speed_capacity_and_the_diverging_version(do, text, cluster):
    cluster.become(node("muthur", 2, torch="2.12.0"), *cluster.nodes()[1:])
    shown = text(do("nodes").renderable)
    assert "● up" in shown
    assert "eno1 10.0.0.1/24" in shown
    assert "941\u00a0Mbit/s measured" in shown
    assert "muthur: torch 2.12.0, the others have 2.13.0" in shown
    assert "connection refused" in shown
    assert "Training traffic between nodes is neither encrypted" in shown
    assert "docker0" not in shown
    assert "docker0" in text(do("nodes", "--all").renderable)


def test_a_job_that_hangs_says_whom_it_waits_for(text):
    from jupyter_mntrain.cluster import JobSummary
    from jupyter_mntrain.model.ids import JobId, Rank
    from jupyter_mntrain.show.tables.job import progress_line, status_view

    stall = Problem(
        kind=Kind.BUSY,
        cause="busy in load (data.py:12), and the other ranks wait",
        fix="look there",
        time_s=1000.0,
        node="hal",
        rank=Rank(1),
    )
    summary = JobSummary(job_id=JobId("j-00000001"), name="x", state="running", step=3, stall=stall)
    shown = text(status_view(summary, now_s=1075.0)).replace("\N{NO-BREAK SPACE}", " ")
    assert "⚠ stalled for 1 min 15 s: hal: rank 1: busy in load (data.py:12)" in shown
    assert "Fix: look there." in shown
    assert "stalled: hal: rank 1: busy" in progress_line(summary, 1075.0)


def test_stacks_say_where_each_rank_is_and_which_node_is_silent(do, cluster, text, as_json):
    from jupyter_mntrain.model.errors import NodeError
    from jupyter_mntrain.model.records.job import RankStack

    (job, *_) = cluster._jobs.values()
    job.at = {
        "wopr": [
            RankStack(rank=0, doing="busy", where="load (data.py:12)", text="Thread 1\n\nmain"),
            RankStack(rank=1, doing="stopped"),
        ],
        "muthur": NodeError("connection refused", node="muthur"),
    }
    shown = text(do("stacks", job.id).renderable)
    assert "rank 0 on wopr: busy, load (data.py:12)" in shown
    assert "Thread 1" not in shown
    assert "rank 1 on wopr: stopped" in shown
    assert "⚠ muthur: connection refused" in shown
    shown = text(do("stacks", job.id, "--rank", "0").renderable)
    assert "Thread 1" in shown
    assert "rank 1" not in shown
    assert "no rank 9" in text(do("stacks", job.id, "--rank", "9").renderable)
    assert [one["rank"] for one in as_json(do("stacks", job.id))] == [0, 1]


def test_nodes_data_keeps_everything(do, as_json, cluster):
    cluster.become(node("muthur", 2, torch="2.12.0"), *cluster.nodes()[1:])
    data = as_json(do("nodes"))
    assert [one["name"] for one in data] == ["muthur", "wopr", "hal", "10.0.0.9:8765"]
    assert data[0]["divergences"][0]["key"] == "torch"
    assert data[3]["liveness"] == "lost"


def test_an_empty_cluster_says_what_to_do(do, text):
    shown = text(do("nodes", on=StandInCluster()).renderable)
    assert "mntrain invite" in shown
    assert "mntrain add HOST:PORT" in shown


def test_why_nodes_are_missing_is_said(do, text):
    cluster = StandInCluster()
    cluster.problem = Problem(
        kind=Kind.NO_MULTICAST, cause="no multicast is received on 10.0.0.2", fix="open it"
    )
    cluster.strangers = ("hal of discovery",)
    shown = text(do("nodes", on=cluster).renderable)
    assert "received on 10.0.0.2. Fix: open it." in shown
    assert "Also announced here: hal of discovery." in shown
    cluster.is_driver = False
    shown = text(do("nodes", on=cluster).renderable)
    assert "no cluster called 'lab' yet" in shown
    assert "mntrain driver join TOKEN" in shown


def test_launch_builds_the_spec_that_was_asked_for(do, cluster, recipe):
    outcome = do(
        "launch", "r.toml", "--member", "wopr:1:eno1", "--member", "muthur:2", "--head", "muthur",
        "--port", "29511", "--env", "A=1", "--torchrun=--max-restarts=1", "--name", "mine",
        "--link-capacity", "1gbit", directory=recipe,
    )  # fmt: skip
    (spec,) = cluster.launches
    assert [p.node for p in spec.participants] == ["muthur", "wopr"]
    assert spec.participants[1].interface == "eno1"
    assert spec.world_size == 3
    assert (spec.port, spec.name) == (29511, "mine")
    assert spec.environment == {"A": "1"}
    assert spec.torchrun_arguments == ("--max-restarts=1",)
    assert spec.link_capacity_bytes_per_s == 125e6
    assert spec.files == {"recipe.toml": RECIPE}
    assert outcome.exit_code == 0


def test_launch_returns_at_once_and_says_how_to_follow(do, text, recipe, as_json):
    outcome = do("launch", "r.toml", directory=recipe)
    assert "mntrain attach j-7f3a9c21" in text(outcome.renderable)
    assert as_json(outcome)["job_id"] == "j-7f3a9c21"
    assert outcome.job is not None


def test_a_job_may_be_left_to_wait_for_its_turn(do, cluster, text, recipe, as_json):
    words = ("launch", "r.toml", "--queue", "--priority", "5", "--restarts", "3")
    outcome = do(*words, "--on-stall", "abort", "--min-nodes", "1", directory=recipe)
    assert "follow: mntrain attach" in text(outcome.renderable)
    assert as_json(outcome)["job_id"] == "j-7f3a9c21"
    assert cluster.launches == []
    (spec,) = cluster.queued
    assert (spec.priority, spec.max_restarts, spec.on_stall, spec.min_nodes) == (5, 3, "abort", 1)
    with pytest.raises(SpecError, match="from -1000 to 1000"):
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
        assert "python -m torch.distributed.run -m jupyter_mntrain.train recipe.toml\n" in shown
        data = as_json(outcome)
        assert data["nodes"][0]["argv"][0] == "python"
        assert data["spec"]["files"] == {"recipe.toml": RECIPE}
    assert cluster.launches == []


def test_a_dry_run_says_what_fits(do, cluster, recipe, text, as_json):
    cluster.become(node("gpu", 1, gpus=2), node("wopr", 2))
    members = ("--member", "gpu:gpu0,1", "--member", "wopr:1")
    small = do("dry-run", "r.toml", *members, directory=recipe)
    assert "Memory, as estimated:\nrank 0 on gpu: weights " in text(small.renderable)
    assert "too little" not in text(small.renderable)
    assert [one["node"] for one in as_json(small)["memory"]] == ["gpu", "gpu", "wopr"]
    changes = ("model.layers=8", "model.hidden_size=8192", "model.intermediate_size=28672")
    words = [word for one in changes for word in ("--set", one)]
    large = do("dry-run", "r.toml", *members, *words, directory=recipe)
    assert "; its GPU has 25.8 GB, too little" in text(large.renderable, width=1000)
    found = as_json(large)["memory"]
    assert [one["fits"] for one in found] == [False, False, True]
    assert found[0]["gpu_bytes"] == 24 << 30
    launched = do("launch", "r.toml", *members, *words, "--detach", directory=recipe)
    (note,) = as_json(launched)["warnings"]
    assert (note["kind"], note["node"], note["rank"]) == ("tight-memory", "gpu", 0)
    assert says("51.0 GB beside what CUDA takes", note["cause"])
    assert says("use more ranks", note["fix"])
    (recipe / "gone.toml").write_text('[model]\npath = "gone"\n')
    elsewhere = do("dry-run", "gone.toml", *members, directory=recipe)
    gone = (
        f"Memory: {recipe}/gone is not on this machine; each rank reports it before its first step."
    )
    assert gone in text(elsewhere.renderable)
    assert as_json(elsewhere)["memory"] is None


def test_a_cell_is_a_job(do, cluster, recipe):
    do("launch", "--set", "train.steps=7", cell="print(1)\n" if False else RECIPE, directory=recipe)
    (spec,) = cluster.launches
    assert spec.entry[-1] == "train.steps=7"
    assert spec.name == from_cell(RECIPE, directory=recipe).name


def test_further_files_go_along(do, cluster, recipe):
    (recipe / "helper.py").write_text("x = 1\n")
    do("launch", "r.toml", "--file", "helper.py", directory=recipe)
    assert cluster.launches[0].files["helper.py"] == "x = 1\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["launch"], ["nothing to launch", ".toml"]),
        (["launch", "gone.toml"], ["gone.toml"]),
        (["launch", "r.toml", "--member", "wpor:1"], ["'wpor'", "wopr"]),
        (["launch", "r.toml", "--member", "wopr:x"], ["'x'", "HOST:N[:IFACE]"]),
        (["launch", "r.toml", "--member", "gpus:9"], ["gpus", "2 GPUs", "9"]),
        (["launch", "r.toml", "--head", "nobody"], ["nobody", "not a participant"]),
        (["launch", "r.toml", "--set", "train.stesp=3"], ["train.stesp", "steps"]),
        (["launch", "r.toml", "--set", "train.steps=0"], ["train.steps = 0", "from 1"]),
        (["launch", "r.toml", "--set", "pipeline.in_flight=[1]"], ["in_flight"]),
        (["launch", "r.toml", "--wait", "--detach"], ["--wait", "--detach"]),
        (["launch", "r.toml", "-o", "x"], ["variables"]),
        (["stop"], ["stop", "j-7f3a9c21"]),
        (["kill"], ["kill", "j-7f3a9c21"]),
        (["stop", "j-7f3a", "--grace", "-1"], ["-1"]),
        (["status", "j-nope"], ["j-nope", "jobs"]),
        (["plot"], ["-o"]),
        (["plot", "-o", "no/such/dir/x.png"], ["no/such/dir"]),
        (["measure", "--member", "wopr"], ["needs two nodes", "wopr"]),
    ],
)
def test_bad_input_is_one_line_and_launches_nothing(do, cluster, recipe, words, says):
    cluster._nodes = (*cluster._nodes, node("gpus", 7, gpus=2))
    with pytest.raises(MntrainError) as caught:
        do(*words, directory=recipe)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert "Fix: " in message
    for word in says:
        assert word in message
    assert cluster.launches == []
    assert all(name == "watch" for job in cluster._jobs.values() for name, _ in job.calls)


def test_a_cell_below_a_verb_that_takes_none_is_refused(do):
    with pytest.raises(SpecError, match="takes no cell"):
        do("nodes", cell="x")


def test_a_cell_and_a_file_are_one_too_many(do, recipe):
    with pytest.raises(SpecError, match="launch takes one of them"):
        do("launch", "r.toml", cell=RECIPE, directory=recipe)


def test_jobs_and_status(do, text, as_json):
    assert "j-7f3a9c21" in text(do("jobs").renderable)
    assert as_json(do("jobs"))[0]["nodes"] == ["wopr", "muthur"]
    shown = text(do("status").renderable)
    assert "▶ running" in shown
    assert "samantha-7b" in shown
    for word in ("r0", "r1", "wopr", "muthur", "MFU", "→ sent", "941\u00a0Mbit/s measured"):
        assert word in shown
    data = as_json(do("status", "j-7f3a"))
    assert data["state"] == "running"
    assert len(data["ranks"]) == 2
    assert {link["direction"] for link in data["links"]} == {"sent", "received"}


def test_status_says_what_was_evaluated_last(do, text, as_json):
    sample = sample_job({"wopr": 1, "muthur": 1}, evaluated=20)
    last = next(iter(sample.history.ranks.values())).evaluations[-1].loss
    on = StandInCluster(nodes=[node("wopr", 1)], jobs=[StandInJob(sample)])
    shown = text(do("status", on=on).renderable)
    assert "evaluation" in shown
    assert f"{last:.3f}" in shown
    assert as_json(do("status", on=on))["evaluation_loss"] == last
    assert "evaluation" not in text(do("status").renderable)


def test_status_says_in_one_line_what_the_model_wrote_last(do, text):
    wrote = {"Who are you?": "I am\nSamantha, \x1b[31ma helpful assistant. " + "And so on. " * 100}
    sample = sample_job({"wopr": 1, "muthur": 1}, wrote=wrote)
    on = StandInCluster(nodes=[node("wopr", 1)], jobs=[StandInJob(sample)])
    last = text(do("status", on=on).renderable).rstrip().splitlines()[-1]
    assert last.startswith("sample at step 60  Who are you? I am Samantha, \ufffd[31ma helpful")
    assert last.endswith("…")
    assert "sample" not in text(do("status").renderable)


def test_a_failed_job_says_its_cause_first(do, failed_cluster, text):
    lines = text(do("status", on=failed_cluster).renderable).splitlines()
    assert lines[0].startswith("✕ muthur: rank 2: eno1 lost its link")
    assert "mntrain logs j-7f3a9c21 --rank 2" in lines[1]
    assert not any("Traceback" in line for line in lines)
    asked = text(do("status", "--traceback", on=failed_cluster).renderable)
    assert "RuntimeError: Connection closed by peer" in asked


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_status_is_readable_at_any_width(do, text, width):
    shown = text(do("status").renderable, width=width)
    assert "r0" in shown
    assert "wopr" in shown
    for line in shown.splitlines():
        assert len(line) <= max(width, 80)


def test_no_job_at_all_says_how_to_begin(do):
    with pytest.raises(JobNotFoundError, match="launch"):
        do("status", on=StandInCluster([node("wopr", 1)]))


def test_attach_in_a_terminal_stays_until_the_end(do):
    assert do("attach").exit_code == 0


def test_attach_in_a_notebook_returns_at_once(do):
    screen = Paper(in_background=True)
    outcome = do("attach", screen=screen)
    assert screen.shown == [outcome.job]
    assert screen.followed == []


def test_logs_name_node_and_rank(do, text, as_json):
    shown = text(do("logs").renderable)
    assert "wopr r0 │ step 1 loss 7.1" in shown
    assert "wopr torchrun │ torchrun is up" in shown
    assert as_json(do("logs", "--rank", "0")) == [
        {"node": "wopr", "rank": 0, "text": "step 1 loss 7.1"}
    ]


def test_following_logs_prints_each_line_once_and_ends_with_the_job(do, cluster, text):
    (job,) = cluster._jobs.values()
    screen = Paper()

    def sleep(_: float) -> None:
        job.lines.append(type(job.lines[0])(node="wopr", rank=0, text="step 2"))
        job.become("succeeded")

    do("logs", job.id, "--follow", screen=screen, sleep=sleep)
    said = "".join(text(one) for one in screen.said)
    assert said.count("step 1 loss") == 1
    assert said.count("step 2") == 1


def test_stop_and_kill_say_that_nothing_is_left(do, cluster, text, as_json):
    (job,) = cluster._jobs.values()
    job._ends_as = "canceled"
    outcome = do("stop", "j-7f3a", "--reason", "enough", "--grace", "1")
    assert job.calls == [("stop", ("enough", 1.0))]
    assert "no process is left" in text(outcome.renderable)
    assert as_json(outcome) == {
        "job_id": job.id, "state": "canceled", "leftovers": [], "unknown_nodes": [],
    }  # fmt: skip
    assert "already" in text(do("kill", job.id).renderable)


def test_what_would_not_die_is_named_and_is_a_failure(do, cluster, text):
    (job,) = cluster._jobs.values()
    job.become("canceled")
    view = job.view()
    left = Leftover(pid=4711, command="python train.py", status="disk sleep")
    parts = (msgspec.structs.replace(view.parts[0], leftovers=(left,)), *view.parts[1:])
    view = msgspec.structs.replace(view, parts=parts)
    job.view = lambda: view
    outcome = do("stop", job.id)
    assert outcome.exit_code == 1
    assert "wopr: pid 4711 could not be killed (disk sleep)" in text(outcome.renderable)


def test_a_silent_node_is_never_reported_as_stopped(do, cluster, text):
    (job,) = cluster._jobs.values()
    job._ends_as = "unknown"
    outcome = do("stop", job.id)
    assert outcome.exit_code == 1
    assert "may still run" in text(outcome.renderable)


def test_measure_is_every_ordered_pair(do, text, as_json):
    outcome = do("measure", "--member", "wopr", "--member", "hal")
    assert [(one["source"], one["destination"]) for one in as_json(outcome)] == [
        ("wopr", "hal"), ("hal", "wopr"),
    ]  # fmt: skip
    assert "941\u00a0Mbit/s" in text(outcome.renderable)


def test_json_says_nothing_besides_the_data(do, recipe):
    screen = Paper()
    do("launch", "r.toml", "--wait", "--json", directory=recipe, screen=screen)
    do("measure", "--json", screen=screen)
    assert screen.said == []


def test_add_and_forget(do, text):
    assert "is up" in text(do("add", "10.0.0.9").renderable)
    assert "forgotten" in text(do("forget", "10.0.0.9").renderable)


def test_cluster_and_agents_come_from_options_or_else_the_environment(cluster):
    from jupyter_mntrain.verbs import Clusters, Context, run_words

    asked = []

    def connect(name, addresses):
        asked.append((name, addresses))
        return cluster

    environment = {"MNTRAIN_CLUSTER": "home", "MNTRAIN_AGENTS": "b:2, a:1"}
    for words in (["jobs"], ["--cluster", "lab", "--agent", "c:3", "jobs"]):
        clusters = Clusters(connect)
        run_words(words, Context(clusters=clusters, screen=Paper(), environment=environment))
    assert asked == [("home", ("a:1", "b:2")), ("lab", ("c:3",))]

"""Sessions: ranks that stay on the nodes, and run cells."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.cluster.rank_session import RankSession, Unheard, Waiting
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.records.job import SESSION, TERMINAL, JobSpec, Participant
from jupyter_mntrain.model.records.session import Asked, Done, Shown, Text
from jupyter_mntrain.notebook import session_names
from jupyter_mntrain.notebook.session_names import SessionNames
from jupyter_mntrain.show.screen import CellTarget
from jupyter_mntrain.telemetry.session_socket import forkserver_socket
from jupyter_mntrain.trust.certificates import Subject
from jupyter_mntrain.verbs.sessions.cell import failed_rank
from jupyter_mntrain.verbs.verb import Clusters
from tests import trusted
from tests.agent.live import LiveAgent
from tests.waiting import until


@pytest.fixture
def session(cluster: Cluster) -> Iterator[RankSession]:
    nodes = tuple(Participant(node=node.name) for node in cluster.nodes())
    job = cluster.launch(JobSpec(entry=("-m", SESSION), participants=nodes))
    session = job.session()

    session.wait()
    yield session
    if job.state not in TERMINAL:
        job.stop()
    job.wait()


@pytest.mark.slow
@pytest.mark.agents
def test_a_viewer_does_not_see_what_cells_print(
    session: RankSession, agents: list[LiveAgent], tmp_path: Path
) -> None:
    list(session.run("print('what nobody else is told')"))
    viewer = trusted.make_credentials(tmp_path, Subject(role="viewer", name="kim"))
    job = session.job_id
    with httpx.Client(verify=viewer.unnamed_client, timeout=10) as client:
        for agent in agents:
            until(lambda agent=agent: "nobody else" in agent.get(f"/v1/jobs/{job}/log").text)
            for route in ("log", "log/times"):
                assert client.get(f"{agent.url}/v1/jobs/{job}/{route}").status_code == 403
            assert client.get(f"{agent.url}/v1/jobs/{job}").status_code == 200


@pytest.mark.slow
@pytest.mark.agents
def test_tab_shift_tab_and_debug_ask_the_rank_that_knows(
    session: RankSession, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_names, "ANSWER_S", 60.0)  # of a machine that is busy with tests
    clusters = Clusters(lambda *_: cluster)
    clusters.get("test", ())
    names = SessionNames(clusters, CellTarget())
    list(
        session.run("def halved(x):\n    'Half of it.'\n    return x / (1 - rank)\n\nhalved(rank)")
    )
    text = "%%mntrain cell\ny = halv"
    cell = names.cell_at(text, len(text))
    assert cell is not None
    assert names.complete(cell, text, len(text)) == ("halv", ("halved",))
    told = names.inspect(cell, text.replace("halv", "halved"), len(text), 0)
    assert told is not None
    assert "Half of it." in told["text/plain"]
    assert failed_rank(session) == 1
    events = session.run("%debug", [1])
    asked = next(one for one in events if isinstance(one, Asked))
    session.answer(asked.rank, "p x * 7")
    asked = next(one for one in events if isinstance(one, Asked))
    session.answer(asked.rank, "q")
    assert ended(list(events))[1].end == "ok"
    names.close()


def forkservers(agents: list[LiveAgent], session: RankSession) -> list[Path]:
    attempt = Path("jobs", session.job_id, "attempt-1")
    return [forkserver_socket(agent.state / attempt / "metrics") for agent in agents]


SCRIPT = """
import json, os, sys
was = "torch" in sys.modules
import random, numpy, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(1) * float(os.environ["SCALE"])
dist.all_reduce(value)
generator = torch.Generator().manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
for parameter in model.parameters():
    torch.nn.init.normal_(parameter, generator=generator)
model, losses = torch.nn.parallel.DistributedDataParallel(model), []
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(10):
    loss = model(torch.randn(16, 64, generator=generator)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item().hex())
told = {
    "forked": was and os.environ["MNTRAIN_FORKSERVER"],
    "value": value.item(),
    "first": torch.rand(1).item() if torch.initial_seed() == 7 else torch.manual_seed(7) and None,
    "left": os.environ.pop("LEFT", "") + str(getattr(sys, "left", "")),
    "drawn": [random.random(), numpy.random.rand()],
    "folder": os.path.basename(os.getcwd()),
    "losses": losses,
    "threads": torch.get_num_threads(),
    "arguments": sys.argv[1:],
}
sys.left, os.environ["LEFT"] = "sys", "environment"
print(json.dumps(told), flush=True)
os.chdir("/")
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.agents
def test_jobs_are_launched_into_a_session_and_leave_nothing_to_the_next(
    session: RankSession, cluster: Cluster, agents: list[LiveAgent]
) -> None:
    list(session.run("kept = 5"))
    until(lambda: all(path.exists() for path in forkservers(agents, session)))
    nodes = tuple(Participant(node=node.name) for node in cluster.nodes())

    def told(code: int, **changes: object) -> list[dict[str, object]]:
        environment = {"SCALE": "2", **changes.pop("environment", {})}  # type: ignore[dict-item]
        job = cluster.launch(
            JobSpec(
                entry=("a.py", str(code)),
                files={"a.py": SCRIPT},
                participants=nodes,
                session=session.job_id,
                environment=environment,
                **changes,  # type: ignore[arg-type]
            )
        )
        view = job.wait()
        assert view.state == ("failed" if code else "succeeded"), job.logs()
        if code:
            assert view.problem is not None
            assert str(code) in view.problem.cause
        said = [line.text for line in job.logs() if "{" in line.text]
        return [json.loads(one[one.index("{") :]) for one in said]

    first, second = told(0), told(3)
    for one in (*first, *second):
        assert session.job_id in str(one["forked"])
        assert (one["value"], one["first"], one["left"], one["threads"]) == (4.0, None, "", 1)
    drawn = [one["drawn"] for one in (*first, *second)]
    assert all(len({*numbers}) == 4 for numbers in zip(*drawn, strict=True))  # type: ignore[misc]
    assert [one["arguments"] for one in (*first, *second)] == [["0"]] * 2 + [["3"]] * 2
    assert {one["folder"] for one in (*first, *second)} == {"work"}
    other = told(0, environment={"PYTHONHASHSEED": "1"}, python=sys.executable)
    assert not any(one["forked"] for one in other), "Python reads it first"
    assert len({str(one["losses"]) for one in (*first, *second, *other)}) == 1
    assert texts(list(session.run("print(kept)")), 0) == "5\n"


@pytest.mark.slow
@pytest.mark.agents
def test_a_job_outlives_the_session_that_it_was_launched_into(
    session: RankSession, cluster: Cluster, agents: list[LiveAgent]
) -> None:
    until(lambda: all(path.exists() for path in forkservers(agents, session)))
    job = cluster.launch(
        JobSpec(
            entry=("a.py",),
            files={
                "a.py": "import os, time; print(os.environ['MNTRAIN_FORKSERVER'], flush=True)\n"
                "time.sleep(600)"
            },
            participants=tuple(Participant(node=node.name) for node in cluster.nodes()),
            session=session.job_id,
        )
    )
    until(lambda: sum(session.job_id in line.text for line in job.logs()) == 2)
    stopped = cluster.job(session.job_id)
    stopped.stop()
    assert stopped.wait().state == "canceled"
    assert job.state not in TERMINAL
    job.stop()
    view = job.wait()
    assert view.state == "canceled"
    assert not any(part.leftovers for part in view.parts)


def ended(events: list[object]) -> dict[int, Done]:
    return {one.rank: one for one in events if isinstance(one, Done)}


def texts(events: list[object], rank: int) -> str:
    return "".join(one.text for one in events if isinstance(one, Text) and one.rank == rank)


@pytest.mark.slow
@pytest.mark.agents
def test_cells_keep_their_state_and_find_the_group_ready(session: RankSession) -> None:
    first = list(session.run("x = torch.ones(2) * (rank + 1); dist.all_reduce(x); x"))
    assert {one.end for one in ended(first).values()} == {"ok"}
    shown = [one.data["text/plain"] for one in first if isinstance(one, Shown)]
    assert shown == ["tensor([3., 3.])"] * 2
    second = list(session.run("print(rank, x[0].item(), await asyncio_()) "))
    assert {one.error for one in ended(second).values()} == {"NameError"}
    third = list(session.run("print(rank, x[0].item())", [1]))
    assert texts(third, 1) == "1 3.0\n"
    assert [*ended(third)] == [1]
    with pytest.raises(SpecError):
        session.run("1", [7])


@pytest.mark.slow
@pytest.mark.agents
def test_ranks_that_wait_for_others_are_named_and_can_be_interrupted(session: RankSession) -> None:
    events: list[object] = []

    def run() -> None:
        for event in session.run("if rank == 0:\n    dist.all_reduce(torch.ones(1))"):
            events.append(event)  # noqa: PERF402 - the others look meanwhile

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: any(isinstance(one, Waiting) for one in events))
    (waiting,) = (one for one in events if isinstance(one, Waiting))
    assert str(waiting) == (
        "rank 0 waits in all_reduce in line 2 for rank 1, which has ended the cell"
    )
    assert session.interrupt() == ()
    thread.join()
    assert {rank: one.end for rank, one in ended(events).items()} == {0: "interrupted", 1: "ok"}
    after = list(session.run("y = torch.ones(1); dist.all_reduce(y); int(y)"))
    assert {one.end for one in ended(after).values()} == {"ok"}


@pytest.mark.slow
@pytest.mark.agents
def test_where_an_interrupted_cell_goes_on_is_told(session: RankSession) -> None:
    code = (
        "import time\n"
        "for _ in range(1 + 2 * rank):\n"
        "    try:\n        print(rank)\n        time.sleep(600)\n"
        "    except KeyboardInterrupt:\n        pass"
    )
    begun = threading.Event()
    events: list[object] = []

    def run() -> None:
        for event in session.run(code):
            events.append(event)
            if {one.rank for one in events if isinstance(one, Text)} == {0, 1}:
                begun.set()

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    assert session.interrupt() == (1,)
    assert session.interrupt() == ()
    thread.join()
    assert {rank: one.end for rank, one in ended(events).items()} == {0: "ok", 1: "ok"}


MISDEEDS = {
    "forks, and the child goes on": "import os\nif os.fork():\n    os.wait()\nprint(rank)",
    "closes stdout": "import sys\nprint(rank)\nsys.stdout.close()",
    "reads stdin": "import sys\nassert sys.stdin.read() == ''\nprint(rank)",
    "writes binary": "import sys\nprint(rank)\nsys.stdout.buffer.write(bytes(range(256)))",
    "calls sys.exit": "import sys\nprint(rank)\nsys.exit(3)",
    "holds the interpreter's lock": (
        "import ctypes\nprint(rank)\nctypes.PyDLL(None).usleep(7_000_000)"
    ),
    "replaces the handler of interrupts": (
        "import signal\nprint(rank)\nsignal.signal(signal.SIGINT, signal.SIG_IGN)"
    ),
}


@pytest.mark.slow
@pytest.mark.agents
def test_whatever_a_cell_does_to_its_process_the_next_one_runs(session: RankSession) -> None:
    for what, code in MISDEEDS.items():
        events = list(session.run(code))
        done = ended(events)
        assert {*done} == {0, 1}, what
        for rank in (0, 1):
            assert str(rank) in texts(events, rank), what
        silent = [rank for one in events if isinstance(one, Unheard) for rank in one.ranks]
        assert sorted(silent) == ([0, 1] if "usleep" in code else []), what
        error = "SystemExit" if "exit" in code else ""
        assert {one.error for one in done.values()} == {error}, what
        after = list(session.run("y = torch.ones(1); dist.all_reduce(y); int(y)"))
        assert {one.end for one in ended(after).values()} == {"ok"}, what
    heard = session.run("import signal; signal.getsignal(signal.SIGINT) is signal.SIG_IGN")
    assert {one.data["text/plain"] for one in heard if isinstance(one, Shown)} == {"False"}


@pytest.mark.slow
@pytest.mark.agents
def test_a_session_ends_once_no_rank_has_run_a_cell_for_long(cluster: Cluster) -> None:
    nodes = tuple(Participant(node=node.name) for node in cluster.nodes())
    entry = ("-m", SESSION, "--idle-s", "4")
    job = cluster.launch(JobSpec(entry=entry, participants=nodes))
    session = job.session()
    session.wait()
    # Longer than that on one rank: the other, which has nothing to do, stays.
    done = ended(list(session.run("import time; time.sleep(9)", [0])))
    assert done[0].end == "ok"
    both = ended(list(session.run("x = torch.ones(1); dist.all_reduce(x)")))
    assert {one.end for one in both.values()} == {"ok"}
    job.wait()
    assert job.state == "succeeded"
    with pytest.raises(MntrainError):
        list(session.run("1"))


FIGURE = "import matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1))\nplt.plot([1, 3])\n"


@pytest.mark.slow
@pytest.mark.agents
@pytest.mark.parametrize("code", [f"{FIGURE}plt.show()", f"%matplotlib inline\n{FIGURE}None"])
def test_figures_are_shown(session: RankSession, code: str) -> None:
    events = list(session.run(code))
    assert {one.end for one in ended(events).values()} == {"ok"}, texts(events, 0)
    pictures = [one.rank for one in events if isinstance(one, Shown) and "image/png" in one.data]
    assert sorted(pictures) == [0, 1]

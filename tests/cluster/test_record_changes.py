"""Names, notes and deletions of a real job, by the verbs, on both of its nodes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from jupyter_mntrain.cli import main
from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.records.job import JobSpec
from tests.agent.live import LiveAgent
from tests.cluster.conftest import wait_for
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

SCRIPT = "import sys, time\nwhile len(sys.argv) > 1: time.sleep(1)\n"
Do = Callable[..., dict[str, object]]


@pytest.fixture
def do(agents: list[LiveAgent], capsys: pytest.CaptureFixture[str]) -> Do:
    def run(*words: str, exit_code: int = 0) -> dict[str, object]:
        where = [word for agent in agents for word in ("--agent", agent.where)]
        assert main(["--json", "--cluster", agents[0].cluster, *where, *words]) == exit_code
        said = capsys.readouterr()
        found: dict[str, object] = json.loads(said.out if exit_code == 0 else said.err)
        return found

    return run


def test_a_job_is_named_noted_and_deleted_on_all_of_its_nodes(
    cluster: Cluster, agents: list[LiveAgent], do: Do
) -> None:
    participants = cluster.participants(["node1:1", "node2:1"])
    spec = JobSpec(entry=("s.py",), files={"s.py": SCRIPT}, participants=participants, name="one")
    job = cluster.launch(spec)
    assert job.wait(120).state == "succeeded", job.logs()
    assert do("rename", job.id, "better")["name"] == "better"
    assert do("note", job.id, "lr 3e-4")["note"] == "lr 3e-4"
    wait_for(lambda: job.view().label.note)
    for agent in agents:
        label = agent.record(job.id).label
        assert (label.name, label.note) == ("better", "lr 3e-4")
        assert agent.record(job.id).spec.name == "one", "what was started stays as it was"
    assert [view.spec.name for view in cluster.jobs(search="3e-4")] == ["better"]
    for hostile in ("a\u202eb", "two\nlines", "\x1b[31m"):
        with pytest.raises(SpecError):
            job.note(hostile)
    assert do("rm", job.id)["is_done"] is False
    assert [agent.record(job.id).job_id for agent in agents] == [job.id, job.id]
    done = do("rm", job.id, "--yes")
    assert done["is_done"] is True
    wait_for(lambda: job.id not in {view.job_id for view in cluster.jobs(everything=True)})
    for agent in agents:
        assert not (agent.state / "jobs" / job.id).exists()
        audited = (agent.state / "audit.log").read_text()
        assert job.id in audited
        assert "label" in audited
        assert "delete" in audited


def test_a_live_job_is_refused(cluster: Cluster, do: Do) -> None:
    participants = cluster.participants(["node1:1"])
    spec = JobSpec(entry=("s.py", "x"), files={"s.py": SCRIPT}, participants=participants)
    job = cluster.launch(spec)
    refused = do("rm", job.id, "--yes", exit_code=RefusedError.exit_code)
    assert refused["kind"] == "still-running"
    job.kill()
    job.wait(PATIENCE_S)

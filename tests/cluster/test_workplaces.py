"""Workplaces on two real agents, whose users have other homes: every node that lacks it is named,
and ranks run in it, however the job starts.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.api import LeaseRequest
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import new_job_id
from jupyter_mntrain.verbs.panel.choices import Choices
from jupyter_mntrain.verbs.panel.last_choices import Memory
from jupyter_mntrain.verbs.panel.panel import Panel
from jupyter_mntrain.verbs.verb import Outcome
from tests.agent.forking.python import forking_python
from tests.agent.live import LiveAgent, free_port, start_request
from tests.standin.screen import make_context, run_words
from tests.waiting import until

pytestmark = pytest.mark.slow

JOB_S = 240.0
SCRIPT = "import os\nprint('TOLD', os.environ.get('CONDA_PREFIX'), os.getcwd(), flush=True)\n"


def environment(folder: Path) -> Path:
    """A conda environment as the launch sees it."""
    (folder / "conda-meta").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {forking_python()} "$@"\n')
    python.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [tmp_path_factory.mktemp(f"home{number}") for number in (1, 2)]


@pytest.fixture(scope="module")
def agents(
    tmp_path_factory: pytest.TempPathFactory, users: list[Path]
) -> Iterator[list[LiveAgent]]:
    network = f"127.{150 + os.getpid() % 100}.{secrets.randbelow(250)}"
    state, made = tmp_path_factory.mktemp("state"), []
    for number in (1, 2):
        name, address = f"node{number}", f"{network}.{number}"
        made.append(LiveAgent(name, address, free_port(address), state / name))
    try:
        for agent, home in zip(made, users, strict=True):
            agent.start(environment={"HOME": str(home)})
        yield made
    finally:
        for agent in made:
            agent.end()


def run(cluster: Cluster, here: Path, *words: str) -> Outcome:
    return run_words(words, make_context(cluster, directory=here))  # type: ignore[arg-type]


def lacking_in_panel(cluster: Cluster, here: Path) -> dict[str, list[str]]:
    """What the panel says that each node lacks, before anything is launched."""
    context = make_context(cluster, directory=here)  # type: ignore[arg-type]
    args = Namespace(cluster=None, agent=None)
    panel = Panel(context, args, target="train.py", memory=Memory(here / "panel.json"))
    panel.choices = Choices(python="conda:lm", workdir="~/lm")
    assert panel.look(panel.form())
    form = panel.form()
    return {row.name: [one.text for one in row.checks if one.level == "stops"] for row in form.rows}


def told(cluster: Cluster, outcome: Outcome) -> set[str]:
    job = cluster.job(outcome.data["job_id"])
    assert job.wait(timeout_s=JOB_S).state == "succeeded", job.logs(tail=50)
    lines = [line.text for line in job.logs(tail=100)]
    return {line.partition("TOLD ")[2] for line in lines if "TOLD " in line}


def test_an_environment_is_missed_on_every_node_and_used_by_every_start(
    cluster: Cluster, agents: list[LiveAgent], users: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ("launch", "train.py", "--python", "conda:lm", "--detach")
    with pytest.raises(RefusedError) as caught:
        run(cluster, tmp_path, *words, "--workdir", "~/lm")
    assert caught.value.kind is Kind.NO_FILE
    assert caught.value.node is None
    assert all(agent.name in caught.value.cause for agent in agents)
    assert not any(agent.info().leases for agent in agents)
    said = lacking_in_panel(cluster, tmp_path)
    assert {name: len(each) for name, each in said.items()} == {"node1": 2, "node2": 2}

    prefixes = [environment(home / "miniforge3" / "envs" / "lm") for home in users]
    (users[0] / "lm").mkdir()
    with pytest.raises(RefusedError) as caught:
        run(cluster, tmp_path, *words, "--workdir", "~/lm")
    assert caught.value.node == agents[1].name
    said = lacking_in_panel(cluster, tmp_path)
    assert said == {"node1": [], "node2": [f"{caught.value.cause}. Fix: {caught.value.fix}."]}

    (users[1] / "lm").mkdir()
    expected = {f"{prefix} {home / 'lm'}" for prefix, home in zip(prefixes, users, strict=True)}
    assert not any(lacking_in_panel(cluster, tmp_path).values())
    shown = run(cluster, tmp_path, *words[:-1], "--workdir", "~/lm", "--dry-run")
    assert all(str(prefix / "bin" / "python") in str(shown.data) for prefix in prefixes)
    first = run(cluster, tmp_path, *words, "--workdir", "~/lm")
    assert told(cluster, first) == expected
    run(cluster, tmp_path, "export", first.data["job_id"], "--output", "job.toml")
    assert 'python = "conda:lm"' in (tmp_path / "job.toml").read_text()
    again = run(cluster, tmp_path, "launch", "job.toml", "--queue", "--detach")
    assert told(cluster, again) == expected


def test_a_queued_job_waits_for_an_interpreter_that_is_gone_meanwhile(
    agents: list[LiveAgent], tmp_path: Path
) -> None:
    python = tmp_path / "env" / "bin" / "python"
    job_id = new_job_id()
    request = start_request(agents, SCRIPT, job_id, 0, 0, python=str(python))
    for agent in reversed(agents):
        assert agent.send("PUT", f"/v1/jobs/{job_id}", request).status_code == 200

    def waits_for() -> Kind | None:
        restart = agents[0].record(job_id).restart
        return restart.waits_for.kind if restart and restart.waits_for else None

    until(lambda: waits_for() is Kind.NO_PYTHON, "the reason")
    assert not any(agent.info().leases for agent in agents)
    environment(tmp_path / "env")
    until(lambda: agents[1].record(job_id).part.state == "succeeded", "the job to end")


def test_an_agent_whose_interpreter_lacks_torch_leases_nothing(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    address = "127.95.8.1"
    python = bare / "bin" / "python"
    agent = LiveAgent("bare", address, free_port(address), tmp_path / "state", python=str(python))
    try:
        agent.start()
        request = LeaseRequest(job_id=new_job_id(), attempt=1, ranks=1, interface="lo")
        answer = agent.send("POST", "/v1/leases", request)
        assert (answer.status_code, answer.json()["kind"]) == (409, Kind.NO_MODULE)
        assert str(python) in answer.json()["fix"]
        assert not agent.info().leases
    finally:
        agent.end()

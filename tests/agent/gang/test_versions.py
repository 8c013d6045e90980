"""Versions at the start of a queued job: a node may have been upgraded while it waited."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, new_job_id
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from tests.agent.live import LiveAgent, free_port, start_request
from tests.waiting import until

OTHER_TORCH = f"""#!/bin/sh
case "$*" in
*importlib.metadata*) {sys.executable} "$@" | sed 's/"torch": "[^"]*"/"torch": "2.0.0"/' ;;
*) exec {sys.executable} "$@" ;;
esac
"""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    """Two agents; the second says that its ranks have another torch."""
    folder = tmp_path_factory.mktemp("versions")
    other = folder / "python"
    other.write_text(OTHER_TORCH)
    other.chmod(0o755)
    made = []
    for number, python in enumerate((sys.executable, str(other)), 1):
        name, address = f"node{number}", f"127.95.7.{number}"
        made.append(LiveAgent(name, address, free_port(address), folder / name, python=python))
    try:
        for agent in made:
            agent.start()
        yield made
    finally:
        for agent in made:
            agent.end()


def leave(agents: list[LiveAgent], *, mixed_versions: bool) -> JobId:
    """Queue a job as a driver does, at a time when versions agreed."""
    job_id = new_job_id()
    request = start_request(agents, "pass", job_id, 0, 0, mixed_versions=mixed_versions)
    for agent in reversed(agents):
        answer = agent.send("PUT", f"/v1/jobs/{job_id}", request)
        assert answer.status_code == 200, answer.text
    return job_id


@pytest.mark.slow
def test_a_queued_job_does_not_start_on_nodes_that_differ_meanwhile(
    agents: list[LiveAgent],
) -> None:
    versions = [agent.info().inventory.versions.torch for agent in agents]
    assert versions[0] != versions[1] == "2.0.0"
    held = leave(agents, mixed_versions=False)

    def waits_for() -> Kind | None:
        restart = agents[0].record(held).restart
        return restart.waits_for.kind if restart and restart.waits_for else None

    until(lambda: waits_for() is Kind.MIXED_VERSIONS, "the reason", 30)
    started = leave(agents, mixed_versions=True)
    until(
        lambda: roll_up([agent.record(started) for agent in agents]).state == "succeeded",
        "the acknowledged job to end",
        90,
    )
    assert agents[0].record(held).attempt.number == 0
    assert not any(agent.info().leases for agent in agents)

"""Versions at the start of a queued job: a node may have been upgraded while it waited."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, new_job_id
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.records.job import TRAINER
from jupyter_mntrain.recipe.stored import RECIPE_FILE
from tests.agent.live import LiveAgent, free_port, start_request
from tests.waiting import until

CARDS = Path(__file__).parents[1] / "programs" / "cards"

OTHER_TORCH = f"""#!/bin/sh
case "$*" in
*importlib.metadata*) {sys.executable} "$@" | sed 's/"torch": "[^"]*"/"torch": "2.0.0"/' ;;
*) exec {sys.executable} "$@" ;;
esac
"""

NEWER_CUDA = f"""#!/bin/sh
case "$*" in
*importlib.metadata*) {sys.executable} "$@" |
    sed 's/"built": {{"cuda": null/"built": {{"cuda": "13.0"/' ;;
*) exec {sys.executable} "$@" ;;
esac
"""

OF_THE_CARDS = NEWER_CUDA.replace("13.0", "12.8").replace("/' ;;", '/; s/+cpu"/"/\' ;;')


@contextmanager
def agent_with(folder: Path, python: str, address: str, **environment: str) -> Iterator[LiveAgent]:
    """An agent with fake cards, whose Python is a script."""
    program = folder / "python"
    program.write_text(python)
    program.chmod(0o755)
    agent = LiveAgent("node1", address, free_port(address), folder / "node1", python=str(program))
    try:
        agent.start(environment={"PYTHONPATH": str(CARDS), **environment})
        yield agent
    finally:
        agent.end()


@pytest.fixture
def newer_torch(tmp_path: Path) -> Iterator[LiveAgent]:
    """An agent whose cards have a driver for CUDA 12, and whose torch is built for CUDA 13."""
    with agent_with(tmp_path, NEWER_CUDA, "127.95.8.1") as agent:
        yield agent


@pytest.fixture
def older_card(tmp_path: Path) -> Iterator[LiveAgent]:
    """An agent whose cards have no bfloat16, and whose torch is built for them."""
    with agent_with(tmp_path, OF_THE_CARDS, "127.95.8.2", CARD_CAPABILITY="7.5") as agent:
        yield agent


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

    until(lambda: waits_for() is Kind.MIXED_VERSIONS, "the reason")
    started = leave(agents, mixed_versions=True)
    until(
        lambda: roll_up([agent.record(started) for agent in agents]).state == "succeeded",
        "the acknowledged job to end",
    )
    assert agents[0].record(held).attempt.number == 0
    assert not any(agent.info().leases for agent in agents)


def queue_on_card(agent: LiveAgent, **policy: Any) -> JobId:
    """Queue a job on an agent's first card, as a driver does."""
    job_id = new_job_id()
    asked = start_request([agent], "pass", job_id, 0, 0, **policy)
    (place,), (wanted,) = asked.attempt.placements, asked.spec.participants
    place, wanted = (msgspec.structs.replace(one, gpus=(0,)) for one in (place, wanted))
    request = msgspec.structs.replace(
        asked,
        attempt=msgspec.structs.replace(asked.attempt, placements=(place,)),
        spec=msgspec.structs.replace(
            asked.spec, participants=(wanted,), files={**asked.spec.files, RECIPE_FILE: ""}
        ),
    )
    assert agent.send("PUT", f"/v1/jobs/{job_id}", request).status_code == 200
    return job_id


def reason(agent: LiveAgent, job_id: JobId) -> Problem:
    """What a queued job waits for, once that is known."""

    def found() -> Problem | None:
        restart = agent.record(job_id).restart
        return restart.waits_for if restart else None

    until(lambda: found() is not None, "the reason")
    problem = found()
    assert problem is not None
    return problem


@pytest.mark.slow
def test_a_queued_job_does_not_start_on_a_driver_that_is_too_old_meanwhile(
    newer_torch: LiveAgent,
) -> None:
    versions = newer_torch.info().inventory.versions
    assert (versions.cuda, versions.driver_cuda) == ("13.0", "12.8")
    job_id = queue_on_card(newer_torch)
    assert reason(newer_torch, job_id).kind is Kind.OLD_DRIVER


@pytest.mark.slow
def test_a_queued_job_does_not_start_on_a_card_that_lacks_its_dtype_meanwhile(
    older_card: LiveAgent,
) -> None:
    (first, _) = older_card.info().inventory.gpus
    assert first.compute_capability == (7, 5)
    entry = ("-m", TRAINER, RECIPE_FILE)
    job_id = queue_on_card(older_card, entry=entry, chosen={"model.dtype": "bfloat16"})
    problem = reason(older_card, job_id)
    assert problem.node == "node1"
    assert problem.cause.startswith('model.dtype = "bfloat16": GPU 0, RTX, ')

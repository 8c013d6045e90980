"""A cluster of two real agents, and jobs whose ranks report what they find."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.model.records.job import JobSpec
from tests.agent.forking.python import forking_python
from tests.agent.live import LiveAgent, two_agents
from tests.waiting import until

JOB_S = 240.0
"""For a small job from launch to end: three processes that import torch and a library again."""

MARK = "found "
"""Printed together with what follows: torchrun labels each piece of a line that it reads, and where
Python does not buffer, ``print`` writes one for each argument."""

Launch = Callable[..., Job]


@pytest.fixture(scope="module")
def python() -> str:
    """``test_environment.py`` has the real torchrun, whose variables it reads."""
    return forking_python()


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory, python: str) -> Iterator[list[LiveAgent]]:
    network = f"127.{100 + os.getpid() % 50}.{secrets.randbelow(250)}"
    with two_agents(network, tmp_path_factory.mktemp("state"), "test", python=python) as made:
        yield made


@contextmanager
def launching(agents: Sequence[LiveAgent]) -> Iterator[Launch]:
    with Cluster(agents[0].cluster, addresses=[agent.where for agent in agents]) as cluster:
        until(lambda: [node.liveness for node in cluster.nodes()] == ["up", "up"], "the nodes")

        def start(script: str, members: Sequence[str]) -> Job:
            spec = JobSpec(
                entry=("script.py",),
                files={"script.py": script},
                participants=cluster.participants(list(members)),
                environment={"OMP_NUM_THREADS": "1"},
            )
            return cluster.launch(spec)

        yield start


@pytest.fixture
def launch(agents: list[LiveAgent]) -> Iterator[Launch]:
    with launching(agents) as start:
        yield start


def said(job: Job) -> list[dict[str, Any]]:
    """What each rank printed behind :data:`MARK` until now, in the order of ranks."""
    lines = {line.rank: line.text for line in job.logs() if line.text.startswith(MARK)}
    return [json.loads(lines[rank].removeprefix(MARK)) for rank in sorted(lines)]

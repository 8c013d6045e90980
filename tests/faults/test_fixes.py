"""Fixes: every fault that can be produced here is, its printed fix is carried out, and the job
succeeds. The others are listed, with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.model.failure.fixes import FIXES
from jupyter_mntrain.model.failure.kinds import SYMPTOMS, Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import TERMINAL
from tests.agent.live import LiveAgent, free_port, launch
from tests.faults.fixes.doubts import DOUBTS, STALLS
from tests.faults.fixes.ends import ENDS
from tests.faults.fixes.ground import APART, Ground, Trial
from tests.faults.fixes.ports import PORTS
from tests.rows import same_rows
from tests.waiting import until
from tests.wording import says

JOB_S = 180.0
AT_ONCE = 4
"""Jobs: most of them wait."""

TRIALS = {trial.kind: trial for trial in (*ENDS, *PORTS, *DOUBTS, *STALLS)}

UNTRIED: dict[Kind, str] = {
    **dict.fromkeys(SYMPTOMS, "a symptom is never the verdict"),
    **dict.fromkeys(
        (
            Kind.GPU_OUT_OF_MEMORY,
            Kind.GPU_ERROR,
            Kind.GPU_ALLOCATOR,
            Kind.GPU_LOST,
            Kind.GPU_MEMORY_ERROR,
            Kind.NO_GPU_KERNEL,
            Kind.OLD_DRIVER,
            Kind.NCCL,
        ),
        "needs a GPU",
    ),
    Kind.TOO_MANY_PROCESSES: "root, as which tests run, has no such limit",
    Kind.CRASHED_AT_END: "libraries crash so only now and then",
    Kind.DISK_ERROR: "needs a disk that is broken",
    Kind.IN_KERNEL: "needs a disk or a driver that hangs",
    Kind.MACHINE_RESTARTED: "needs a restart of the machine; its fix is that of supervisor-lost",
    **dict.fromkeys(
        (Kind.SLOW_RANK, Kind.SLOW_DISK, Kind.SLOW_LOADER, Kind.SLOW_JOB),
        "its fix only says where to look for what takes the time",
    ),
    Kind.WAITED_TOO_LONG: "its fix only asks for more time, or for what it waited for",
    **dict.fromkeys(
        (Kind.TIME_LIMIT, Kind.PREEMPTED, Kind.NODES_TAKEN), "needs nodes of a scheduler"
    ),
    Kind.NOISY_TRANSFERS: "needs a model with outliers that training makes; see test_number_watch",
    Kind.NO_PROGRESS: "its fix only asks for more evidence",
    **dict.fromkeys(
        (Kind.NO_CREDENTIALS, Kind.UNTRUSTED_SERVER), "needs a service on the internet"
    ),
    Kind.PACKAGE_CONFLICT: "needs packages that do not fit together, which tests do not install",
    **dict.fromkeys(
        (
            Kind.ONE_WAY_LINK,
            Kind.MTU_TOO_LARGE,
            Kind.ADDRESS_CHANGED,
            Kind.CONNECTION_BROKE,
            Kind.NO_ROUTE,
            Kind.NODE_LOST,
            Kind.NO_RECORD,
        ),
        "needs several machines",
    ),
}


IN_THE_LAB = frozenset({Kind.LINK_DOWN, Kind.LINK_BLOCKED, Kind.LINK_SLOW, Kind.DUPLICATE_ADDRESS})
"""Tried by ``test_lasting.py`` and ``test_slowdowns.py``, on a lab."""

BEFORE: dict[Kind, Kind] = {
    **{
        kind: kind
        for kind in (
            Kind.NO_CUDA,
            Kind.NO_MODULE,
            Kind.NO_FILE,
            Kind.NO_PERMISSION,
            Kind.DISK_FULL,
            Kind.READ_ONLY,
            Kind.FILE_TOO_LARGE,
            Kind.TOO_MANY_FILES,
            Kind.SHARED_MEMORY,
            Kind.NO_INTERFACE,
        )
    },
    Kind.NO_DOWNLOAD: Kind.NO_FILE,
}
"""Faults that are there before the launch, and what the doctor calls them. Of those, it does not
know ``PORT_TAKEN``: the script takes its port from an argument in a way of its own.
"""

OF_THE_AGENT = frozenset({Kind.NOT_STARTED, Kind.NO_STATE})
"""Faults of the agent, which the others must not have: tried one after another."""


def test_every_kind_is_tried_or_listed_with_the_reason() -> None:
    tried = {*TRIALS, *OF_THE_AGENT, *IN_THE_LAB}
    same_rows(
        FIXES,
        tried | set(UNTRIED),
        "nobody tries the fix of '{}': add a trial to tests/faults/fixes/, or the reason to UNTRIED"
        " in tests/faults/test_fixes.py",
        "tests/faults tries the fix of '{}', and FIXES of model/failure/fixes.py has none",
    )
    assert not tried & set(UNTRIED), "a fix that is tried is in UNTRIED, too: take it out"
    assert BEFORE.keys() <= TRIALS.keys()
    print(f"\n{len(tried)} of {len(FIXES)} fixes are tried; before the launch, {len(BEFORE)} known")


class Trials:
    """All trials, a few at once, from the first time that one is asked for: a test has a home, with
    a driver's certificate, and a fixture of the module has not."""

    def __init__(self, directory: Path) -> None:
        self._stack = ExitStack()
        self._directory = directory
        self._futures: dict[Kind, Future[None]] = {}

    def result(self, kind: Kind) -> None:
        if not self._futures:
            self._start()
        self._futures[kind].result()

    def _start(self) -> None:
        if subprocess.run([*APART, "true"], check=False).returncode:
            pytest.skip("this machine does not permit user namespaces")
        ground = Ground(self._directory)
        self._stack.callback(ground.end)
        ground.start()
        cluster = Cluster(ground.agent.cluster, addresses=[ground.agent.where])
        self._stack.enter_context(cluster)
        until(lambda: [node.liveness for node in cluster.nodes()] == ["up"], "the node")
        pool = self._stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        for kind, trial in TRIALS.items():
            self._futures[kind] = pool.submit(carry_out, trial, ground, cluster)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    made = Trials(tmp_path_factory.mktemp("ground"))
    try:
        yield made
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRIALS)
def test_the_fix_makes_the_fault_go_away(trials: Trials, kind: Kind) -> None:
    trials.result(kind)


@pytest.mark.slow
def test_an_agent_without_a_working_python_is_mended(tmp_path: Path) -> None:
    """``NOT_STARTED`` and ``NO_STATE``: what is said of the node itself, and by its job."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    address = f"127.{100 + os.getpid() % 50}.78.1"
    agent = LiveAgent("node1", address, free_port(address), tmp_path / "state", python=str(python))
    script = "print('well')"
    try:
        agent.start()
        python.unlink()
        problem = agent.ended(launch([agent], script)).part.problem
        assert problem is not None
        assert problem.kind is Kind.NOT_STARTED
        assert "mntrain agent run --python PATH" in problem.fix
        agent.kill()
        agent.start("--python", sys.executable)
        assert agent.ended(launch([agent], script)).part.state == "succeeded"

        jobs = agent.state / "jobs"
        jobs.rename(tmp_path / "away")
        until(lambda: agent.info().problem, "the lost directory to be noticed")
        problem = agent.info().problem
        assert problem is not None
        assert problem.kind is Kind.NO_STATE
        assert "restore it" in problem.fix
        (tmp_path / "away").rename(jobs)
        until(lambda: agent.info().problem is None, "it to be found again")
        assert agent.ended(launch([agent], script)).part.state == "succeeded"
    finally:
        agent.end()


def carry_out(trial: Trial, ground: Ground, cluster: Cluster) -> None:
    run = trial.prepare(ground)
    if trial.kind in BEFORE:
        assert BEFORE[trial.kind] in ground.named_before(cluster, run)
    job = ground.launch(cluster, run)
    problem = told(job, trial.kind)
    assert problem is not None, (trial.kind, job.view().verdict, job.view().warnings, job.logs())
    assert says(trial.words, problem.fix)
    mended = trial.mend(ground, run, problem)
    if mended is not None:
        if job.view().state not in TERMINAL:
            job.stop()
        job.wait(JOB_S)  # what it holds, like a port, is free
        job = ground.launch(cluster, mended)
    view = job.wait(JOB_S)
    assert view.state == trial.ends, (trial.kind, view.verdict, job.logs())
    assert trial.kind not in {one.kind for one in view.warnings}


def told(job: Job, kind: Kind) -> Problem | None:
    """What is said of a job, once it has ended or stalls."""
    until_s = time.monotonic() + JOB_S
    while time.monotonic() < until_s:
        view = job.view()
        verdict = view.verdict.problem if view.verdict and not view.verdict.is_waiting else None
        found = [one for one in (verdict, view.stall, *view.warnings) if one and one.kind is kind]
        is_over = view.state in ("succeeded", "failed", "canceled")
        if found and (is_over or view.stall):
            return found[0]
        if is_over and view.restart is None:
            return None
        time.sleep(0.1)
    return None

"""The end of an allocation: all processes are told at once, and the record says why it ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
import pytest

from jupyter_mntrain.agent.attempt.processes import marked
from jupyter_mntrain.agent.jobs.record_file import read_record
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import PartStatus
from jupyter_mntrain.model.records.metrics import PartChange, journal_decoder
from jupyter_mntrain.model.sources.slots import AllocationFile, read_slots, write_allocation
from tests.agent.live import LiveAgent, launch
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

STEPS = """
import os, signal, sys, time
from jupyter_mntrain import Recorder
print("slurm", sorted(name for name in os.environ if name.startswith(("SLURM", "PMI", "PET"))))
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with Recorder() as recorder:
    for _ in range(100_000):
        time.sleep(0.05)
        recorder.step(tokens=10, loss=1.0)
"""
DEAF = STEPS.replace('"deaf" in sys.argv', "True")
CARDS = Path(__file__).parents[1] / "programs" / "cards"
PREEMPTED = Problem(kind=Kind.PREEMPTED, cause="a job of higher priority needs its node")
OF_SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "PMIX_RANK": "3",
    "PET_NNODES": "4",
}


def end_step(agents: list[LiveAgent]) -> None:
    """Tell all processes of a step at once to end, as a scheduler does."""
    pids = set()
    for agent in agents:
        assert agent.process is not None
        pids.add(agent.process.pid)
        for attempt in agent.state.glob("jobs/*/attempt-*"):
            pids.update(marked(attempt))
        pids.update(one.pid for one in psutil.Process(agent.process.pid).children(recursive=True))
    for pid in sorted(pids):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def running(agents: list[LiveAgent], script: str, *gpus: int) -> JobId:
    job_id = launch(agents, script, gpus=gpus)
    for agent in agents:
        until(lambda one=agent: one.record(job_id).part.ranks[0].step, "a first step")
    return job_id


def left(agent: LiveAgent, job_id: JobId) -> PartStatus:
    """What its directory says when no agent runs, once it agrees with its journal."""
    directory = agent.state / "jobs" / job_id
    part = read_record(directory).part
    lines = [
        journal_decoder.decode(line).body
        for line in (directory / "journal.ndjson").read_bytes().splitlines()
    ]
    (*_, last) = (line.part for line in lines if isinstance(line, PartChange))
    assert (last.state, last.problem) == (part.state, part.problem)
    return part


@pytest.mark.parametrize("script", [STEPS, DEAF], ids=["they end", "they are deaf"])
def test_the_record_says_that_the_allocation_ended(
    new_agent: Callable[..., LiveAgent], tmp_path: Path, script: str
) -> None:
    brief = {**OF_SLURM, "MNTRAIN_ALLOCATION_RANK_GRACE_S": "1"}
    agents = [new_agent(slot=f"slurm-{number}", environment=brief) for number in range(2)]
    job_id = running(agents, script)
    log = agents[0].state / "jobs" / job_id / "attempt-1" / "log"
    until(lambda: "slurm ['SLURM_JOB_ID']" in log.read_text(), "ranks hear of no other launcher")
    write_allocation(tmp_path, AllocationFile(ending=PREEMPTED))
    end_step(agents)
    for agent in agents:
        assert agent.process is not None
        assert agent.process.wait(PATIENCE_S) == 0, agent.log()
        part = left(agent, job_id)
        assert part.state == "failed"
        assert part.problem is not None
        assert (part.problem.kind, part.problem.cause) == (Kind.PREEMPTED, PREEMPTED.cause)
        assert part.ended_s is not None
        assert not marked(agent.state / "jobs" / job_id / "attempt-1")
        assert read_record(agent.state / "jobs" / job_id).is_over
    assert {one.state for one in read_slots(tmp_path)} == {"gone"}
    assert {one.problem for one in read_slots(tmp_path)} == {PREEMPTED}


def test_what_a_person_ended_has_not_failed(
    new_agent: Callable[..., LiveAgent], tmp_path: Path
) -> None:
    agent = new_agent(slot="slurm-0")
    job_id = running([agent], STEPS)
    canceled = msgspec.structs.replace(PREEMPTED, kind=Kind.NODES_TAKEN)
    write_allocation(tmp_path, AllocationFile(ending=canceled, is_canceled=True))
    end_step([agent])
    assert agent.process is not None
    agent.process.wait(PATIENCE_S)
    part = left(agent, job_id)
    assert (part.state, part.problem, part.stop_reason) == ("canceled", None, canceled.cause)


SAVES = """
import os, time
from jupyter_mntrain import ControlReader, Recorder
wishes = ControlReader()
print("card", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
with Recorder() as recorder:
    recorder.start(saves=True)
    for step in range(100_000):
        if wishes.wants_stop():
            print("saved at", step)
            break
        time.sleep(0.05)
        recorder.step(tokens=10, loss=1.0)
"""


@pytest.mark.parametrize("can_save", [True, False])
def test_an_agent_that_is_told_early_has_jobs_save_first_if_they_can(
    new_agent: Callable[..., LiveAgent], tmp_path: Path, can_save: bool
) -> None:
    wish = tmp_path / "save"
    wish.touch()  # of before its machine was taken
    given = {"MNTRAIN_NOTICE_S": "600", "PYTHONPATH": str(CARDS)}
    first = given | {"CUDA_VISIBLE_DEVICES": "0"}
    agent = new_agent(slot="slurm-0", environment=first)
    job_id = running([agent], SAVES if can_save else STEPS, 0)
    assert agent.process is not None
    agent.process.terminate()  # alone, as process 1 of a container
    assert agent.process.wait(PATIENCE_S) == 0, agent.log()
    part = left(agent, job_id)
    log = (agent.state / "jobs" / job_id / "attempt-1" / "log").read_text()
    assert ("saved at" in log) == can_save
    assert (part.state == "failed") != can_save
    assert wish.exists() == can_save
    if can_save:  # it goes on, with whatever card its node was given this time
        agent.start(environment=given | {"CUDA_VISIBLE_DEVICES": "1"})
        log = agent.state / "jobs" / job_id / "attempt-2" / "log"
        until(lambda: log.exists() and "card GPU-1" in log.read_text(), "another attempt")
        assert agent.record(job_id).attempt.placements[0].gpus == (1,)

"""Agents in a job of a person's own: only their step ends, never the job or anything else of it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.sources.slots import AllocationFile, read_allocation
from jupyter_mntrain.model.sources.source import Allocation, NodesRequest, SlotCommand
from jupyter_mntrain.sources.slurm.slurm_source import SlurmSource
from jupyter_mntrain.sources.slurm.status_relay import StatusRelay
from tests.standin.own_job import Slurm
from tests.waiting import until
from tests.wording import says

REQUEST = NodesRequest("slurm", 2, name="train", options={"jobid": ("7",)})
COMMAND = SlotCommand(("agent",), secrets={"token": "secret"})


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(tmp_path / "tools", monkeypatch)


@pytest.fixture
def source(slurm: Slurm, tmp_path: Path) -> SlurmSource:
    return SlurmSource(tmp_path / "state")


class Begun:
    """Agents that were asked for in job 7, whose step, if SLURM tells it, is 7.3."""

    def __init__(self, slurm: Slurm, source: SlurmSource, request: NodesRequest = REQUEST) -> None:
        self._slurm, self._source = slurm, source
        self.id = asyncio.run(source.submit(request, COMMAND)).id
        self.folder = asyncio.run(source.directory(self.id, REQUEST))

    def runs(self) -> None:
        until((self._slurm.folder / "started").exists, "srun")
        others = ("7.0|node2|bash", f"7.batch|node2|{self.folder.name}", f"7.4|node2|x{self.id}")
        lines = (*others, f"7.3|node[2-3]|{self.folder.name}", f"17.3|node9|{self.folder.name}")
        self._slurm.tells("steps", "\n".join(lines))

    def ends(self, code: int) -> None:
        self._slurm.tells("end", str(code))
        until((self.folder / "code").exists, "the end of its step")
        self._slurm.tells("steps", "")

    def look(self) -> Allocation:
        return asyncio.run(self._source.look(self.id, REQUEST))

    def give_back(self) -> None:
        asyncio.run(self._source.give_back(self.id, REQUEST))


@pytest.fixture
def begun(slurm: Slurm, source: SlurmSource) -> Begun:
    return Begun(slurm, source)


def test_giving_back_ends_its_own_step_and_nothing_else(slurm: Slurm, begun: Begun) -> None:
    begun.runs()
    (begun.folder / "slurm-0").mkdir()
    begun.give_back()
    assert slurm.canceled == ["--signal=TERM 7.3"]
    assert not (begun.folder / "secrets").exists()
    assert begun.look().outcome == "canceled"
    begun.ends(0)
    assert (begun.look().state, begun.look().outcome) == ("ended", "canceled")
    begun.give_back()
    assert len(slurm.canceled) == 1
    assert (begun.folder / "slurm-0").exists()


def test_agents_that_never_began_leave_no_folder(slurm: Slurm, begun: Begun) -> None:
    until((slurm.folder / "started").exists, "srun")
    begun.give_back()
    assert not begun.folder.exists()
    assert slurm.canceled == []
    assert begun.look().state == "ended"
    begun.give_back()
    slurm.tells("end", "0")


@pytest.mark.parametrize(
    "name", ["", "..", "../project", "other-0a1b2c3d", "train-0a1b2c3d", "../project/train-1"]
)
def test_a_folder_that_no_submission_made_stays(
    slurm: Slurm, source: SlurmSource, tmp_path: Path, name: str
) -> None:
    kept = [
        tmp_path / "project" / "job.sh",
        tmp_path / "project" / "train-1" / "job.sh",
        tmp_path / "state" / "other-0a1b2c3d" / "job.sh",
        tmp_path / "state" / "train-0a1b2c3d" / "notes.md",
    ]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    slurm.tells("steps", f"7.3|node2|{name}")
    for act in (source.give_back, source.save):
        with pytest.raises(RefusedError):
            asyncio.run(act(f"7/{name}", REQUEST))
    assert asyncio.run(source.look(f"7/{name}", REQUEST)).state == "unknown"
    assert all(path.exists() for path in kept)
    assert slurm.canceled == []


def test_how_it_is_from_its_begin_to_its_end(slurm: Slurm, begun: Begun) -> None:
    assert begun.look().state == "pending"
    begun.runs()
    now = begun.look()
    assert (now.id, now.state, now.grants, now.ends_s) == (begun.id, "running", 1, 9000.0)
    assert [(slot.state, slot.host) for slot in now.slots] == [("up", "node2"), ("up", "node3")]
    started = (slurm.folder / "started").read_text()
    assert f"--jobid=7 --overlap --job-name={begun.folder.name} --nodes=2" in started
    begun.ends(0)
    assert (begun.look().state, begun.look().outcome) == ("ended", "done")


def test_the_end_of_the_job_is_the_cause_of_that_of_its_agents(slurm: Slurm, begun: Begun) -> None:
    begun.runs()
    begun.ends(1)
    failed = begun.look()
    assert failed.problem is not None
    assert failed.problem.kind is Kind.NOT_STARTED
    slurm.is_job("TIMEOUT")
    ended = begun.look()
    assert ended.problem is not None
    assert (ended.state, ended.problem.kind) == ("ended", Kind.TIME_LIMIT)


def test_another_job_that_got_the_number_is_not_taken_for_it(slurm: Slurm, begun: Begun) -> None:
    slurm.is_job("RUNNING", submitted=5000)
    assert begun.look().state == "unknown"
    slurm.tells("end", "0")


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        ({"nodes": 3}, "--nodes 2"),
        ({"options": {"jobid": ("7",), "partition": ("gpu",)}}, "--jobid"),
        ({"options": {"jobid": ("here",)}}, "salloc"),
        ({"options": {"jobid": ("7.1",)}}, "squeue"),
        ({"options": {"jobid": ("7; rm",)}}, "squeue"),
        ({"time_s": 60.0}, "--jobid"),
    ],
)
def test_what_the_job_does_not_have_is_refused(
    source: SlurmSource,
    tmp_path: Path,
    change: dict[str, object],
    fix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    facts = {"nodes": 2, "name": "train", "options": {"jobid": ("7",)}} | change
    with pytest.raises((RefusedError, SpecError)) as raised:
        asyncio.run(source.check(NodesRequest("slurm", **facts)))  # type: ignore[arg-type]
    assert says(fix, raised.value.fix)
    assert not (tmp_path / "state").exists()


def test_a_job_that_is_not_ones_own_or_holds_no_nodes_is_refused(
    slurm: Slurm, source: SlurmSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    here = NodesRequest("slurm", 2, options={"jobid": ("here",)})
    asyncio.run(source.check(here))
    assert asyncio.run(source.usual_nodes(here)) == 2
    slurm.is_job("PENDING")
    with pytest.raises(RefusedError):
        asyncio.run(source.check(here))
    slurm.is_job("RUNNING")
    slurm.tells("owner", "4294967294")
    with pytest.raises(RefusedError) as raised:
        asyncio.run(source.submit(here, COMMAND))
    assert says("of your own", raised.value.fix)


def test_a_controller_that_does_not_answer_ends_nothing(
    slurm: Slurm, source: SlurmSource, begun: Begun
) -> None:
    begun.runs()
    (begun.folder / "hosts" / "slurm-0").write_text("node2")
    relay = StatusRelay(source, begun.id, REQUEST, begun.folder)
    relay.look()
    before = read_allocation(begun.folder)
    slurm.tells("deaf", "")
    now = begun.look()
    assert now.state == "unknown"
    assert now.problem is not None
    assert now.problem.kind is Kind.NO_SCHEDULER
    relay.look()
    (slurm.folder / "deaf").unlink()
    slurm.tells("steps", "")
    assert begun.look().state == "ending"
    relay.look()
    told = read_allocation(begun.folder)
    assert (told.ending, told.is_canceled, told.comes_back) == (None, False, False)
    assert before != AllocationFile()
    slurm.tells("end", "0")


def test_agents_in_a_job_that_is_queued_again_do_not_come_back(
    slurm: Slurm, source: SlurmSource, begun: Begun
) -> None:
    begun.runs()
    relay = StatusRelay(source, begun.id, REQUEST, begun.folder)
    relay.look()
    slurm.is_job("COMPLETING")
    slurm.tells("history", "Restarts=1")
    relay.look()
    assert begun.look().grants == 1
    told = read_allocation(begun.folder)
    assert (told.is_canceled, told.comes_back) == (True, False)
    slurm.is_job("SUSPENDED")
    assert begun.look().state == "pending"
    slurm.is_job("PENDING", submitted=200)
    now = begun.look()
    assert (now.state, now.outcome) == ("ended", "failed")
    assert now.problem is not None
    assert now.problem.kind is Kind.NODES_TAKEN
    slurm.tells("end", "0")


@pytest.mark.parametrize(
    ("said", "called", "fix"),
    [("here", "100_3", "salloc"), ("7", "7+0", "salloc"), ("007", "7", "--jobid 7")],
)
def test_what_slurm_calls_otherwise_is_refused(
    slurm: Slurm,
    source: SlurmSource,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    called: str,
    fix: str,
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "103")
    slurm.is_job("RUNNING", job=called)
    with pytest.raises(RefusedError) as raised:
        asyncio.run(source.submit(NodesRequest("slurm", 2, options={"jobid": (said,)}), COMMAND))
    assert says(called, str(raised.value))
    assert says(fix, raised.value.fix)


def test_a_line_before_that_fails_ends_the_allocation(
    slurm: Slurm, source: SlurmSource, tmp_path: Path
) -> None:
    (tmp_path / "secrets").mkdir()
    options: dict[str, tuple[str, ...]] = {
        "jobid": ("7",),
        "before": (f"cd {tmp_path}; echo no such module; exit 3",),
    }
    begun = Begun(slurm, source, NodesRequest("slurm", 2, name="train", options=options))
    until((begun.folder / "code").exists, "the end of its script")
    until(lambda: (begun.folder / "code").read_text() == "3\n", "how it ended")
    assert not (begun.folder / "secrets").exists()
    assert (tmp_path / "secrets").exists()
    now = begun.look()
    assert now.outcome == "failed"
    assert now.problem is not None
    assert says("no such module", now.problem.cause)


def test_a_script_that_was_killed_is_not_waited_for(slurm: Slurm, begun: Begun) -> None:
    until((slurm.folder / "script").exists, "srun")
    until((slurm.folder / "started").exists, "srun")
    assert begun.look().state == "pending"
    os.killpg(int((slurm.folder / "script").read_text()), signal.SIGKILL)
    (begun.folder / "slurm.log").write_text("out of luck")
    os.utime(begun.folder / "alive", (0, 0))
    now = begun.look()
    assert (now.state, now.outcome) == ("ended", "failed")
    assert now.problem is not None
    assert says("out of luck", now.problem.cause)


def test_its_script_tells_agents_why_when_everything_is_told_to_end(
    slurm: Slurm, begun: Begun
) -> None:
    begun.runs()
    until((begun.folder / "status-relay").exists, "what tells why", 60.0)
    until(lambda: read_allocation(begun.folder).ends_s is not None, "its first look", 60.0)
    os.killpg(int((slurm.folder / "script").read_text()), signal.SIGTERM)
    until((slurm.folder / "told").exists, "srun is told to end")
    slurm.is_job("CANCELLED")
    (begun.folder / "ask").touch()
    until(lambda: read_allocation(begun.folder).is_canceled, "they are told why", 60.0)
    begun.ends(0)
    until(lambda: not (begun.folder / "status-relay").exists(), "what tells why ends")
    assert not (begun.folder / "secrets").exists()


def test_who_shares_nodes_with_another_of_his_steps_is_told_so(
    slurm: Slurm, source: SlurmSource, begun: Begun
) -> None:
    begun.runs()
    waiting = asyncio.run(source.submit(REQUEST, COMMAND)).waiting
    assert waiting is not None
    assert says("share its nodes with mntrain's step", waiting.reason.cause)
    assert f"7.3 ({begun.folder.name})" in waiting.reason.cause
    assert "7.0" not in waiting.reason.cause
    slurm.tells("end", "0")

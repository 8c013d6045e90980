"""Agents in a job of a person's own: only their step ends, never the job or anything else of it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.sources.allocation import Allocation
from jupyter_mntrain.model.sources.request import NodesRequest, SlotCommand
from jupyter_mntrain.sources.slurm.slurm_source import SlurmSource
from tests.waiting import until
from tests.wording import says

REQUEST = NodesRequest("slurm", 2, name="train", options={"jobid": ("7",)})
COMMAND = SlotCommand(("agent",), secrets={"token": "secret"})

SCRIPTS = {
    "squeue": """\
case "$*" in
    *" -s "*) cat steps 2> /dev/null ;;
    *%U) cat owner ;;
    *) echo "$(cat job)" ;;
esac
""",
    "scontrol": 'case "$*" in *hostnames*) printf "node2\\nnode3\\n" ;; *) echo Restarts=0 ;; esac',
    "sinfo": 'printf "node2|mixed\\nnode3|mixed\\n"',
    "scancel": 'echo "$*" >> canceled; rm -f steps',
    "srun": """\
[ "$1" = --help ] && { echo "    --overlap   Allow other steps"; exit; }
echo "$*" > started
for try in $(seq 200); do [ -e end ] && exit "$(cat end)"; sleep 0.05; done
""",
}


class Slurm:
    """Commands of SLURM that know one job, 7, of two nodes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self.folder = folder
        for name, text in SCRIPTS.items():
            (folder / name).write_text(f"#!/bin/sh\ncd {folder}\n{text}")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        self.tells("owner", str(os.getuid()))
        self.is_job("RUNNING")

    def tells(self, file: str, text: str) -> None:
        (self.folder / file).write_text(text)

    def is_job(self, state: str, submitted: int = 100) -> None:
        self.tells("job", f"7|{state}|{submitted}|101|9000|node[2-3]|None|/home/me/project")

    @property
    def canceled(self) -> list[str]:
        path = self.folder / "canceled"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(tmp_path / "tools", monkeypatch)


@pytest.fixture
def source(slurm: Slurm, tmp_path: Path) -> SlurmSource:
    return SlurmSource(tmp_path / "state")


class Begun:
    """Agents that were asked for in job 7, whose step, if SLURM tells it, is 7.3."""

    def __init__(self, slurm: Slurm, source: SlurmSource) -> None:
        self._slurm, self._source = slurm, source
        self.id = asyncio.run(source.submit(REQUEST, COMMAND)).id
        self.folder = asyncio.run(source.directory(self.id, REQUEST))

    def runs(self) -> None:
        until((self._slurm.folder / "started").exists, "srun")
        others = ("7.0|node2|bash", f"7.batch|node2|{self.folder.name}", f"7.4|node2|x{self.id}")
        lines = (*others, f"7.3|node[2-3]|{self.folder.name}", f"17.3|node9|{self.folder.name}")
        self._slurm.tells("steps", "\n".join(lines))

    def ends(self, code: int) -> None:
        self._slurm.tells("end", str(code))
        until((self.folder / "code").exists, "the end of its step")
        (self._slurm.folder / "steps").unlink(missing_ok=True)

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

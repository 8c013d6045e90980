"""SLURM as a source of nodes, on a real SLURM."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.sources.source import (
    SECRETS,
    SLOT,
    STATE,
    Allocation,
    NodesRequest,
    SlotCommand,
    Waiting,
    changes,
)
from jupyter_mntrain.sources.slurm.slurm_queue import SlurmCommands
from jupyter_mntrain.sources.slurm.slurm_source import SlurmSource
from tests.slurm_lab import SlurmLab
from tests.slurm_lab.conftest import source_of
from tests.waiting import until
from tests.wording import says

pytestmark = [pytest.mark.netlab]

T = TypeVar("T")

HELD_S = "600"

SLEEPER = SlotCommand(("sleep", HELD_S))

TELLING = (
    'cp "$2/token" "$1/$0.token"; env > "$1/$0.new"; mv "$1/$0.new" "$1/$0.env"; '
    f"exec sleep {HELD_S}"
)
TELLER = SlotCommand(
    ("bash", "-c", TELLING, SLOT, STATE, SECRETS), secrets={"token": "very secret"}
)
"""Writes down what it finds in its slot."""


def now(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def request(nodes: int = 3, *, gpus: str = "", **options: str) -> NodesRequest:
    values = {name.replace("_", "-"): (value,) for name, value in options.items()}
    return NodesRequest("slurm", nodes, gpus=gpus, time_s=600.0, options=values)


LATE = {"save-before-end": ("10",)}


class Asked:
    """An allocation that was asked for, and how it is at each look."""

    def __init__(
        self, source: SlurmSource, wanted: NodesRequest, command: SlotCommand = SLEEPER
    ) -> None:
        self.source, self.request = source, wanted
        self.seen = [now(source.submit(wanted, command))]
        self.id = self.seen[0].id

    @property
    def folder(self) -> Path:
        return now(self.source.directory(self.id, self.request))

    def look(self) -> Allocation:
        self.seen.append(now(self.source.look(self.id, self.request)))
        return self.seen[-1]

    def until(self, state: str) -> Allocation:
        until(lambda: self.look().state == state, state)
        return self.seen[-1]

    def until_slots(self, *states: str) -> Allocation:
        until(lambda: tuple(slot.state for slot in self.look().slots) == states, str(states))
        return self.seen[-1]

    def until_waiting(self, word: str) -> Waiting:
        """Until SLURM gives this reason."""
        until(lambda: (seen := self.look().waiting) and seen.word == word, word)
        waiting = self.seen[-1].waiting
        assert waiting is not None
        return waiting

    def told(self, name: str) -> str:
        """A file that a slot has written."""
        path = self.folder / name
        until(path.exists, name)
        return path.read_text()

    def give_back(self) -> None:
        now(self.source.give_back(self.id, self.request))

    def changes(self) -> list[str]:
        pairs = zip(self.seen, self.seen[1:], strict=False)
        return [one.kind for before, after in pairs for one in changes(before, after)]


@pytest.fixture(scope="module")
def limited(whole_slurm: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """The shortest time limit that SLURM has takes a minute or two: other tests run meanwhile."""
    source = source_of(whole_slurm, tmp_path_factory.mktemp("limited"))
    asked = Asked(source, NodesRequest("slurm", 2, time_s=60.0, options=LATE))
    with whole_slurm.sparing(asked.id):
        asked.until_slots("up", "up")
        save = asked.folder / "save"
        assert not save.exists()
        now(source.save(asked.id, asked.request))
        until(save.exists, "the script hears the wish")
        save.unlink()
        yield asked


@pytest.mark.usefixtures("limited")
def test_each_form_of_gpus_gives_them_to_every_node(source: SlurmSource) -> None:
    # All at once: a node has four.
    forms = ("1", "gpu:1", "fake:1", "gpu:fake:1")
    for asked in [Asked(source, request(2, gpus=form), TELLER) for form in forms]:
        asked.until_slots("up", "up")
        for name in asked.request.slots:
            found = dict(
                line.split("=", 1)
                for line in asked.told(f"{name}.env").splitlines()
                if line.startswith(("CUDA_", "SLURM_GPUS_ON"))
            )
            assert len(found["CUDA_VISIBLE_DEVICES"].split(",")) == 1
            assert found["SLURM_GPUS_ON_NODE"] == "1"


@pytest.mark.usefixtures("limited")
def test_two_jobs_share_a_node_and_no_gpu(source: SlurmSource) -> None:
    one, two = (
        Asked(source, request(1, gpus="2", sbatch="--nodelist=node2"), TELLER) for _ in range(2)
    )
    devices = []
    for asked in (one, two):
        assert asked.until_slots("up").slots[0].host == "node2"
        told = asked.told("slurm-0.env").splitlines()
        (line,) = [one for one in told if one.startswith("CUDA_VISIBLE_DEVICES=")]
        devices.append(set(line.partition("=")[2].split(",")))
    assert not devices[0] & devices[1]
    one.give_back()
    one.until("ended")
    assert two.look().state == "running"


@pytest.mark.usefixtures("limited")
def test_what_slurm_refuses_is_one_line_with_the_fix(source: SlurmSource, tmp_path: Path) -> None:
    for wanted, fix in (
        (request(1, partition="nope"), "main"),
        (request(2, gpus="8"), "3 nodes with 4 fake GPUs"),
        (request(1, gpus="gpu:a100:2"), "fake"),
        (request(1, gpus="a100:1"), "fake"),
        (request(1, constraint="zz"), "--constraint"),
        (request(1, reservation="zz"), "scontrol show reservation"),
        (request(1, sbatch="--nope"), "change what it names"),
        (request(9), "no more than is available"),
    ):
        with pytest.raises(RefusedError) as raised:
            now(source.check(wanted))
        assert raised.value.kind is Kind.SCHEDULER_REFUSED
        assert says(fix, raised.value.fix), raised.value
        assert "\n" not in str(raised.value)
        if wanted.nodes < 9:  # SLURM queues that one, for good
            with pytest.raises(RefusedError):
                now(source.submit(wanted, TELLER))
    with pytest.raises(SpecError):
        now(source.check(request(1, gpus="gpu")))
    now(source.check(request(3, gpus="fake:4")))
    assert list(tmp_path.iterdir()) == []


def test_a_save_is_asked_for_and_the_time_limit_is_the_cause_of_the_end(limited: Asked) -> None:
    save = limited.folder / "save"
    if limited.look().state == "running":  # other tests may have taken all of its time
        until(save.exists, "SLURM asks before the time limit")
    ended = limited.until("ended")
    assert save.exists()
    assert ended.outcome == "failed"
    assert ended.problem is not None
    assert ended.problem.kind is Kind.TIME_LIMIT


def test_a_gang_waits_until_it_can_have_all_nodes_and_holds_none_meanwhile(
    slurm: SlurmLab, source: SlurmSource
) -> None:
    first = Asked(source, request(2, sbatch="--exclusive"))
    first.until("running")
    gang = Asked(source, request(3, sbatch="--exclusive"), TELLER)
    assert gang.until_waiting("Resources").can_end
    until(lambda: gang.until_waiting("Resources").expected_start_s, "a forecast")
    waiting = gang.until_waiting("Resources")
    ends_s = first.look().ends_s
    assert ends_s is not None
    assert waiting.forecast_s(ends_s - 600.0) == pytest.approx(600.0, abs=60.0)
    assert [slot.state for slot in gang.seen[-1].slots] == ["waiting"] * 3
    assert len(slurm.idle()) == 1
    assert not list(gang.folder.glob("*.env"))
    first.give_back()
    held = gang.until_slots("up", "up", "up")
    assert {slot.host for slot in held.slots} == {node.name for node in slurm.nodes}
    assert held.state == "running"
    assert held.grants == 1
    assert (held.ends_s or 0.0) - (held.started_s or 0.0) == 600.0
    for slot in held.slots:
        assert f"SLURMD_NODENAME={slot.host}" in gang.told(f"{slot.name}.env")
        assert gang.told(f"{slot.name}.token") == "very secret"
    assert gang.changes()[-1] == "granted"


def test_what_never_comes_is_said_with_what_to_do(source: SlurmSource) -> None:
    for options, word in (
        ({"partition": "closed"}, "PartitionDown"),
        ({"sbatch": "--hold"}, "JobHeldUser"),
        ({"partition": "short"}, "PartitionTimeLimit"),
    ):
        wanted = NodesRequest(
            "slurm", 1, time_s=7200.0, options={name: (one,) for name, one in options.items()}
        )
        asked = Asked(source, wanted)
        waiting = asked.until_waiting(word)
        assert waiting.reason.kind is Kind.NEVER_GRANTED
        assert waiting.reason.fix
        assert not waiting.can_end
        asked.give_back()
        assert asked.until("ended").outcome == "canceled"


def test_where_there_is_no_slurm_that_is_said(tmp_path: Path) -> None:
    source = SlurmSource(tmp_path, SlurmCommands({"PATH": str(tmp_path)}))
    with pytest.raises(RefusedError) as raised:
        now(source.submit(request(), SLEEPER))
    assert raised.value.kind is Kind.NO_SCHEDULER
    assert list(tmp_path.iterdir()) == []
    seen = now(source.look("7", request()))
    assert seen.state == "unknown"
    assert seen.problem is not None


def test_nothing_is_left_once_it_is_given_back(slurm: SlurmLab, source: SlurmSource) -> None:
    daemons = {node.name: node.pids() for node in slurm.nodes}
    asked = Asked(source, request(3), TELLER)
    held = asked.until_slots("up", "up", "up")
    for slot in held.slots:
        asked.told(f"{slot.name}.env")
    folder = asked.folder
    assert (folder / "secrets").stat().st_mode & 0o777 == 0o700
    assert (folder / "secrets" / "token").stat().st_mode & 0o777 == 0o600
    asked.give_back()
    ended = asked.until("ended")
    assert ended.outcome == "canceled"
    assert ended.problem is None
    until(lambda: {node.name: node.pids() for node in slurm.nodes} == daemons, "no process is left")
    assert not (folder / "secrets").exists()
    assert (folder / "job.sh").exists()
    asked.give_back()  # once more changes nothing
    assert asked.look().outcome == "canceled"


def test_a_node_that_fails_takes_no_other_with_it(slurm: SlurmLab, source: SlurmSource) -> None:
    asked = Asked(source, request(3), TELLER)
    held = asked.until_slots("up", "up", "up")
    for name in asked.request.slots:
        asked.told(f"{name}.env")
    lost = next(node for node in slurm.nodes if node.name == held.slots[2].host)
    lost.power_cut()
    try:
        gone = asked.until_slots("up", "up", "gone")
        assert gone.state == "running"
        assert [slot.host for slot in gone.slots] == [slot.host for slot in held.slots]
        problem = gone.slots[2].problem
        assert problem is not None
        assert problem.kind is Kind.NODE_LOST
        assert asked.changes()[-1] == "slot-gone"
    finally:
        lost.power_on()
        slurm.start_node(lost)


def test_nodes_that_are_preempted_come_back_to_the_same_slots(source: SlurmSource) -> None:
    asked = Asked(source, request(2))
    asked.until_slots("up", "up")
    urgent = Asked(source, request(3, partition="urgent", sbatch="--exclusive"))
    urgent.until("running")
    asked.until("pending")
    urgent.give_back()
    again = asked.until_slots("up", "up")
    assert again.grants == 2
    told = asked.changes()
    assert told.count("granted") == 2
    assert told.count("taken") == 1
    assert "waits" in told[told.index("taken") :]


def test_a_job_that_slurm_does_not_know_is_unknown(source: SlurmSource) -> None:
    seen = now(source.look("999999", request()))
    assert seen.state == "unknown"
    assert not seen.is_over
    assert seen.problem is not None
    with pytest.raises(RefusedError):
        now(source.directory("999999", request()))


def test_what_it_asks_for_is_not_changed_by_a_persons_variables(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    own = {"SBATCH_PARTITION": "nope", "SQUEUE_FORMAT": "%i", "SLURM_TIME_FORMAT": "relative"}
    own |= {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "8", "SLURM_MEM_PER_CPU": "1"}  # inside of a job
    path = f"{slurm.tools()}:{os.environ['PATH']}"
    source = SlurmSource(tmp_path, SlurmCommands({**os.environ, **own, "PATH": path}))
    held = Asked(source, request(1)).until_slots("up")
    assert held.submitted_s is not None

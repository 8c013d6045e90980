"""Faults of the disk on which an agent keeps its jobs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.faults.search.case import Accept, Case, Channels, Truth
from tests.faults.search.mechanisms.mechanism import (
    Drawn,
    Mechanism,
    Parameters,
    Setting,
)
from tests.faults.search.mechanisms.tampering import mounted
from tests.faults.search.mechanisms.truths import FAILED, RUNNING, STALL_S, node_of, rank_of
from tests.faults.search.vocabulary import (
    DISK_FULL,
    EXCEPTION,
    EXITED,
    KILLED,
    READ_ONLY,
    STATE_LOST,
)

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage


def _stop_locked(setting: Setting) -> Drawn:
    """The job is to be stopped when its node can write nothing any more: it ends, or it is said
    why not.
    """
    channels: Channels = frozenset({"command", "node", "cause", "other", "stall"})
    nodes = frozenset({setting.guilty})
    accept = Accept(READ_ONLY | STATE_LOST, EXCEPTION, nodes, channels=channels)
    return Drawn(Truth((accept,), enough=frozenset({"canceled"}), within_s=STALL_S))


@contextmanager
def _lock_and_stop(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    with _lock_state(stage, case, parameters):
        stage.command("command", "stop", stage.bench.job)
        yield


def _jobs_full(setting: Setting) -> Drawn:
    """A rank's output fills the disk of the job's own directory."""
    accepts = (Accept(DISK_FULL, nodes=frozenset({setting.guilty})),)
    return Drawn(Truth(accepts, states=FAILED, within_s=25.0))


@contextmanager
def _fill_jobs(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    with mounted(stage, case.guilty, stage.state(case.guilty) / "jobs", "size=4m"):
        code = "for _ in range(400): print('x' * 100_000)"
        stage.put(case.layout, case.rank, "step", code)
        style = "reduce" if case.seed % 2 else "ring"
        if stage.launch(case.layout, style):
            stage.await_running()
        yield
    stage.spoil()


def _state_read_only(setting: Setting) -> Drawn:
    """Nothing can be written there any more, by the agent or by a rank that saves there."""
    channels: Channels = frozenset({"node", "other", "cause", "stall"})
    nodes = frozenset({setting.guilty})
    accept = Accept(READ_ONLY | STATE_LOST, EXCEPTION, nodes, channels=channels)
    return Drawn(Truth((accept,), within_s=STALL_S))


@contextmanager
def _lock_state(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    state = str(stage.state(case.guilty))
    stage.on(case.guilty, "mount", "--bind", state, state)
    stage.on(case.guilty, "mount", "-o", "remount,ro,bind", state)
    yield
    stage.on(case.guilty, "umount", "--lazy", state)
    stage.spoil()


def _logs_deleted(setting: Setting) -> Drawn:
    truth = Truth(is_harmless=True, states=RUNNING, may=node_of(setting, STATE_LOST))
    return Drawn(truth, {"what": setting.chance.choice(("log", "metrics"))})


@contextmanager
def _delete_logs(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    for attempt in (stage.state(case.guilty) / "jobs").glob(f"{stage.bench.job}/attempt-*"):
        if parameters["what"] == "log":
            (attempt / "log").unlink()
        else:
            shutil.rmtree(attempt / "metrics")
    yield


def _deleted_then_killed(setting: Setting) -> Drawn:
    return Drawn(Truth(rank_of(setting, KILLED, EXITED), states=FAILED))


@contextmanager
def _delete_and_kill(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    with _delete_logs(stage, case, {"what": "log"}):
        stage.put(case.layout, case.rank, "step", "os.kill(os.getpid(), 9)")
        yield


OWN_DISKS: tuple[Mechanism, ...] = (
    Mechanism(
        "a stop on a read-only disk", "disk", _stop_locked, _lock_and_stop, spoils=True, weight=1
    ),
    Mechanism(
        "a log that fills the disk",
        "disk",
        _jobs_full,
        _fill_jobs,
        ("launch",),
        spoils=True,
        weight=1,
    ),
    Mechanism(
        "a read-only state directory", "disk", _state_read_only, _lock_state, spoils=True, weight=1
    ),
    Mechanism("deleted logs", "disk", _logs_deleted, _delete_logs, spoils=True, weight=2),
    Mechanism(
        "deleted logs, then a killed rank",
        "disk",
        _deleted_then_killed,
        _delete_and_kill,
        spoils=True,
        weight=1,
    ),
)

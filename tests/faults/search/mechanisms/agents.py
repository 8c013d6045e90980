"""Faults of an agent, a supervisor and a torchrun."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tests.faults.search.case import Accept, Case, Channels, Truth
from tests.faults.search.mechanisms.mechanism import Drawn, Mechanism, Parameters, Setting
from tests.faults.search.mechanisms.tampering import control_group
from tests.faults.search.mechanisms.truths import (
    FAILED,
    RUNNING,
    STALL_S,
    any_silence,
    node_of,
    on_node,
    rank_of,
)
from tests.faults.search.vocabulary import (
    AGENT_FULL,
    AGENT_GONE,
    CRASHED,
    FROZEN,
    KILLED,
    SILENT_NODE,
    STATE_LOST,
    SUPERVISOR_FROZEN,
    SUPERVISOR_LOST,
    TERMINATED,
)

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage


def _other_place(case: Case, parameters: Parameters) -> str:
    """A distraction happens on the other node than the fault after it."""
    return case.other if len(case.mechanisms) > 1 and parameters.get("distracts") else case.guilty


def _agent_dies(setting: Setting) -> Drawn:
    truth = Truth(on_node(setting, AGENT_GONE, SILENT_NODE), is_harmless=True, within_s=15.0)
    return Drawn(truth)


@contextmanager
def _kill_agent(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    stage.kill_agent(case.guilty)
    yield
    stage.start_agent(case.guilty)


def _agent_freezes(setting: Setting) -> Drawn:
    return Drawn(Truth(on_node(setting, SILENT_NODE), is_harmless=True, within_s=15.0))


@contextmanager
def _freeze_agent(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    pid = stage.bench.agent(stage.host(case.guilty))
    stage.bench.signal(pid, signal.SIGSTOP)
    yield
    stage.bench.signal(pid, signal.SIGCONT)


def _agent_restarts(setting: Setting) -> Drawn:
    number = setting.chance.choice(("SIGTERM", "SIGKILL"))
    truth = Truth(is_harmless=True, states=RUNNING, may=any_silence())
    return Drawn(truth, {"signal": number, "distracts": True})


@contextmanager
def _restart_agent(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host = _other_place(case, parameters)
    stage.kill_agent(host, signal.Signals[parameters["signal"]])
    stage.start_agent(host)
    yield


def _files_run_out(setting: Setting) -> Drawn:
    """The agent can open nothing more; then a job is launched."""
    kinds = AGENT_FULL | frozenset({"refused"})
    channels: Channels = frozenset({"launch", "cause", "node", "other"})
    accept = Accept(
        kinds, frozenset({"broken", "error"}), frozenset({setting.guilty}), channels=channels
    )
    return Drawn(
        Truth((accept,), within_s=30.0), {"how": setting.chance.choice(("files", "tasks"))}
    )


@contextmanager
def _exhaust_agent(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    pid = stage.bench.agent(stage.host(case.guilty))
    if parameters["how"] == "files":
        used = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
        stage.on(case.guilty, "true")
        os.system(f"prlimit --pid {pid} --nofile={used + 1}:4096")
        yield
        os.system(f"prlimit --pid {pid} --nofile=4096:4096")
        return
    tasks = len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
    with control_group("pids", pid, {"pids.max": str(tasks)}):
        yield


def _dies(kinds: frozenset[str], vague: frozenset[str] = frozenset()) -> Callable[[Setting], Drawn]:
    return lambda setting: Drawn(Truth(node_of(setting, kinds, vague), states=FAILED))


def _torchrun(setting: Setting) -> Drawn:
    name, kinds = setting.chance.choice(
        (
            ("SIGKILL", KILLED),
            ("SIGTERM", TERMINATED),
            ("SIGSEGV", CRASHED),
            ("SIGABRT", CRASHED),
            ("SIGHUP", TERMINATED),
        )
    )
    return Drawn(Truth(node_of(setting, kinds), states=FAILED), {"signal": name})


@contextmanager
def _signal_torchrun(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    pid = stage.bench.torchrun(stage.host(case.guilty))
    stage.bench.signal(pid, signal.Signals[parameters["signal"]])
    yield


@contextmanager
def _kill_supervisor(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    stage.bench.signal(stage.bench.supervisor(stage.host(case.guilty)), signal.SIGKILL)
    yield


def _frozen_helper(setting: Setting) -> Drawn:
    which = setting.chance.choice(("torchrun", "supervisor"))
    also = (Accept(SUPERVISOR_FROZEN, nodes=frozenset(setting.layout.names)),)
    truth = Truth(is_harmless=True, states=RUNNING, may=also)
    return Drawn(truth, {"which": which, "distracts": True})


@contextmanager
def _freeze_helper(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host = stage.host(_other_place(case, parameters))
    find = stage.bench.torchrun if parameters["which"] == "torchrun" else stage.bench.supervisor
    pid = find(host)
    stage.bench.signal(pid, signal.SIGSTOP)
    yield
    with suppress(Exception):
        stage.bench.signal(pid, signal.SIGCONT)


def _stop_frozen(setting: Setting) -> Drawn:
    """The supervisor is frozen, and the job is to be stopped: it ends, or it is said why not."""
    channels: Channels = frozenset({"command", "node", "cause", "other", "stall"})
    accept = Accept(
        SUPERVISOR_FROZEN, frozenset({"leftover"}), frozenset({setting.guilty}), channels=channels
    )
    return Drawn(
        Truth((accept,), enough=frozenset({"canceled"}), within_s=STALL_S),
        {"verb": setting.chance.choice(("stop", "kill"))},
    )


@contextmanager
def _freeze_and_stop(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    pid = stage.bench.supervisor(stage.host(case.guilty))
    stage.bench.signal(pid, signal.SIGSTOP)
    stage.command("command", parameters["verb"], stage.bench.job)
    yield
    stage.bench.signal(pid, signal.SIGCONT)


def _dies_below_frozen(setting: Setting) -> Drawn:
    """torchrun is frozen when its rank dies: nobody collects it."""
    accepts = (
        *rank_of(setting, KILLED, frozenset({"ended-early"})),
        *node_of(setting, FROZEN),
    )
    return Drawn(Truth(accepts, within_s=STALL_S))


@contextmanager
def _kill_below_frozen(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    pid = stage.bench.torchrun(stage.host(case.guilty))
    stage.bench.signal(pid, signal.SIGSTOP)
    stage.bench.signal(stage.rank_pid(case.guilty, case.rank), signal.SIGKILL)
    yield
    with suppress(Exception):
        stage.bench.signal(pid, signal.SIGCONT)


def _starved(setting: Setting) -> Drawn:
    """The agent gets almost no CPU; its job needs nothing of it."""
    truth = Truth(on_node(setting, SILENT_NODE), is_harmless=True, within_s=25.0)
    return Drawn(truth, {"quota_us": 1000})


@contextmanager
def _starve(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    pid = stage.bench.agent(stage.host(case.guilty))
    quota = {"cpu.cfs_period_us": "1000000", "cpu.cfs_quota_us": str(parameters["quota_us"])}
    with control_group("cpu", pid, quota):
        yield


def _state_lost(setting: Setting) -> Drawn:
    channels: Channels = frozenset({"node", "other", "cause", "stall"})
    accept = Accept(STATE_LOST, nodes=frozenset({setting.guilty}), channels=channels)
    return Drawn(
        Truth((accept,), within_s=STALL_S), {"what": setting.chance.choice(("all", "jobs"))}
    )


@contextmanager
def _delete_state(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    stage.spoil()
    state = stage.state(case.guilty)
    shutil.rmtree(state if parameters["what"] == "all" else state / "jobs", ignore_errors=True)
    yield


AGENTS: tuple[Mechanism, ...] = (
    Mechanism("a killed agent", "node", _agent_dies, _kill_agent, weight=2),
    Mechanism("a frozen agent", "node", _agent_freezes, _freeze_agent, weight=2),
    Mechanism("a restarted agent", "node", _agent_restarts, _restart_agent, distracts=True),
    Mechanism(
        "an agent at its limits",
        "node",
        _files_run_out,
        _exhaust_agent,
        ("launch",),
        weight=2,
        spoils=True,
    ),
    Mechanism(
        "a signal to torchrun",
        "node",
        _torchrun,
        _signal_torchrun,
        spoils=True,
        weight=4,
        pairs=True,
    ),
    Mechanism(
        "a killed supervisor",
        "node",
        _dies(SUPERVISOR_LOST),
        _kill_supervisor,
        spoils=True,
        weight=3,
        pairs=True,
    ),
    Mechanism("a frozen helper", "node", _frozen_helper, _freeze_helper, distracts=True),
    Mechanism(
        "a stop below a frozen supervisor", "node", _stop_frozen, _freeze_and_stop, spoils=True
    ),
    Mechanism(
        "a rank killed below a frozen torchrun",
        "node",
        _dies_below_frozen,
        _kill_below_frozen,
        spoils=True,
    ),
    Mechanism("a starved agent", "node", _starved, _starve, weight=1),
    Mechanism(
        "a deleted state directory", "node", _state_lost, _delete_state, spoils=True, weight=1
    ),
)

"""Faults of a node: its agent, its keeper, its torchrun, its power, its limits."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.search.case import Accept, Case, Truth
from tests.faults.search.mechanism import (
    Drawn,
    Mechanism,
    Parameters,
    Setting,
    node_of,
    on_node,
    rank_of,
)
from tests.faults.search.vocabulary import (
    AGENT_FULL,
    AGENT_GONE,
    CRASHED,
    FROZEN,
    IN_KERNEL,
    KEEPER_FROZEN,
    KEEPER_LOST,
    KILLED,
    NODE_LOST,
    OUT_OF_MEMORY,
    RESTARTED,
    SILENT_NODE,
    STATE_LOST,
    STOPPED,
    STRAGGLER,
    TERMINATED,
)
from tests.netlab import DATA, MANAGEMENT

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage

FAILED = frozenset({"failed", "stopping"})
RUNNING = frozenset({"running"})
STALL_S = 25.0
CGROUPS = Path("/sys/fs/cgroup")


def _other_place(case: Case, parameters: Parameters) -> str:
    """A distraction happens on the other node than the fault after it."""
    return case.other if len(case.mechanisms) > 1 and parameters.get("distracts") else case.guilty


# Agents


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
    truth = Truth(is_harmless=True, states=RUNNING, may=_of_agents(setting))
    return Drawn(truth, {"signal": number, "distracts": True})


def _of_agents(setting: Setting) -> tuple[Accept, ...]:
    channels = frozenset({"node"})
    return (Accept(AGENT_GONE | SILENT_NODE, channels=channels),)  # type: ignore[arg-type]


@contextmanager
def _restart_agent(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host = _other_place(case, parameters)
    stage.kill_agent(host, signal.Signals[parameters["signal"]])
    stage.start_agent(host)
    yield


def _files_run_out(setting: Setting) -> Drawn:
    """The agent can open nothing more; then a job is launched."""
    kinds = AGENT_FULL | frozenset({"refused"})
    channels = frozenset({"launch", "cause", "node", "other"})
    accept = Accept(
        kinds, frozenset({"broken", "error"}), frozenset({setting.guilty}), channels=channels
    )  # type: ignore[arg-type]
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
    with _group("pids", pid, {"pids.max": str(tasks)}):
        yield


# What keeps and starts the ranks


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
def _kill_keeper(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    stage.bench.signal(stage.bench.keeper(stage.host(case.guilty)), signal.SIGKILL)
    yield


def _frozen_helper(setting: Setting) -> Drawn:
    which = setting.chance.choice(("torchrun", "keeper"))
    truth = Truth(is_harmless=True, states=RUNNING)
    return Drawn(truth, {"which": which, "distracts": True})


@contextmanager
def _freeze_helper(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host = stage.host(_other_place(case, parameters))
    find = stage.bench.torchrun if parameters["which"] == "torchrun" else stage.bench.keeper
    pid = find(host)
    stage.bench.signal(pid, signal.SIGSTOP)
    yield
    with suppress(Exception):
        stage.bench.signal(pid, signal.SIGCONT)


def _stop_frozen(setting: Setting) -> Drawn:
    """The keeper is frozen, and the job is to be stopped: it ends, or it is said why not."""
    channels = frozenset({"command", "node", "cause", "other", "stall"})
    accept = Accept(
        KEEPER_FROZEN, frozenset({"leftover"}), frozenset({setting.guilty}), channels=channels
    )  # type: ignore[arg-type]
    return Drawn(Truth((accept,), within_s=25.0), {"verb": setting.chance.choice(("stop", "kill"))})


@contextmanager
def _freeze_and_stop(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    pid = stage.bench.keeper(stage.host(case.guilty))
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


# The machine


def _power(setting: Setting) -> Drawn:
    return Drawn(
        Truth(
            node_of(setting, NODE_LOST),
            may=on_node(setting, SILENT_NODE | AGENT_GONE),
            within_s=STALL_S,
        )
    )


@contextmanager
def _cut_power(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host, lab = stage.host(case.guilty), stage.bench.lab
    for interface in (DATA, MANAGEMENT):
        lab.set_port(host, interface, is_up=False)
    host.power_cut()
    yield
    for interface in (DATA, MANAGEMENT):
        lab.set_port(host, interface, is_up=True)
    host.power_on()
    stage.start_agent(case.guilty)


def _reboots(setting: Setting) -> Drawn:
    return Drawn(
        Truth(node_of(setting, RESTARTED), states=FAILED, may=_of_agents(setting), within_s=25.0)
    )


@contextmanager
def _reboot(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host = stage.host(case.guilty)
    host.power_cut()
    host.power_on()
    stage.start_agent(case.guilty)
    yield


def _pauses(setting: Setting) -> Drawn:
    """As a paused virtual machine: nothing there moves, and nothing is closed."""
    return Drawn(
        Truth(node_of(setting, NODE_LOST), may=on_node(setting, SILENT_NODE), within_s=STALL_S)
    )


@contextmanager
def _pause(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    host = stage.host(case.guilty)
    pids = host.pids()
    for pid in pids:
        stage.bench.signal(pid, signal.SIGSTOP)
    yield
    for pid in pids:
        with suppress(Exception):
            stage.bench.signal(pid, signal.SIGCONT)


@contextmanager
def _group(controller: str, pid: int, limits: dict[str, str]) -> Iterator[Path]:
    """A control group with one process in it, for a while."""
    group = CGROUPS / controller / f"mntrain-{pid}-{time.monotonic_ns()}"
    group.mkdir()
    for name, value in limits.items():
        (group / name).write_text(value)
    (group / "cgroup.procs").write_text(str(pid))
    try:
        yield group
    finally:
        for name in limits:
            with suppress(OSError):
                (group / name).write_text("THAWED" if name == "freezer.state" else "-1")
        for left in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (group.parent / "cgroup.procs").write_text(left)
        with suppress(OSError):
            group.rmdir()


def _oom(setting: Setting) -> Drawn:
    return Drawn(Truth(rank_of(setting, OUT_OF_MEMORY, KILLED), states=FAILED))


@contextmanager
def _run_out(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """A container's limit: the kernel kills what exceeds it."""
    pid = stage.rank_pid(case.guilty, case.rank)
    with _group("memory", pid, {}) as group:
        (group / "memory.limit_in_bytes").write_text(str(64 * 2**20))
        stage.put(
            case.layout,
            case.rank,
            "step",
            "kept = [bytearray(os.urandom(2**20)) * 1 for _ in range(400)]",
        )
        yield


def _throttled(setting: Setting) -> Drawn:
    truth = Truth(rank_of(setting, STRAGGLER), is_harmless=True, within_s=35.0)
    return Drawn(truth, {"quota_us": setting.chance.choice((2000, 4000))})


@contextmanager
def _throttle(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    pid = stage.rank_pid(case.guilty, case.rank)
    with _group("cpu", pid, {"cpu.cfs_quota_us": str(parameters["quota_us"])}):
        yield


def _group_frozen(setting: Setting) -> Drawn:
    """By its control group, as a paused container: no signal, no stop state."""
    return Drawn(Truth(rank_of(setting, FROZEN, IN_KERNEL), states=RUNNING, within_s=STALL_S))


@contextmanager
def _freeze_group(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    pid = stage.rank_pid(case.guilty, case.rank)
    with _group("freezer", pid, {"freezer.state": "FROZEN"}):
        time.sleep(0.1)
        # What is written to an empty group is lost: freeze what is in it now.
        yield


@contextmanager
def _stop_rank(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    pid = stage.rank_pid(case.guilty, case.rank)
    stage.bench.signal(pid, signal.SIGSTOP)
    yield
    with suppress(Exception):
        stage.bench.signal(pid, signal.SIGCONT)


def _rank_stopped(setting: Setting) -> Drawn:
    return Drawn(Truth(rank_of(setting, STOPPED), states=RUNNING, within_s=STALL_S))


# What the agent keeps


def _state_lost(setting: Setting) -> Drawn:
    channels = frozenset({"node", "other", "cause", "stall"})
    accept = Accept(STATE_LOST, nodes=frozenset({setting.guilty}), channels=channels)  # type: ignore[arg-type]
    return Drawn(
        Truth((accept,), within_s=STALL_S), {"what": setting.chance.choice(("all", "jobs"))}
    )


@contextmanager
def _delete_state(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    stage.spoil()
    state = stage.state(case.guilty)
    shutil.rmtree(state if parameters["what"] == "all" else state / "jobs", ignore_errors=True)
    yield


NODE: tuple[Mechanism, ...] = (
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
        "a killed keeper",
        "node",
        _dies(KEEPER_LOST),
        _kill_keeper,
        spoils=True,
        weight=3,
        pairs=True,
    ),
    Mechanism("a frozen helper", "node", _frozen_helper, _freeze_helper, distracts=True),
    Mechanism("a stop below a frozen keeper", "node", _stop_frozen, _freeze_and_stop, spoils=True),
    Mechanism(
        "a rank killed below a frozen torchrun",
        "node",
        _dies_below_frozen,
        _kill_below_frozen,
        spoils=True,
    ),
    Mechanism("a power cut", "node", _power, _cut_power, spoils=True, weight=2),
    Mechanism("a reboot", "node", _reboots, _reboot, spoils=True, weight=2),
    Mechanism("a paused machine", "node", _pauses, _pause, spoils=True, weight=2),
    Mechanism("a memory limit", "node", _oom, _run_out, spoils=True, weight=3, pairs=True),
    Mechanism("a throttled CPU", "node", _throttled, _throttle, weight=2),
    Mechanism("a frozen group", "node", _group_frozen, _freeze_group, weight=2),
    Mechanism("a stopped rank", "node", _rank_stopped, _stop_rank, weight=2, pairs=True),
    Mechanism(
        "a deleted state directory", "node", _state_lost, _delete_state, spoils=True, weight=1
    ),
)

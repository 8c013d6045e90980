"""Faults of a machine: its power, its memory, its CPU."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil

from tests.faults.search.case import Case, Truth
from tests.faults.search.mechanisms.mechanism import Drawn, Mechanism, Parameters, Setting
from tests.faults.search.mechanisms.tampering import control_group
from tests.faults.search.mechanisms.truths import (
    FAILED,
    RUNNING,
    SLOW_S,
    STALL_S,
    any_silence,
    node_of,
    on_node,
    rank_of,
)
from tests.faults.search.vocabulary import (
    AGENT_GONE,
    BUSY,
    FROZEN,
    IN_KERNEL,
    KILLED,
    NODE_LOST,
    OUT_OF_MEMORY,
    RESTARTED,
    SILENT_NODE,
    STOPPED,
    STRAGGLER,
)
from tests.netlab import DATA, MANAGEMENT

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage

MEASURED_S = 2.0
PERIOD_US = 200_000
"""As long as several steps, so that the least quota of the kernel is a small share."""
SHORTEST_QUOTA_US = 1000


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
        Truth(node_of(setting, RESTARTED), states=FAILED, may=any_silence(), within_s=25.0)
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


def _oom(setting: Setting) -> Drawn:
    return Drawn(Truth(rank_of(setting, OUT_OF_MEMORY, KILLED), states=FAILED))


@contextmanager
def _run_out(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """A container's limit: the kernel kills what exceeds it."""
    pid = stage.rank_pid(case.guilty, case.rank)
    with control_group("memory", pid, {}) as group:
        (group / "memory.limit_in_bytes").write_text(str(64 * 2**20))
        stage.put(
            case.layout,
            case.rank,
            "step",
            "kept = [bytearray(os.urandom(2**20)) * 1 for _ in range(400)]",
        )
        yield


def _throttled(setting: Setting) -> Drawn:
    truth = Truth(rank_of(setting, STRAGGLER, BUSY), is_harmless=True, within_s=SLOW_S)
    return Drawn(truth, {"times": setting.chance.choice((4, 8))})


@contextmanager
def _throttle(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """It gets so many times less than it uses: a limit above that would change nothing."""
    pid = stage.rank_pid(case.guilty, case.rank)
    share = psutil.Process(pid).cpu_percent(MEASURED_S) / 100
    quota_us = max(SHORTEST_QUOTA_US, int(share / parameters["times"] * PERIOD_US))
    limits = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota_us)}
    with control_group("cpu", pid, limits):
        yield


def _group_frozen(setting: Setting) -> Drawn:
    """By its control group, as a paused container: no signal, no stop state."""
    return Drawn(Truth(rank_of(setting, FROZEN, IN_KERNEL), states=RUNNING, within_s=STALL_S))


HAVE_FREEZER = """
at=/sys/fs/cgroup/freezer
if [ ! -e $at/cgroup.procs ]; then
    mount -t tmpfs none ${at%/*} && mkdir $at && mount -t cgroup -o freezer none $at
fi
"""
"""A simulated host has no control groups of its own; a machine shows its agent all of them."""


@contextmanager
def _freeze_group(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    pid = stage.rank_pid(case.guilty, case.rank)
    stage.on(case.guilty, "sh", "-c", HAVE_FREEZER)
    with control_group("freezer", pid, {"freezer.state": "FROZEN"}):
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


MACHINES: tuple[Mechanism, ...] = (
    Mechanism("a power cut", "node", _power, _cut_power, spoils=True, weight=2),
    Mechanism("a reboot", "node", _reboots, _reboot, spoils=True, weight=2),
    Mechanism("a paused machine", "node", _pauses, _pause, spoils=True, weight=2),
    Mechanism("a memory limit", "node", _oom, _run_out, spoils=True, weight=3, pairs=True),
    Mechanism("a throttled CPU", "node", _throttled, _throttle, slows=True, weight=2),
    Mechanism("a frozen group", "node", _group_frozen, _freeze_group, weight=2),
    Mechanism("a stopped rank", "node", _rank_stopped, _stop_rank, weight=2, pairs=True),
)

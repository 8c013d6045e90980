"""The agent as a service of a real systemd: it starts at boot, and jobs outlive its restarts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from jupyter_mntrain.agent.attempt.processes import environment_of
from jupyter_mntrain.agent.membership.systemd import UNIT
from tests.e2e.conftest import invite, ours, token_file, up
from tests.netlab import Host, missing, own_lab
from tests.netlab.systemd import BootedHost, missing_systemd
from tests.waiting import until

pytestmark = [pytest.mark.netlab, pytest.mark.slow]

WAIT_S = 120.0
SCRIPT = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[BootedHost, Host]]:
    """A host that systemd runs, and one that drives."""
    why_not = missing() or missing_systemd()
    if why_not is not None:
        pytest.skip(f"simulated cluster: {why_not}")
    with own_lab(2) as made:
        first, driver = made.hosts
        with BootedHost(first) as booted:
            yield booted, driver


@pytest.fixture(scope="module")
def service(hosts: tuple[BootedHost, Host], mntrain: str) -> BootedHost:
    booted, driver = hosts
    token = invite(driver, mntrain)
    command = [mntrain, "agent", "join", "--service", "--token-file"]
    done = booted.run([*command, token_file(booted.host, token)], timeout_s=WAIT_S)
    assert done.returncode == 0, done.stderr
    assert UNIT in done.stdout
    return booted


def agent_pid(booted: BootedHost) -> int:
    """As numbered there; 0 if it does not run."""
    asked = booted.run(["systemctl", "show", UNIT, "--property=MainPID", "--value"])
    return int(asked.stdout)


def ranks(booted: BootedHost, job: str) -> set[int]:
    found = psutil.Process(booted.init).children(recursive=True)
    settings = {one.pid: environment_of(one.pid) for one in found}
    return {pid for pid, env in settings.items() if env.get("MNTRAIN_JOB") == job and "RANK" in env}


def test_a_job_outlives_restart_and_death_of_the_service(
    service: BootedHost, hosts: Any, mntrain: str
) -> None:
    _, driver = hosts
    until(lambda: up(driver, mntrain) == ["node1"], "the node to be up", WAIT_S)
    script = driver.home / "long.py"
    script.write_text(SCRIPT)
    job = ours(driver, mntrain, "launch", str(script), "--member", "node1:1")["job_id"]
    until(lambda: ranks(service, job), "its rank", WAIT_S)
    before, first = ranks(service, job), agent_pid(service)

    assert service.run(["systemctl", "restart", UNIT]).returncode == 0
    until(lambda: agent_pid(service) not in (0, first), "another agent", WAIT_S)
    second = agent_pid(service)
    service.run(["kill", f"-{signal.SIGKILL.name}", str(second)])
    until(lambda: agent_pid(service) not in (0, second), "a third agent", WAIT_S)

    until(lambda: up(driver, mntrain) == ["node1"], "the node to be up again", WAIT_S)
    assert ranks(service, job) == before
    assert ours(driver, mntrain, "status", job)["state"] == "running"
    ours(driver, mntrain, "stop", job)
    until(lambda: not ranks(service, job), "its end", WAIT_S)


def test_after_a_power_cut_the_node_is_back_by_itself(
    service: BootedHost, hosts: Any, mntrain: str
) -> None:
    _, driver = hosts
    until(lambda: up(driver, mntrain) == ["node1"], "the node to be up", WAIT_S)
    service.power_cut()
    until(lambda: not up(driver, mntrain), "the node to be lost", WAIT_S)
    service.power_on()
    until(lambda: up(driver, mntrain) == ["node1"], "the node to be back", WAIT_S)


def test_a_removed_service_is_gone_after_the_next_boot(service: BootedHost, mntrain: str) -> None:
    done = service.run([mntrain, "agent", "remove-service"])
    assert done.returncode == 0, done.stderr
    assert not service.is_active(UNIT)
    service.power_cut()
    service.power_on()
    assert not service.is_active(UNIT)

"""The agent as a service of a real systemd: it starts at boot, and jobs outlive its restarts."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest

from jupyter_mntrain.agent.attempt.processes import environment_of
from jupyter_mntrain.agent.membership.systemd import UNIT
from jupyter_mntrain.model.api import DEFAULT_PORT
from tests.e2e.conftest import invite, ours, token_file, up
from tests.netlab import Host, missing, own_lab
from tests.netlab.systemd import BootedHost, missing_systemd
from tests.waiting import until

pytestmark = [pytest.mark.netlab, pytest.mark.slow]

WAIT_S = 180.0
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


@dataclass
class Service:
    """The agent as a service of root or of a user."""

    booted: BootedHost
    node: str
    user: str | None

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.booted.run(words, user=self.user, timeout_s=WAIT_S)

    def systemctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.booted.systemctl(*words, user=self.user)

    def is_active(self) -> bool:
        return self.systemctl("is-active", "--quiet", UNIT).returncode == 0

    def agent_pid(self) -> int:
        """As numbered there; 0 if it does not run."""
        said = self.systemctl("show", UNIT, "--property=MainPID", "--value").stdout.strip()
        return int(said or 0)

    def next_agent(self, before: int) -> int:
        """The one that runs after that one."""
        until(lambda: self.agent_pid() not in (0, before), "another agent", WAIT_S)
        return self.agent_pid()


@pytest.fixture(scope="module")
def services(hosts: tuple[BootedHost, Host], mntrain: str) -> list[Service]:
    """One of root and one of a user without its rights, each installed by one command."""
    booted, driver = hosts
    made = [Service(booted, "of-root", None), Service(booted, "of-alice", "alice")]
    booted.add_user("alice")
    # What an administrator does once: its services run without a login.
    assert booted.run(["loginctl", "enable-linger", "alice"]).returncode == 0
    token = invite(driver, mntrain, "--uses", str(len(made)))
    for number, service in enumerate(made):
        given = token_file(booted.host, token)
        if service.user is not None:
            assert booted.run(["chown", service.user, given]).returncode == 0
        joining = ("agent", "join", "--service", "--name", service.node, "--token-file", given)
        done = service.run(mntrain, *joining, "--port", str(DEFAULT_PORT + number))
        assert done.returncode == 0, done.stderr
        assert UNIT in done.stdout
    return made


def all_are_up(services: list[Service], driver: Host, mntrain: str) -> bool:
    return sorted(up(driver, mntrain)) == sorted(one.node for one in services)


def ranks(booted: BootedHost, job: str) -> set[int]:
    found = psutil.Process(booted.init).children(recursive=True)
    settings = {one.pid: environment_of(one.pid) for one in found}
    return {pid for pid, env in settings.items() if env.get("MNTRAIN_JOB") == job and "RANK" in env}


def test_a_job_outlives_restart_and_death_of_the_services(
    services: list[Service], hosts: tuple[BootedHost, Host], mntrain: str
) -> None:
    booted, driver = hosts
    until(lambda: all_are_up(services, driver, mntrain), "the nodes to be up", WAIT_S)
    script = driver.home / "long.py"
    script.write_text(SCRIPT)
    members = [word for one in services for word in ("--member", f"{one.node}:1")]
    job = ours(driver, mntrain, "launch", str(script), *members)["job_id"]
    until(lambda: len(ranks(booted, job)) == len(services), "its ranks", WAIT_S)
    before = ranks(booted, job)

    for service in services:
        first = service.agent_pid()
        assert service.systemctl("restart", UNIT).returncode == 0
        second = service.next_agent(first)
        booted.run(["kill", f"-{signal.SIGKILL.name}", str(second)])
        service.next_agent(second)

    until(lambda: all_are_up(services, driver, mntrain), "the nodes to be up again", WAIT_S)
    assert ranks(booted, job) == before
    assert ours(driver, mntrain, "status", job)["state"] == "running"
    ours(driver, mntrain, "stop", job)
    until(lambda: not ranks(booted, job), "its end", WAIT_S)


def test_after_a_power_cut_the_nodes_are_back_by_themselves(
    services: list[Service], hosts: tuple[BootedHost, Host], mntrain: str
) -> None:
    booted, driver = hosts
    until(lambda: all_are_up(services, driver, mntrain), "the nodes to be up", WAIT_S)
    booted.power_cut()
    until(lambda: not up(driver, mntrain), "the nodes to be lost", WAIT_S)
    booted.power_on()
    until(lambda: all_are_up(services, driver, mntrain), "the nodes to be back", WAIT_S)


def test_a_removed_service_is_gone_after_the_next_boot(
    services: list[Service], hosts: tuple[BootedHost, Host], mntrain: str
) -> None:
    booted, _ = hosts
    for service in services:
        done = service.run(mntrain, "agent", "remove-service")
        assert done.returncode == 0, done.stderr
        assert not service.is_active()
    booted.power_cut()
    booted.power_on()
    assert not any(service.is_active() for service in services)

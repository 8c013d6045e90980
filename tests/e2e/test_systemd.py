"""The agent as a service of a real systemd: it starts at boot, and jobs outlive its restarts."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
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

    def ranks(self, job: str) -> set[int]:
        found = psutil.Process(self.booted.init).children(recursive=True)
        settings = {one.pid: environment_of(one.pid) for one in found}
        return {
            pid for pid, env in settings.items() if env.get("MNTRAIN_JOB") == job and "RANK" in env
        }


@pytest.fixture(scope="module", params=[None, "alice"], ids=["root", "user"])
def service(
    hosts: tuple[BootedHost, Host], mntrain: str, request: pytest.FixtureRequest
) -> Service:
    """Installed by one command; then the same for a user without root's rights."""
    booted, driver = hosts
    made = Service(booted, f"of-{request.param or 'root'}", request.param)
    if made.user is not None:
        booted.add_user(made.user)
        # What an administrator does once: its services run without a login.
        assert booted.run(["loginctl", "enable-linger", made.user]).returncode == 0
    token = token_file(booted.host, invite(driver, mntrain))
    if made.user is not None:
        assert booted.run(["chown", made.user, token]).returncode == 0
    joining = ("agent", "join", "--service", "--name", made.node, "--token-file", token)
    done = made.run(mntrain, *joining)
    assert done.returncode == 0, done.stderr
    assert UNIT in done.stdout
    return made


def test_a_job_outlives_restart_and_death_of_the_service(
    service: Service, hosts: Any, mntrain: str
) -> None:
    _, driver = hosts
    until(lambda: up(driver, mntrain) == [service.node], "the node to be up", WAIT_S)
    script = driver.home / "long.py"
    script.write_text(SCRIPT)
    job = ours(driver, mntrain, "launch", str(script), "--member", f"{service.node}:1")["job_id"]
    until(lambda: service.ranks(job), "its rank", WAIT_S)
    before, first = service.ranks(job), service.agent_pid()

    assert service.systemctl("restart", UNIT).returncode == 0
    until(lambda: service.agent_pid() not in (0, first), "another agent", WAIT_S)
    second = service.agent_pid()
    service.booted.run(["kill", f"-{signal.SIGKILL.name}", str(second)])
    until(lambda: service.agent_pid() not in (0, second), "a third agent", WAIT_S)

    until(lambda: up(driver, mntrain) == [service.node], "the node to be up again", WAIT_S)
    assert service.ranks(job) == before
    assert ours(driver, mntrain, "status", job)["state"] == "running"
    ours(driver, mntrain, "stop", job)
    until(lambda: not service.ranks(job), "its end", WAIT_S)


def test_after_a_power_cut_the_node_is_back_by_itself(
    service: Service, hosts: Any, mntrain: str
) -> None:
    _, driver = hosts
    until(lambda: up(driver, mntrain) == [service.node], "the node to be up", WAIT_S)
    service.booted.power_cut()
    until(lambda: not up(driver, mntrain), "the node to be lost", WAIT_S)
    service.booted.power_on()
    until(lambda: up(driver, mntrain) == [service.node], "the node to be back", WAIT_S)


def test_a_removed_service_is_gone_after_the_next_boot(service: Service, mntrain: str) -> None:
    done = service.run(mntrain, "agent", "remove-service")
    assert done.returncode == 0, done.stderr
    assert not service.is_active()
    service.booted.power_cut()
    service.booted.power_on()
    assert not service.is_active()

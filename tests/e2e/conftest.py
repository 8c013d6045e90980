from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netlab import Host, HostProcess, Lab, missing, own_lab
from tests.waiting import until

AGENT_PATIENCE_S = 30.0
_outlived: list[HostProcess] = []


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Three hosts with an agent each, on both networks; skipped, with the reason, without root."""
    why_not = missing()
    if why_not is not None:
        pytest.skip(f"simulated cluster: {why_not}")
    with own_lab(3) as made:
        for host in made.hosts:
            words = [sys.executable, "-m", "jupyter_mntrain.agent", "--cluster", "lab"]
            words += ["--address", host.management_address, "--address", host.data_address]
            words += ["--link-capacity", "eth1=1gbit", "--link-capacity", "eth0=100mbit"]
            start(host, words, host.home / "agent.log")
        for host in made.hosts:
            log = host.home / "agent.log"
            until(lambda log=log: "listens on" in log.read_text(), f"{log} to listen")
        yield made


def start(host: Host, words: list[str], log: Path) -> HostProcess:
    """A process that lives on ``host`` until the lab is taken down."""
    with log.open("ab") as out:
        process = host.popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    # The lab ends it, with the whole host.
    _outlived.append(process)
    return process


@pytest.fixture(scope="session")
def mntrain() -> str:
    """The command, as installed beside this interpreter."""
    return str(Path(sys.executable).with_name("mntrain"))

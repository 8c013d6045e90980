from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.netlab import Lab, missing
from tests.netlab.lab import clean_stale

AGENT_PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Three hosts with an agent each, on both networks; skipped, with the reason, without root."""
    why_not = missing()
    if why_not is not None:
        pytest.skip(f"simulated cluster: {why_not}")
    clean_stale()
    made = Lab(3, prefix=f"mt{os.getpid() % 10_000}", subnet=100 + os.getpid() % 100).up()
    try:
        agents = []
        for host in made.hosts:
            words = [sys.executable, "-m", "jupyter_mntrain.agent", "--cluster", "lab"]
            words += ["--address", host.management_address, "--address", host.data_address]
            words += ["--link-capacity", "eth1=1gbit", "--link-capacity", "eth0=100mbit"]
            log = host.home / "agent.log"
            agents.append(host.popen(words, log, {"OMP_NUM_THREADS": "1"}))
        for host in made.hosts:
            log = host.home / "agent.log"
            until(lambda log=log: "listens on" in log.read_text(), f"{log} to listen")
        yield made
    finally:
        made.down()
        for agent in agents:
            agent.wait()


def until(condition: Callable[[], object], what: str, patience_s: float = AGENT_PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def mntrain() -> str:
    """The command, as installed beside this interpreter."""
    return str(Path(sys.executable).with_name("mntrain"))

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.trust.joining.token import PREFIX
from tests.agent.forking.python import forking_python
from tests.agent.known_python import give_asked_pythons
from tests.netlab import Host, HostProcess, Lab, missing, own_lab
from tests.netlab.terminal import type_on
from tests.waiting import until

_outlived: list[HostProcess] = []


CLUSTER = "lab"

ON_TWO_CORES = """
[failure]
# Three hosts share two cores with another lab: torchrun takes longer to say why a rank ended.
symptom_patience_s = 15.0
[watchdog]
# Rows of the fault table wait for it.
early_look_s = 15.0
"""
"""What agents of this lab are told by their machines' own configuration."""


@pytest.fixture(scope="module")
def lab(mntrain: str) -> Iterator[Lab]:
    """Three hosts on both networks, joined to a cluster that node3 made; skipped, with the reason,
    without root."""
    why_not = missing()
    if why_not is not None:
        pytest.skip(f"simulated cluster: {why_not}")
    with joined_lab(mntrain) as made:
        yield made


@contextmanager
def joined_lab(mntrain: str, prepare: Callable[[Host], object] = lambda _: None) -> Iterator[Lab]:
    """Three hosts of this process's own, joined to a cluster that node3 made.

    Args:
        prepare: of each host, before its agent is there.
    """
    with own_lab(3) as made:
        made_by = made.host("node3")
        token = invite(made_by, mntrain, "--uses", "3")
        for host in made.hosts:
            (host.home / ".config" / "mntrain").mkdir(parents=True, exist_ok=True)
            (host.home / ".config" / "mntrain" / "config.toml").write_text(ON_TWO_CORES)
            prepare(host)
            join(host, mntrain, token, *GIVEN)
        until(
            lambda: len(up(made_by, mntrain)) == 3,
            "three nodes to be up",
        )
        yield made


def ours(
    host: Host, mntrain: str, *words: str, cluster: str = CLUSTER, timeout_s: float = 60
) -> Any:
    """What a command answers on a host, as data."""
    del mntrain  # the host's terminal has it
    done = type_on(host, ["--cluster", cluster, "--json", *words], timeout_s=timeout_s)
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def invite(host: Host, mntrain: str, *words: str, cluster: str = CLUSTER) -> str:
    """A token; whoever comes with it is let in by a command that goes on on that host."""
    asked = [mntrain, "--cluster", cluster, "invite", *words]
    log = host.home / f"invite-{len(_outlived)}.log"
    start(host, asked, log)
    until(lambda: "agent join" in log.read_text(), f"{log} to say a token")
    return next(word for word in log.read_text().split() if word.startswith(PREFIX))


GIVEN = ("--link-capacity", "eth1=1gbit", "--link-capacity", "eth0=100mbit")


def join(host: Host, mntrain: str, token: str, *words: str) -> HostProcess:
    """An agent that joins with a token, and stays."""
    command = [mntrain, "agent", "join", "--token-file", token_file(host, token), *words]
    log = host.home / "agent.log"
    joins = lambda: log.read_text().count("has joined") if log.exists() else 0  # noqa: E731
    before = joins()
    state = host.home / ".local" / "state" / "mntrain" / "nodes" / host.name
    give_asked_pythons(state, (sys.executable, forking_python()))
    process = start(host, command, log)
    until(lambda: joins() > before, f"{log} to have joined")
    return process


def token_file(host: Host, token: str) -> str:
    """A token on a host, for a process without standard input."""
    path = host.home / f"token-{len(_outlived)}"
    path.touch(mode=0o600)
    path.write_text(token)
    return str(path)


def up(host: Host, mntrain: str, *, cluster: str = CLUSTER) -> list[str]:
    nodes = ours(host, mntrain, "nodes", cluster=cluster)
    return [node["node"] for node in nodes if node["liveness"] == "up"]


def start(
    host: Host, words: list[str], log: Path, *, environment: Mapping[str, str] | None = None
) -> HostProcess:
    """A process that lives on ``host`` until the lab is taken down."""
    with log.open("ab") as out:
        process = host.popen(
            words, environment=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    # The lab ends it, with the whole host.
    _outlived.append(process)
    return process


@pytest.fixture(scope="session")
def mntrain() -> str:
    """The command, as installed next to this interpreter."""
    return str(Path(sys.executable).with_name("mntrain"))

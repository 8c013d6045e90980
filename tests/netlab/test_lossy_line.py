"""Trials of a way that loses packets at random: each finds it, and none where none is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from jupyter_mntrain.doctor.pair import is_lossy
from jupyter_mntrain.model.records.doctor.paths import PathsAsked, PathTarget, PathTicket, PathTrial
from tests.netlab import DATA, Host, Lab, missing, own_lab

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=f"no lab: {missing()}"),
]

TRIALS = 20

LISTEN = """
import sys
import msgspec
from jupyter_mntrain.agent.machine.links import paths
from jupyter_mntrain.model.records.doctor.paths import PathListen
paths.LIFE_S = 600.0
listener = paths.PathListener(PathListen(address=sys.argv[1]), "receiver")
print(msgspec.json.encode(listener.ticket).decode(), flush=True)
sys.stdin.read()
"""

TRY = """
import sys
import msgspec
from jupyter_mntrain.agent.machine.links.paths import try_paths
from jupyter_mntrain.model.records.doctor.paths import PathsAsked
asked = msgspec.json.decode(sys.argv[1], type=PathsAsked)
found = [try_paths(asked, "sender", may_load=True)[0] for _ in range(int(sys.argv[2]))]
print(msgspec.json.encode(found).decode())
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with own_lab(2) as made:
        yield made


@pytest.mark.parametrize("share", ["0.05", "0.01"])
def test_what_a_line_loses_is_found_every_time(lab: Lab, share: str) -> None:
    sender, receiver = lab.hosts
    rule = ("INPUT", "-i", DATA, "-p", "tcp", "-m", "statistic", "--mode", "random")
    with receiver.firewall(*rule, "--probability", share, "-j", "DROP"):
        found = trials(sender, receiver)
    assert [one.load for one in found if not is_lost(one)] == []


def test_a_line_that_loses_nothing_is_never_said_to(lab: Lab) -> None:
    found = trials(*lab.hosts)
    assert {one.flow for one in found} == {"works"}
    assert [one.load for one in found if is_lost(one)] == []


def is_lost(trial: PathTrial) -> bool:
    return trial.flow == "lossy" or (trial.load is not None and is_lossy(trial.load))


def trials(sender: Host, receiver: Host) -> list[PathTrial]:
    listener = receiver.popen(
        [sys.executable, "-c", LISTEN, receiver.data_address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert listener.stdout is not None
        target = PathTarget(
            peer="receiver",
            interface=DATA,
            source=sender.data_address,
            address=receiver.data_address,
            ticket=msgspec.json.decode(listener.stdout.readline(), type=PathTicket),
        )
        asked = msgspec.json.encode(PathsAsked(targets=(target,))).decode()
        done = sender.run([sys.executable, "-c", TRY, asked, str(TRIALS)], timeout_s=300)
        assert done.returncode == 0, done.stderr
    finally:
        listener.kill()
        listener.communicate()
    return msgspec.convert(json.loads(done.stdout), list[PathTrial])

"""Faults of names and ports that a launch relies on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.search.case import Accept, Case, Channels, Truth
from tests.faults.search.mechanisms.mechanism import Drawn, Mechanism, Parameters, Setting
from tests.faults.search.mechanisms.truths import RUNNING, START_S, node_of
from tests.faults.search.vocabulary import (
    NO_INTERFACE,
    PORT_TAKEN,
)
from tests.netlab import DATA

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage


_LAUNCH: Channels = frozenset({"launch"})


def _names(setting: Setting) -> Drawn:
    wrong = setting.chance.choice(("silent", "own name elsewhere", "no names"))
    # A doctor may say that look-ups take long, or where the name leads: no job fails of either.
    said = {"silent": "no-answer", "own name elsewhere": "no-route"}.get(wrong)
    nodes = frozenset({setting.guilty})
    may = (Accept(frozenset({said}), nodes=nodes, channels=_LAUNCH),) if said else ()
    return Drawn(Truth(is_harmless=True, states=RUNNING, may=may), {"wrong": wrong})


@contextmanager
def _spoil_names(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    folder = Path("/etc/netns") / stage.host(case.guilty).namespace
    name = "resolv.conf" if parameters["wrong"] == "silent" else "hosts"
    before = (folder / name).read_text()
    text = {
        "silent": "nameserver 10.77.1.250\n",
        "own name elsewhere": before.replace(f" {case.guilty}", " x") + f"10.9.9.9 {case.guilty}\n",
        "no names": "127.0.0.1 localhost\n",
    }[parameters["wrong"]]
    (folder / name).write_text(text)
    yield
    (folder / name).write_text(before)


_THIEF = """
import os, socket, sys
words = sys.orig_argv
if "--node-rank=0" in words:
    options = dict(word[2:].split("=", 1) for word in words if word.startswith("--master"))
    sys.stolen = socket.socket()
    sys.stolen.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sys.stolen.bind((options["master-addr"], int(options["master-port"])))
    sys.stolen.listen()
"""


def _stolen(setting: Setting) -> Drawn:
    head = setting.layout.names[0]
    accepts = (Accept(PORT_TAKEN, nodes=frozenset({head})),)
    words = ["--env", "PYTHONPATH=/run/thief"]
    why = "the port is free until torchrun starts: code in its interpreter takes it just then"
    return Drawn(Truth(accepts, within_s=START_S), {"words": words}, unforeseeable=why)


@contextmanager
def _steal(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    folder = stage.host(case.layout.names[0]).home / "thief"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_THIEF)
    parameters["words"] = ["--env", f"PYTHONPATH={folder}"]
    yield


def _no_interface(setting: Setting) -> Drawn:
    accepts = node_of(setting, NO_INTERFACE | frozenset({"bad-spec", "node"}))
    return Drawn(Truth(accepts, within_s=START_S), {"words": []})


@contextmanager
def _name_interface(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    wrong = "eth9"
    members = [
        f"{name}:{count}:{wrong if name == case.guilty else DATA}"
        for name, count in case.layout.hosts
    ]
    parameters["words"] = [word for one in members for word in ("--member", one)]
    yield


NAMES: tuple[Mechanism, ...] = (
    Mechanism("wrong names", "network", _names, _spoil_names, ("launch",), weight=1),
    Mechanism("a stolen port", "network", _stolen, _steal, ("launch",), spoils=True),
    Mechanism(
        "a missing interface at launch",
        "network",
        _no_interface,
        _name_interface,
        ("launch",),
        weight=1,
    ),
)

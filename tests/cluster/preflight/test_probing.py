"""Preflight: what a node does not know yet is asked again."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from jupyter_mntrain.cluster.preflight.probing import MOST_TIMES, AskedNode, Preflight
from jupyter_mntrain.model.records.doctor.machine import MachineFacts, MachineQuestion
from tests.doctor.healthy import healthy

WAITS_S = 6.0
NODE = healthy().nodes[0]
assert NODE.facts is not None
KNOWN: MachineFacts = NODE.facts


class Time:
    """As a driver's clock, moved by hand."""

    def __init__(self) -> None:
        self.now_s = KNOWN.time_s

    def time(self) -> float:
        return self.now_s


class Node:
    """An agent whose interpreter is known after some questions, each of which takes a while."""

    def __init__(self, time: Time, *, silent: int, takes_s: float) -> None:
        self.time, self.silent, self.takes_s = time, silent, takes_s
        self.asked: list[MachineQuestion] = []

    async def machine_facts(self, question: MachineQuestion) -> MachineFacts:
        self.asked.append(question)
        self.time.now_s += self.takes_s
        is_known = len(self.asked) > self.silent
        return msgspec.structs.replace(KNOWN, loaded=KNOWN.loaded if is_known else None)


@pytest.mark.parametrize(
    ("silent", "takes_s", "waits_s", "times"),
    [
        (0, WAITS_S, WAITS_S, 1),
        (3, WAITS_S, WAITS_S, 4),
        (3, 0.1, WAITS_S, 1),  # an older agent does not wait
        (3, WAITS_S, None, 1),  # a launch does not wait for it
        (1000, WAITS_S, WAITS_S, 1 + MOST_TIMES),
    ],
)
def test_what_an_interpreter_loads_is_asked_until_it_is_known(
    silent: int, takes_s: float, waits_s: float | None, times: int
) -> None:
    time = Time()
    node = Node(time, silent=silent, takes_s=takes_s)
    preflight = Preflight(time)  # type: ignore[arg-type]
    wanted = AskedNode(NODE.info, node, None, is_fresh=True)  # type: ignore[arg-type]
    question = MachineQuestion(python="/opt/python", looks_up_names=True, patience_s=waits_s)
    told = asyncio.run(preflight.ask([wanted], question))
    assert len(node.asked) == times
    assert (told.nodes[0].facts == KNOWN) is (silent < times)
    assert {one.python for one in node.asked} == {"/opt/python"}

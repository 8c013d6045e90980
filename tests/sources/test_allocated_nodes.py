"""Allocated nodes whose scheduler has forgotten them: given back, or deleted by others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.sources.source import (
    Allocation,
    NodeSource,
    NodesRequest,
    Slot,
    SlotCommand,
    SourceOption,
)
from jupyter_mntrain.sources.allocated_nodes import AllocatedNodes

REQUEST = NodesRequest("slurm", 1, name="train")
RUNNING = Allocation("7", "slurm", "running", (Slot("slurm-0", "up"),), grants=1)


class Forgetful(NodeSource):
    """Knows nothing of an allocation that has ended."""

    name = title = "slurm"
    why_gone = Kind.SCHEDULER_REFUSED

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.has_it = True

    def options(self) -> tuple[SourceOption, ...]:
        return ()

    async def check(self, request: NodesRequest) -> None:
        """Takes all."""

    def render(self, request: NodesRequest, command: SlotCommand) -> str:
        return " ".join((request.name, *command.words))

    async def submit(self, request: NodesRequest, command: SlotCommand) -> Allocation:
        del request, command
        return RUNNING

    async def directory(self, allocation_id: str, request: NodesRequest) -> Path | None:
        del allocation_id, request
        return self._folder

    async def look(self, allocation_id: str, request: NodesRequest) -> Allocation:
        if self.has_it:
            return RUNNING
        told = Problem(kind=self.why_gone, cause=f"{allocation_id} is unknown", fix="ask again")
        slots = tuple(Slot(name) for name in request.slots)
        return Allocation(allocation_id, self.name, "unknown", slots, problem=told)

    async def save(self, allocation_id: str, request: NodesRequest) -> None:
        """Nothing runs."""

    async def give_back(self, allocation_id: str, request: NodesRequest) -> None:
        del allocation_id, request
        self.has_it = False


@pytest.fixture
def source(tmp_path: Path) -> Forgetful:
    return Forgetful(tmp_path)


@pytest.fixture
def nodes(source: Forgetful) -> Iterator[AllocatedNodes]:
    cluster: Any = SimpleNamespace(discovery=SimpleNamespace(follow=lambda _: None))
    made = AllocatedNodes(cast("Any", cluster), source, REQUEST, RUNNING)
    yield made
    made.close()


def test_what_was_given_back_has_ended_once_the_scheduler_forgets_it(
    nodes: AllocatedNodes,
) -> None:
    assert nodes.look() == ()
    nodes.give_back()
    assert [change.kind for change in nodes.look()] == ["ended"]
    assert nodes.allocation.is_over
    assert nodes.allocation.outcome == "canceled"
    assert nodes.look() == ()


def test_what_others_deleted_is_an_error(nodes: AllocatedNodes, source: Forgetful) -> None:
    source.has_it = False
    with pytest.raises(RefusedError):
        nodes.look()


def test_a_scheduler_that_does_not_answer_may_later(
    nodes: AllocatedNodes, source: Forgetful
) -> None:
    assert nodes.look() == ()
    nodes.give_back()
    source.why_gone = Kind.NO_SCHEDULER
    assert nodes.look() == ()
    assert not nodes.allocation.is_over

"""Agents in an allocation: where they are reached, and what they are given."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_mntrain.agent.main import run
from jupyter_mntrain.agent.membership.slot_place import SlotPlace
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.sources.slots import AllocationFile, read_slots, write_allocation
from tests.agent.live import LiveAgent
from tests.waiting import until

PREEMPTED = Problem(kind=Kind.PREEMPTED, cause="a job of higher priority needs it")
CARDS = Path(__file__).parents[1] / "programs" / "cards"


@pytest.mark.agents
def test_agents_of_one_machine_take_free_ports_and_tell_them(
    new_agent: Callable[..., LiveAgent], tmp_path: Path
) -> None:
    agents = [new_agent(slot=f"slurm-{number}") for number in range(2)]
    told = read_slots(tmp_path)
    assert [(one.slot, one.state) for one in told] == [("slurm-0", "up"), ("slurm-1", "up")]
    for agent, one in zip(agents, told, strict=True):
        info = agent.info()
        assert (info.name, info.node_id) == (one.slot, one.node_id)
        assert agent.where in one.addresses
        assert agent.port != 8765


@pytest.mark.agents
def test_a_slot_that_comes_back_is_the_same_node_at_another_port(
    new_agent: Callable[..., LiveAgent], tmp_path: Path
) -> None:
    agent = new_agent(slot="slurm-0")
    before = agent.info()
    agent.end()
    (gone,) = read_slots(tmp_path)
    assert (gone.state, gone.addresses) == ("gone", ())
    assert gone.problem is not None
    assert gone.problem.kind is Kind.NODES_TAKEN
    agent.start()
    assert agent.info().node_id == before.node_id
    until(lambda: read_slots(tmp_path)[0].state == "up", "the slot to be up again")


@pytest.mark.agents
def test_a_node_has_what_its_allocation_was_given(new_agent: Callable[..., LiveAgent]) -> None:
    given = {
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_ON_NODE": "1",
        "SLURM_MEM_PER_NODE": "512",
        "PYTHONPATH": str(CARDS),
    }
    everything = new_agent(
        slot="slurm-0",
        environment=given | {"CUDA_VISIBLE_DEVICES": "1"},
    ).info()
    inventory = everything.inventory
    assert (inventory.cpu_count, inventory.memory_total_bytes) == (1, 512 << 20)
    assert [(gpu.index, gpu.uuid) for gpu in inventory.gpus] == [(1, "GPU-1")]
    # The driver shows only the cards of the allocation, which the scheduler numbers like the
    # machine's.
    confined = given | {"CARD_COUNT": "2", "CARD_FIRST": "4", "CUDA_VISIBLE_DEVICES": "4,5"}
    inventory = new_agent(slot="slurm-1", environment=confined).info().inventory
    assert [gpu.uuid for gpu in inventory.gpus] == ["GPU-4", "GPU-5"]
    instance = given | {"CUDA_VISIBLE_DEVICES": "MIG-0"}
    inventory = new_agent(slot="slurm-2", environment=instance).info().inventory
    assert [gpu.uuid for gpu in inventory.gpus] == ["MIG-0"]


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (AllocationFile(), Kind.NODES_TAKEN),
        (AllocationFile(ends_s=1000.0), Kind.TIME_LIMIT),
        (AllocationFile(ends_s=1100.0), Kind.NODES_TAKEN),
        (
            AllocationFile(ends_s=1000.0, ending=Problem(kind=Kind.PREEMPTED, cause="")),
            Kind.PREEMPTED,
        ),
        (AllocationFile(gone={"slurm-0": Problem(kind=Kind.NODE, cause="")}), Kind.NODE),
        (AllocationFile(gone={"slurm-1": Problem(kind=Kind.NODE, cause="")}), Kind.NODES_TAKEN),
    ],
)
def test_why_an_agent_is_told_to_end(tmp_path: Path, told: AllocationFile, kind: Kind) -> None:
    write_allocation(tmp_path, told)
    place = SlotPlace(tmp_path / "slurm-0", NodeId("0" * 32), {})
    assert place.why_it_ends(1000.0).kind is kind


def test_the_end_of_an_allocation_may_stand_in_the_environment(tmp_path: Path) -> None:
    place = SlotPlace(tmp_path / "slurm-0", NodeId("0" * 32), {"SLURM_JOB_END_TIME": "1000"})
    assert place.why_it_ends(1000.0).kind is Kind.TIME_LIMIT
    assert place.why_it_ends(900.0).kind is Kind.NODES_TAKEN


def test_what_was_told_is_not_written_again(tmp_path: Path) -> None:
    (tmp_path / "slurm-0").mkdir()
    place = SlotPlace(tmp_path / "slurm-0", NodeId("0" * 32), {})
    place.tell("up", ("10.0.0.1:1",))
    path = tmp_path / "slurm-0" / "slot.json"
    os.utime(path, (1, 1))
    place.tell("up", ("10.0.0.1:1",))
    assert path.stat().st_mtime == 1
    place.tell("up", ("10.0.0.2:1",))
    assert path.stat().st_mtime > 1
    assert read_slots(tmp_path)[0].addresses == ("10.0.0.2:1",)


def test_an_allocation_that_is_not_there_is_not_waited_for(tmp_path: Path) -> None:
    assert run(["read", str(tmp_path / "gone")]) == SpecError.exit_code

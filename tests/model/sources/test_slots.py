"""Files of an allocation: what agents and sources tell each other."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.sources.slots import (
    SLOT_FILE,
    AllocationFile,
    SlotFile,
    read_allocation,
    read_slots,
    write_allocation,
    write_slot,
)


def slot(name: str, **changes: object) -> SlotFile:
    made = SlotFile(
        slot=name,
        node_id=NodeId("0" * 32),
        addresses=("10.0.0.1:40001",),
        hostname="node1",
        state="up",
        written_s=1.0,
    )
    return msgspec.structs.replace(made, **changes)


def put(directory: Path, one: SlotFile) -> None:
    (directory / one.slot).mkdir(exist_ok=True)
    write_slot(directory, one)


def test_slots_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        put(tmp_path, slot(f"slurm-{number}"))
    assert [one.slot for one in read_slots(tmp_path)] == ["slurm-0", "slurm-2", "slurm-10"]


def test_the_newest_words_of_an_agent_replace_the_older(tmp_path: Path) -> None:
    put(tmp_path, slot("slurm-0", state="joining"))
    put(tmp_path, slot("slurm-0", addresses=("10.0.0.7:40002",), hostname="node7"))
    (found,) = read_slots(tmp_path)
    assert (found.state, found.addresses, found.hostname) == ("up", ("10.0.0.7:40002",), "node7")


def test_what_is_no_slot_is_passed_over(tmp_path: Path) -> None:
    put(tmp_path, slot("slurm-0"))
    for name, content in (("half", b'{"slot": "half"'), ("other", b"[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / SLOT_FILE).write_bytes(content)
    (tmp_path / "logs").mkdir()
    assert [one.slot for one in read_slots(tmp_path)] == ["slurm-0"]
    assert read_slots(tmp_path / "nowhere") == ()


DOWN = Problem(kind=Kind.NODE, cause="its machine is down")
OVER = Problem(kind=Kind.NODE, cause="its time is up")


def test_a_slot_is_gone_with_its_machine_or_with_the_allocation(tmp_path: Path) -> None:
    assert read_allocation(tmp_path) == AllocationFile()
    write_allocation(tmp_path, AllocationFile(gone={"slurm-1": DOWN}))
    told = read_allocation(tmp_path)
    assert (told.why_gone("slurm-0"), told.why_gone("slurm-1")) == (None, DOWN)
    write_allocation(tmp_path, msgspec.structs.replace(told, ending=OVER))
    told = read_allocation(tmp_path)
    assert (told.why_gone("slurm-0"), told.why_gone("slurm-1")) == (OVER, DOWN)

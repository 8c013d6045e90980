from __future__ import annotations

import os
import sys

import pytest

from jupyter_mntrain.agent.attempt.topology import topology_line
from jupyter_mntrain.agent.machine import inventory, versions
from jupyter_mntrain.agent.machine.inventory import InventoryReader
from jupyter_mntrain.agent.machine.link_book import LinkBook
from jupyter_mntrain.agent.machine.versions import cuda_of, read_versions
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.records.job import Attempt, Placement
from jupyter_mntrain.model.records.node import Versions
from jupyter_mntrain.telemetry.gpus import GpuReader
from tests.standin.cards import CardError, Cards, install
from tests.wording import wording


def test_this_machine_is_read_as_it_is(tmp_path):
    inventory = InventoryReader(sys.executable, LinkBook(tmp_path / "links.json", {})).read()
    assert inventory.cpu_count == len(os.sched_getaffinity(0))
    assert inventory.cpu_model
    assert 0 < inventory.memory_available_bytes < inventory.memory_total_bytes
    assert inventory.gpus or inventory.gpu_note
    assert inventory.versions.python == sys.version.split()[0]
    assert inventory.versions.transformers


def test_only_gpus_that_the_agent_may_use_are_there_and_a_later_driver_counts(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-2")
    cards = Cards(uuids=("GPU-1", "GPU-2"))
    install(monkeypatch, cards)
    reader = InventoryReader(sys.executable, LinkBook(tmp_path / "links.json", {}))
    assert [gpu.index for gpu in reader.read().gpus] == [1]
    cards.trouble = CardError("Driver Not Loaded")
    reader.gpus = GpuReader(retry_s=0)
    before = reader.read()
    assert (before.gpus, before.versions.driver) == ((), None)
    cards.trouble = None
    assert len(reader.read().gpus) == 2
    assert reader.versions.driver == "570.1"


@pytest.mark.parametrize(
    ("torch", "word"),
    [("2.9.0+rocm6.4", "ROCm"), ("2.9.0+xpu", "XPU"), ("2.9.0+cu128", None), (None, None)],
)
def test_gpus_that_are_not_offered_are_named_by_what_torch_is_built_for(
    tmp_path, monkeypatch, torch, word
):
    built = Versions(mntrain="1", python="3.12.1", platform="x86_64 linux", torch=torch)
    monkeypatch.setattr(inventory, "read_versions", lambda *_: built)
    install(monkeypatch, Cards(uuids=()))
    found = InventoryReader(sys.executable, LinkBook(tmp_path / "links.json", {})).read()
    told = [one for one in ("ROCm", "XPU") if one in (found.gpu_note or "")]
    assert (found.gpus, told) == ((), [word] if word else [])
    assert found.gpu_note
    install(monkeypatch, Cards())
    found = InventoryReader(sys.executable, LinkBook(tmp_path / "links.json", {})).read()
    assert (len(found.gpus), found.gpu_note) == (1, None)


@pytest.mark.parametrize(
    ("torch", "runtime", "cuda"),
    [
        ("2.9.0+cu128", "12.8.90", "12.8"),
        ("2.9.0+cu130", None, "13.0"),
        ("2.9.0", "12.8.90", "12.8.90"),
        ("2.9.0+cpu", None, None),
        (None, None, None),
    ],
)
def test_the_cuda_version_is_the_one_torch_was_built_for(torch, runtime, cuda):
    assert cuda_of(torch, runtime) == cuda


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false", "/bin/true"])
def test_an_interpreter_that_is_none_is_named(python):
    with pytest.raises(SpecError, match=wording(f"--python {python} does not run")):
        read_versions(python, None)


@pytest.mark.wording
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("exec sleep 60", "no answer within 0.5 s"),
        ("echo 'broken environment' >&2; exit 3", "broken environment"),
        ("exit 3", "exit code 3"),
        ("echo hello", "its answer is no versions"),
    ],
)
def test_why_an_interpreter_does_not_run_is_said(tmp_path, monkeypatch, program, reason):
    monkeypatch.setattr(versions, "QUERY_TIMEOUT_S", 0.5)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    with pytest.raises(SpecError, match=f"does not run: {reason}"):
        read_versions(str(python), None)


def test_every_log_begins_with_who_runs_where():
    def place(node_rank: int, first: int, nproc: int, gpus: tuple[int, ...]) -> Placement:
        return Placement(
            node_id=NodeId(f"{node_rank:032x}"),
            node=f"node{node_rank + 1}",
            node_rank=node_rank,
            first_rank=Rank(first),
            nproc=nproc,
            gpus=gpus,
            interface="eth1",
            address=f"10.77.2.{node_rank + 1}",
            agent=(),
        )

    attempt = Attempt(
        number=2,
        placements=(place(0, 0, 1, (3,)), place(1, 1, 2, (0, 1))),
        master_address="10.77.2.1",
        master_port=29400,
        submitted_s=0.0,
    )
    assert topology_line(JobId("j-0123abcd"), attempt) == (
        "[mntrain] job j-0123abcd attempt 2: rank 0 on node1 (eth1 10.77.2.1, GPU 3); "
        "ranks 1-2 on node2 (eth1 10.77.2.2, GPUs 0, 1); rendezvous at 10.77.2.1:29400"
    )

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from jupyter_mntrain.agent.attempt.directory import topology_line
from jupyter_mntrain.agent.machine import inventory
from jupyter_mntrain.agent.machine.devices.device_book import DeviceBook
from jupyter_mntrain.agent.machine.inventory import InventoryReader
from jupyter_mntrain.agent.machine.links.link_book import LinkBook
from jupyter_mntrain.agent.machine.software import versions
from jupyter_mntrain.agent.machine.software.versions import Installed, cuda_of, read_installed
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.job import Attempt, Placement
from jupyter_mntrain.model.records.node import Versions
from jupyter_mntrain.plan.software.gpu_builds import VENDORS
from jupyter_mntrain.telemetry.gpus import Driver, GpuReader
from tests.standin.cards import CardError, Cards, install
from tests.wording import wording


def test_this_machine_is_read_as_it_is(tmp_path):
    inventory = InventoryReader(
        sys.executable, LinkBook(tmp_path / "links.json", {}), DeviceBook(tmp_path / "devices.json")
    ).read()
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
    reader = InventoryReader(
        sys.executable, LinkBook(tmp_path / "links.json", {}), DeviceBook(tmp_path / "devices.json")
    )
    assert [gpu.index for gpu in reader.read().gpus] == [1]
    cards.trouble = CardError("Driver Not Loaded")
    reader.gpus = GpuReader(retry_s=0)
    before = reader.read()
    assert (before.gpus, before.versions.driver) == ((), None)
    cards.trouble = None
    assert len(reader.read().gpus) == 2
    assert reader.versions.driver == "570.1"


def test_the_nccl_that_is_loaded_counts_once_it_is_known(tmp_path):
    loaded: list[LoadedSoftware] = []
    reader = InventoryReader(
        sys.executable,
        LinkBook(tmp_path / "links.json", {}),
        DeviceBook(tmp_path / "devices.json"),
        lambda: loaded[0] if loaded else None,
    )
    installed = reader.versions
    loaded[:] = [LoadedSoftware(python=sys.executable, error="ImportError: libc10.so")]
    assert reader.versions == installed
    loaded[:] = [LoadedSoftware(python=sys.executable, torch="2.13.0", nccl="2.99.1")]
    assert reader.read().versions == msgspec.structs.replace(installed, nccl="2.99.1")


@pytest.mark.parametrize(
    ("built_for", "word"),
    [("ROCm", "ROCm"), ("XPU", "XPU"), ("CUDA", None), (None, None)],
)
def test_gpus_that_are_not_offered_are_named_by_what_torch_is_built_for(
    tmp_path, monkeypatch, built_for, word
):
    built = Versions(mntrain="1", python="3.12.1", platform="x86_64 linux", built_for=built_for)
    installed = Installed(built, has_package=True, site_packages=tmp_path)
    monkeypatch.setattr(inventory, "read_installed", lambda *_: installed)
    install(monkeypatch, Cards(uuids=()))
    found = InventoryReader(
        sys.executable, LinkBook(tmp_path / "links.json", {}), DeviceBook(tmp_path / "devices.json")
    ).read()
    told = [one for one in ("ROCm", "XPU") if VENDORS[one] in (found.gpu_note or "")]
    assert (found.gpus, told) == ((), [word] if word else [])
    assert found.gpu_note
    install(monkeypatch, Cards())
    found = InventoryReader(
        sys.executable, LinkBook(tmp_path / "links.json", {}), DeviceBook(tmp_path / "devices.json")
    ).read()
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


@pytest.mark.parametrize(
    ("told", "cuda", "built_for"),
    [
        ("cuda = '13.0'", "13.0", "CUDA"),
        ("cuda = None\nhip = '6.4.43482'", None, "ROCm"),
        ("cuda = None\nhip = None\nxpu = '20250101'", None, "XPU"),
        ("cuda = None", None, None),
        ("import nothing_of_this_name", "12.8", "CUDA"),
    ],
)
def test_torch_says_whose_gpus_it_was_built_for(tmp_path, told, cuda, built_for):
    """Its own file is right where the version has no suffix; the suffix, where that is broken."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    python = str(tmp_path / "bin" / "python")
    packages = read_installed(python, None).site_packages
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").write_text("raise ImportError('imports no torch')")
    (packages / "torch" / "version.py").write_text(told)
    about = packages / "torch-2.9.0+cu128.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0+cu128\n")
    found = read_installed(python, Driver("570.1", "12.8")).versions
    assert (found.torch, found.cuda, found.built_for) == ("2.9.0+cu128", cuda, built_for)
    assert (found.driver, found.driver_cuda) == ("570.1", "12.8")


def test_whether_the_trainer_of_an_interpreter_can_compress_is_read(tmp_path):
    """One without the package runs the agent's."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    python = str(tmp_path / "bin" / "python")
    alone = read_installed(python, None)
    assert (alone.has_package, alone.versions.compresses) == (False, True)
    package = alone.site_packages / "jupyter_mntrain"
    (package / "recipe").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('nothing of it is imported')")
    about = alone.site_packages / "jupyter_mntrain-0.1.0.dist-info"
    about.mkdir()
    named = "Metadata-Version: 2.1\nName: jupyter-mntrain\nVersion: 0.1.0\n"
    (about / "METADATA").write_text(named)
    assert not read_installed(python, None).versions.compresses
    (package / "recipe" / "transfers.py").touch()
    assert read_installed(python, None).versions.compresses


def test_an_amd_gpu_is_named_where_there_is_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(inventory, "has_amd_gpu", lambda: True)
    install(monkeypatch, Cards(uuids=()))
    found = InventoryReader(
        sys.executable, LinkBook(tmp_path / "links.json", {}), DeviceBook(tmp_path / "devices.json")
    ).read()
    assert found.has_amd_gpu
    assert VENDORS["ROCm"] in (found.gpu_note or "")
    install(monkeypatch, Cards())
    beside = InventoryReader(
        sys.executable, LinkBook(tmp_path / "links.json", {}), DeviceBook(tmp_path / "devices.json")
    ).read()
    assert (len(beside.gpus), beside.gpu_note) == (1, None)


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false", "/bin/true"])
def test_an_interpreter_that_is_none_is_named(python):
    with pytest.raises(SpecError, match=wording(f"--python {python} does not run")):
        read_installed(python, None)


@pytest.mark.wording
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("exec sleep 60", "no answer within 0.5 s"),
        ("echo 'broken environment' >&2; exit 3", "broken environment"),
        ("exit 3", "exit code 3"),
        ("echo hello", "its answer contains no versions"),
    ],
)
def test_why_an_interpreter_does_not_run_is_said(tmp_path, monkeypatch, program, reason):
    monkeypatch.setattr(versions, "QUERY_TIMEOUT_S", 0.5)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    with pytest.raises(SpecError, match=f"does not run: {reason}"):
        read_installed(str(python), None)


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

"""Faults of one node that is unlike the others: its firmware, its slots, its versions."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.model.records.doctor.hardware import Firmware, FirmwareKind
from tests.doctor.faults.fault import Fault
from tests.doctor.faults.network import CARD
from tests.doctor.healthy import changed, loaded, with_gpus, with_hardware, with_inventory

H100 = "NVIDIA H100 80GB HBM3"


def with_firmware(
    case: Case, kind: FirmwareKind, device: str, model: str, usual: str, own: str
) -> Case:
    """All nodes have this device; muthur's has another firmware."""
    for at in range(len(case.nodes)):
        version = own if at == 1 else usual
        told = Firmware(kind=kind, device=device, model=model, version=version)
        case = with_hardware(case, at, firmware=(told,))
    return case


def with_fast_cards(case: Case) -> Case:
    """All nodes have a network card for 100 Gbit/s."""
    fast = msgspec.structs.replace(CARD, speed_mbit_per_s=100_000, most_mbit_per_s=100_000)
    for at in range(len(case.nodes)):
        case = with_hardware(case, at, cards=(fast,))
    return case


def with_places(case: Case, usual: tuple[int, ...], own: tuple[int, ...]) -> Case:
    """All nodes have GPUs on these NUMA nodes; muthur's are on others."""
    for at in range(len(case.nodes)):
        places = own if at == 1 else usual
        case = with_gpus(case, at, count=len(places))
        facts = case.nodes[at].facts
        assert facts is not None
        assert facts.hardware is not None
        pairs = zip(facts.hardware.gpus, places, strict=True)
        gpus = tuple(msgspec.structs.replace(gpu, numa_node=place) for gpu, place in pairs)
        case = with_hardware(case, at, gpus=gpus)
    return case


def with_nvlinks(case: Case, usual: int, own: int) -> Case:
    """All nodes have two GPUs with NVLinks; of muthur's, fewer are up."""
    case = with_places(case, (0, 0), (0, 0))
    for at, node in enumerate(case.nodes):
        assert node.facts is not None
        assert node.facts.hardware is not None
        up = own if at == 1 else usual
        gpus = tuple(msgspec.structs.replace(one, nvlinks=up) for one in node.facts.hardware.gpus)
        case = with_hardware(case, at, gpus=gpus)
    return case


def with_versions(case: Case, **own: str) -> Case:
    """Muthur has other versions."""
    known = case.nodes[1].info.inventory.versions
    return with_inventory(case, versions=msgspec.structs.replace(known, **own))


UNLIKE = (
    Fault(
        "firmware",
        "a GPU of one node has an older VBIOS",
        "slows",
        lambda case: with_firmware(case, "GPU", "GPU 0", H100, "96.00.89.00.01", "96.00.61.00.01"),
    ),
    Fault(
        "firmware",
        "an adapter of one node has an older firmware",
        "slows",
        lambda case: with_firmware(
            case, "adapter", "mlx5_0", "MT_0000000838", "28.39.1002", "28.36.1010"
        ),
    ),
    Fault(
        "firmware",
        "a network card of one node has an older firmware",
        "slows",
        lambda case: with_firmware(
            with_fast_cards(case), "network card", "eno1", "15b3:101d", "22.39.1002", "22.31.1014"
        ),
    ),
    Fault(
        "topology",
        "both GPUs of one node are attached to the same processor",
        "slows",
        lambda case: with_places(case, (0, 1), (0, 0)),
    ),
    Fault(
        "topology",
        "an NVLink of one node is down",
        "slows",
        lambda case: with_nvlinks(case, 4, 3),
    ),
    Fault(
        "firmware",
        "a GPU of one node has an older InfoROM",
        "slows",
        lambda case: with_firmware(
            case, "GPU", "GPU 0", f"{H100} (InfoROM)", "G520.0200.00.05", "G520.0200.00.03"
        ),
    ),
    Fault(
        "versions",
        "a node has another torch",
        "stops",
        lambda case: changed(
            with_versions(case, torch="2.9.1"),
            loaded=msgspec.structs.replace(loaded(), torch="2.9.1"),
        ),
    ),
    Fault(
        "versions",
        "a node has another Python",
        "stops",
        lambda case: with_versions(case, python="3.12.4"),
    ),
    Fault(
        "versions",
        "a node has an ARM processor",
        "stops",
        lambda case: with_versions(case, platform="aarch64 linux"),
    ),
)

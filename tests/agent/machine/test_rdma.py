"""InfiniBand and RoCE ports, read from a kernel's view that tests make."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.rdma import read_rdma_ports
from jupyter_mntrain.model.records.node import RdmaPort, RoceGid
from tests.wording import says

EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"
LINK_LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001"
ROCE = (
    (LINK_LOCAL, "IB/RoCE v1"),
    (LINK_LOCAL, "RoCE v2"),
    ("0000:0000:0000:0000:0000:ffff:0a4d:0201", "IB/RoCE v1"),
    ("0000:0000:0000:0000:0000:ffff:0a4d:0201", "RoCE v2"),
)


class Machine:
    """sysfs and device nodes of a machine with some adapters."""

    def __init__(self, root: Path) -> None:
        self.sysfs, self.dev = root / "sys", root / "dev"
        self.count = 0

    def add(
        self,
        device: str,
        *gids: tuple[str, str],
        link: str = "InfiniBand",
        state: str = "4: ACTIVE",
        is_node_there: bool = True,
    ) -> Path:
        """Add an adapter with one port. Returns its device node."""
        adapter = self.sysfs / "class" / "infiniband" / device
        port = adapter / "ports" / "1"
        (port / "gids").mkdir(parents=True)
        (port / "gid_attrs" / "types").mkdir(parents=True)
        (port / "link_layer").write_text(f"{link}\n")
        (port / "state").write_text(f"{state}\n")
        for index, (gid, kind) in enumerate(gids):
            (port / "gids" / str(index)).write_text(f"{gid}\n")
            if gid != EMPTY:  # the kernel refuses to read the type of an empty one
                (port / "gid_attrs" / "types" / str(index)).write_text(f"{kind}\n")
        name = f"uverbs{self.count}"
        self.count += 1
        (adapter / "device" / "infiniband_verbs" / name).mkdir(parents=True)
        node = self.dev / "infiniband" / name
        node.parent.mkdir(parents=True, exist_ok=True)
        if is_node_there:
            node.touch()
        return node

    def read(self, *, is_off: bool = False) -> tuple[RdmaPort, ...]:
        return read_rdma_ports(self.sysfs, self.dev, is_off=is_off)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_without_adapters_has_no_port(machine: Machine) -> None:
    assert machine.read() == ()


def test_every_rail_is_found_and_those_that_are_down_say_so(machine: Machine) -> None:
    for number in range(8):
        machine.add(f"mlx5_{number}", (LINK_LOCAL, "IB/RoCE v1"))
    machine.add("mlx5_8", (LINK_LOCAL, "IB/RoCE v1"), state="1: DOWN")
    ports = machine.read()
    assert [port.device for port in ports] == [f"mlx5_{number}" for number in range(9)]
    assert [port.state for port in ports] == ["ACTIVE"] * 8 + ["DOWN"]
    assert {(port.number, port.link, port.subnet, port.gids, port.obstacle) for port in ports} == {
        (1, "InfiniBand", "fe80:0000:0000:0000", (), None)
    }


def test_the_gid_of_a_roce_port_is_that_of_version_2_with_an_ipv4_address(machine: Machine) -> None:
    machine.add("mlx5_bond_0", *ROCE, link="Ethernet")
    (port,) = machine.read()
    assert (port.link, port.subnet) == ("RoCE", "")
    assert port.gids == (RoceGid(index=3, address="10.77.2.1"),)


def test_a_gap_in_the_table_of_gids_is_passed_over(machine: Machine) -> None:
    gap = [(EMPTY, "")] * 5
    machine.add("mlx5_0", *ROCE, *gap, *ROCE, *([(EMPTY, "")] * 200), link="Ethernet")
    (port,) = machine.read()
    assert [gid.index for gid in port.gids] == [3, 12]


def test_an_adapter_whose_device_node_a_container_lacks_is_known(machine: Machine) -> None:
    node = machine.add("mlx5_0", is_node_there=False)
    (port,) = machine.read()
    assert says(str(node), port.obstacle or "")
    node.touch()
    (port,) = machine.read()
    assert port.obstacle is None


def test_an_adapter_without_a_verbs_device_is_known(machine: Machine) -> None:
    machine.add("mlx5_0")
    verbs = machine.sysfs / "class" / "infiniband" / "mlx5_0" / "device" / "infiniband_verbs"
    (verbs / "uverbs0").rmdir()
    (port,) = machine.read()
    assert says("ib_uverbs", port.obstacle or "")


def test_adapters_that_nccl_is_told_not_to_use_say_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.add("mlx5_0", ("fe80:0000:0000:0000:0002:c903:0000:0001", ""))
    (port,) = machine.read(is_off=True)
    assert says("NCCL_IB_DISABLE=1", port.obstacle or "")
    assert machine.read()[0].obstacle is None

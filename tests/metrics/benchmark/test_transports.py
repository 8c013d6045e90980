"""Transports: read from lines as NCCL writes them, of several versions and of plugins."""

from __future__ import annotations

import pytest

from jupyter_mntrain.metrics.benchmark.transports import read_transport
from jupyter_mntrain.model.records.doctor.benchmark import Transport

TWO_RAILS = """
gpu-a3:47021:47088 [0] NCCL INFO Bootstrap : Using eth0:10.4.2.31<0>
gpu-a3:47021:47088 [0] NCCL INFO cudaDriverVersion 12040
gpu-a3:47021:47095 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.4.2.31<0>
gpu-a3:47021:47095 [0] NCCL INFO Using network IB
gpu-a3:47021:47095 [0] NCCL INFO Channel 00/24 :    0   1   2   3   4   5   6   7
gpu-a3:47021:47095 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/IB/0/GDRDMA
gpu-a3:47021:47095 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/1(3)/GDRDMA
gpu-a3:47021:47095 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
"""  # noqa: E501 - as NCCL writes it

FELL_BACK = """
hal:11:11 [0] NCCL INFO NET/IB : No device found.
hal:11:11 [0] NCCL INFO NET/Socket : Using [0]eth1:10.77.2.1<0>
[2026-05-05 06:16:47] hal:11:11 [0] NCCL INFO Initialized NET plugin Socket
[2026-05-05 06:16:47] hal:11:11 [0] NCCL INFO Assigned NET plugin Socket to comm
hal:11:11 [0] NCCL INFO Using network Socket
hal:11:11 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
"""

ONE_MACHINE = """
job-worker-0:5663:5809 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.4.51<0>
job-worker-0:5663:5809 [0] NCCL INFO Using network Socket
job-worker-0:5663:5809 [0] NCCL INFO Channel 04/0 : 0[0] -> 7[7] via P2P/CUMEM
job-worker-0:5663:5809 [0] NCCL INFO Channel 00 : 0[0] -> 4[4] via SHM/direct/direct comm 0x5 nRanks 08
"""  # noqa: E501 - as NCCL writes it

OLDER = """
10-90-43-152:120890:121560 [0] NCCL INFO NET/IB : Using [0]mlx5_bond_6:1/RoCE [RO]; OOB b0:10.1.1.1<0>
10-90-43-152:120890:121560 [0] NCCL INFO Using network IB
10-90-43-152:120890:121560 [0] NCCL INFO Channel 01 : 2[c7000] -> 0[87000] [receive] via NET/IB/0
"""  # noqa: E501 - as NCCL writes it

PLUGIN = """
hostname-test:987:1260 [7] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_2:1/IB [RO]; OOB e:10.0.0.1<0>
hostname-test:987:1260 [7] NCCL INFO Using network IBext_v8
hostname-test:987:1260 [7] NCCL INFO Channel 03/0 : 47[7] -> 39[7] [receive] via NET/IBext_v8/1
"""  # noqa: E501 - as NCCL writes it

EFA = """
worker-0:30:70 [4] NCCL INFO Using network AWS Libfabric
worker-0:30:70 [4] NCCL INFO Channel 00 : 1[101d0] -> 8[101c0] [send] via NET/AWS Libfabric/0/GDRDMA
"""


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (
            TWO_RAILS,
            Transport(
                network="IB",
                devices=("mlx5_0:1", "mlx5_1:1"),
                ways=("NET/IB/GDRDMA", "P2P/CUMEM"),
                rails=("mlx5_0:1", "mlx5_1:1"),
            ),
        ),
        (
            FELL_BACK,
            Transport(
                network="Socket",
                devices=("eth1",),
                ways=("NET/Socket",),
                rails=("eth1",),
                complaint="NET/IB : No device found.",
            ),
        ),
        (
            ONE_MACHINE,
            Transport(network="Socket", devices=("eth0",), ways=("P2P/CUMEM", "SHM")),
        ),
        (
            OLDER,
            Transport(
                network="IB",
                devices=("mlx5_bond_6:1",),
                ways=("NET/IB",),
                rails=("mlx5_bond_6:1",),
            ),
        ),
        (
            PLUGIN,
            Transport(
                network="IBext_v8",
                devices=("mlx5_0:1", "mlx5_2:1"),
                ways=("NET/IBext_v8",),
                rails=("mlx5_2:1",),
            ),
        ),
        (EFA, Transport(network="AWS Libfabric", ways=("NET/AWS Libfabric/GDRDMA",))),
        ("", Transport()),
        ("nothing of NCCL\n\x00 via NET/IB/0", Transport()),
    ],
    ids=["two-rails", "fell-back", "one-machine", "older", "plugin", "efa", "empty", "foreign"],
)
def test_what_nccl_says_is_read(log, found):
    assert read_transport(log) == found

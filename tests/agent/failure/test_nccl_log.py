"""NCCL's log: when it last said something, from lines as it prints them."""

from __future__ import annotations

import time

import pytest

from jupyter_mntrain.agent.failure.torchrun_log import last_said_s

WRITTEN_S = 99.0

TIMED = """\
NCCL version 2.27.3+cuda12.9
[2026-05-05 06:16:41] hal:1898:1898 [0] NCCL INFO Bootstrap: Using eth1:10.77.2.1<0>
[2026-05-05 06:16:44.125] hal:1898:1931 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0
step 1
"""
WARNED = """\
hal:1898:1931 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
[2026-05-05 06:17:02] hal:1898:1940 [0] misc/socket.cc:880 NCCL WARN socketProgressOpt: Call failed

"""
PLAIN = """\
hal:1898:1898 [0] NCCL INFO cudaDriverVersion 12090
hal:1898:1931 [-1] NCCL INFO comm 0x55d rank 0 nranks 2 - Init COMPLETE
"""


def local_s(text: str) -> float:
    return time.mktime(time.strptime(f"2026-05-05 {text}", "%Y-%m-%d %H:%M:%S"))


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        (TIMED, local_s("06:16:44")),
        (WARNED, local_s("06:17:02")),
        (PLAIN, WRITTEN_S),
        (f"{PLAIN}step 1\n", None),
        ("I said: NCCL INFO is nice\n", None),
        ("", None),
    ],
)
def test_the_time_of_its_last_line(text: str, expected_s: float | None) -> None:
    assert last_said_s(text.splitlines(), WRITTEN_S) == expected_s

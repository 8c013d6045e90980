"""Transports: what NCCL's log says about how a rank's messages travel. Pure.

The lines are those of ``init.cc``, ``net_ib.cc``, ``net_socket.cc`` and ``transport/*.cc``, with
``NCCL_DEBUG=INFO``.
"""

from __future__ import annotations

import re

from jupyter_mntrain.model.records.doctor.benchmark import Transport

_NETWORK = re.compile(r"NCCL INFO Using network (\S.*)")
_USING = re.compile(r"NCCL INFO NET/(IB|Socket) : Using (.*)")
_DEVICE = re.compile(r"\[(\d+)\]([\w.\-=]+(?::\d+(?=/))?)")
"""``[0]mlx5_0:1/RoCE``, ``[0]eth1:10.77.2.1<0>``."""

_WAY = re.compile(
    r"NCCL INFO Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\](?: \[(?:send|receive)\])? via (.+)"
)
_COMMUNICATOR = re.compile(r" comm 0x.*")
_NUMBER = re.compile(r"(\d+)(?:\(\d+\))?")
_COMPLAINT = re.compile(
    r"NCCL \w+ (.*(?:Failed to open libibverbs|NET/IB : No device found"
    r"|NET/IB : Unable to open device|ibv_\w+ failed).*)"
)


def read_transport(log: str) -> Transport:
    """Read the transport from one rank's NCCL log.

    Args:
        log: of NCCL; empty if it wrote none.
    """
    network = ""
    devices: dict[str, dict[int, str]] = {"IB": {}, "Socket": {}}
    ways: dict[str, None] = {}
    used: dict[int, None] = {}
    for line in log.splitlines():
        if found := _NETWORK.search(line):
            network = network or found[1].strip()
        elif found := _USING.search(line):
            devices[found[1]] |= {int(at): name for at, name in _DEVICE.findall(found[2])}
        elif found := _WAY.search(line):
            way, number = _way(_COMMUNICATOR.sub("", found[1]).strip())
            ways[way] = None
            if number is not None:
                used[number] = None
    # A plugin, such as HPC-X's IBext, says it in the words of NCCL's own InfiniBand.
    known = devices["Socket" if network == "Socket" else "IB"]
    complaint = _COMPLAINT.search(log)
    return Transport(
        network=network,
        devices=tuple(known.values()),
        ways=tuple(ways),
        rails=tuple(known[one] for one in sorted(used) if one in known),
        complaint=complaint[1].strip() if complaint and network == "Socket" else "",
    )


def _way(said: str) -> tuple[str, int | None]:
    """Split NCCL's name of a path into the kind of transport and the number of its device."""
    kind, *rest = said.split("/")
    if kind != "NET" or not rest:
        return ("/".join([kind, *rest[:1]]) if kind == "P2P" else kind), None
    number = _NUMBER.fullmatch(rest[1]) if rest[1:] else None
    more = [one for one in rest[2:] if one == "GDRDMA"]
    return "/".join([kind, rest[0], *more]), int(number[1]) if number else None

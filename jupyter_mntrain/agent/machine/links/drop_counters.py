"""Drop counters: packets that arrived and were not let in, and those that were not let out.

The kernel counts a packet when it arrives and again when a socket's protocol gets it. Between the
two is the firewall.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PROC = Path("/proc")

_OTHERWISE = ("InHdrErrors", "InAddrErrors", "ForwDatagrams", "InDiscards", "InUnknownProtos")
"""What else may become of a packet that arrives."""

_SYN_RECEIVED = "03"


def dropped_packets(proc: Path = PROC) -> int:
    """How many packets, since the machine started, arrived and became nothing else."""
    ip = _table(proc / "net" / "snmp", "Ip")
    gathered = ip.get("ReasmReqds", 0) - ip.get("ReasmOKs", 0)
    arrived = ip.get("InReceives", 0) - ip.get("InDelivers", 0)
    return arrived - gathered - sum(ip.get(name, 0) for name in _OTHERWISE)


def kept_packets(proc: Path = PROC) -> int:
    """How many packets that TCP had to send again were not let out, since the machine started."""
    return _table(proc / "net" / "netstat", "TcpExt").get("TCPRetransFail", 0)


def half_open(ports: frozenset[int], proc: Path = PROC) -> tuple[str, ...]:
    """The addresses whose connections to a port were answered, and that said nothing to that."""
    try:
        lines = (proc / "net" / "tcp").read_text().splitlines()[1:]
    except OSError:
        return ()
    # sl local_address rem_address st …: 0: 0100007F:1F90 0200007F:A1B2 03 …
    rows = [words[1:4] for line in lines if len(words := line.split()) > 3]
    found = {
        _address(remote.partition(":")[0])
        for local, remote, state in rows
        if state == _SYN_RECEIVED and int(local.partition(":")[2], 16) in ports
    }
    return tuple(sorted(found))


def port_range(proc: Path = PROC) -> tuple[int, int] | None:
    """First and last port that the kernel chooses from; Gloo, NCCL and torchrun have it choose."""
    try:
        first, last = (proc / "sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(first), int(last)
    except (OSError, ValueError):
        return None


def _address(text: str) -> str:
    """Of four bytes in hexadecimal, in the order of little-endian machines."""
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(text)))


def _table(path: Path, name: str) -> Mapping[str, int]:
    """The counters of a protocol: a line of names, and below it one of numbers."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    rows = [line.split()[1:] for line in lines if line.startswith(f"{name}:")]
    return dict(zip(rows[0], map(int, rows[1]), strict=False)) if len(rows) == 2 else {}

"""Dialing: which of two nodes connects to the other: a firewall on the other way is harmless.

Source: gloo/transport/tcp/device.cc, ``Device::isInitiator``.
"""

from __future__ import annotations

import ipaddress

from jupyter_mntrain.model.records.doctor.paths import PathTrial


def is_dialed(trial: PathTrial, head: str, *, is_gloo: bool) -> bool:
    """Whether a job connects this way: everybody to the head's store; Gloo from the higher address
    to the lower one; NCCL both ways.

    Args:
        head: name of the node with rank 0.
        is_gloo: whether that is all that connects the ranks.
    """
    if not is_gloo or trial.peer == head:
        return True
    return ipaddress.IPv4Address(trial.source) > ipaddress.IPv4Address(trial.address)

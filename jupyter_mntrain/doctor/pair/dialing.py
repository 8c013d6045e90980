"""Dialing: which of two nodes connects to the other: a firewall on the other way is harmless.

Source: gloo/transport/tcp/device.cc, ``Device::isInitiator``.
"""

from __future__ import annotations

import ipaddress

from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.model.records.doctor.paths import PathTrial


def is_dialed(case: Case, trial: PathTrial) -> bool:
    """Whether the job ahead connects this way: everybody to the head's store; Gloo from the higher
    address to the lower one; NCCL both ways. Some job may connect any way.
    """
    job = case.job
    if job is None or not job.is_gloo or trial.peer == job.head:
        return True
    return ipaddress.IPv4Address(trial.source) > ipaddress.IPv4Address(trial.address)

"""Known speeds: of devices and links as a job had them, instead of what nodes report of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jupyter_mntrain.model.records.plan import DeviceSpeed, LinkSpeed


class KnownSpeeds(NamedTuple):
    """Speeds where a job has measured them.

    Args:
        devices: by node and device, as a plan names them; of several ranks on one, the slowest.
        links: by the nodes of sender and receiver; of several ranks, the slowest.
    """

    devices: Mapping[tuple[str, str], DeviceSpeed] = {}
    links: Mapping[tuple[str, str], LinkSpeed] = {}


NOTHING = KnownSpeeds()

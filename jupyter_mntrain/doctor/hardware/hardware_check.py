"""Hardware check: the base class of checks of a node's hardware, and words that they share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from jupyter_mntrain.doctor.check import Examined, NodeCheck
from jupyter_mntrain.doctor.finding import Finding
from jupyter_mntrain.model.records.doctor.hardware import GpuSetup, Hardware
from jupyter_mntrain.model.records.doctor.machine import MachineFacts
from jupyter_mntrain.model.records.evidence import GpuHealth

Card = TypeVar("Card", GpuHealth, GpuSetup)


class HardwareCheck(NodeCheck):
    """A check of the hardware of each node by itself."""

    def look(self, node: Examined, facts: MachineFacts) -> Finding | None:
        if facts.hardware is None:
            return self.unknown(node, "its agent did not tell")
        return self.inspect(node, facts, facts.hardware)

    @abstractmethod
    def inspect(self, node: Examined, facts: MachineFacts, hardware: Hardware) -> Finding | None:
        """What there is to say of a node; ``None`` if it does not concern it."""


def chosen(node: Examined, cards: Sequence[Card]) -> list[Card]:
    """The GPUs that a job would use; without a job all of the node."""
    if node.participant is None:
        return list(cards)
    return [one for one in cards if one.index in node.participant.gpus]

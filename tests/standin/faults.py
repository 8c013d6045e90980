"""Faults of a scripted agent: what it does with a request instead of answering it."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_mntrain.model.failure.kinds import Kind


@dataclass
class Refuse:
    """Say no and do nothing."""

    cause: str = "not today"
    kind: Kind = Kind.REFUSED
    status: int = 409
    fix: str = "come back tomorrow"


@dataclass
class LoseReply:
    """Do it, then break the connection: the driver cannot know."""


@dataclass
class LoseRequest:
    """Break the connection without having done anything."""


@dataclass
class Slow:
    seconds: float


@dataclass
class Hang:
    """Never answer."""


Fault = Refuse | LoseReply | LoseRequest | Slow | Hang


class ScriptedRefusalError(Exception):
    def __init__(self, fault: Refuse) -> None:
        self.fault = fault

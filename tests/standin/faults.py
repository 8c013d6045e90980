"""Faults of a scripted agent: what it does with a request instead of answering it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

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
class Held:
    """Do it only when the test releases it."""

    released: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Hang:
    """Never answer."""


Fault = Refuse | LoseReply | LoseRequest | Slow | Held | Hang


class ScriptedRefusalError(Exception):
    def __init__(self, fault: Refuse) -> None:
        self.fault = fault

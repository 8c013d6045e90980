"""Limits of the fault tests, and what jobs of theirs run on."""

from __future__ import annotations

PATIENCE_S = 180.0
"""For a machine that is busy with other work; each row says itself after how long it is late."""

LOST_WITHIN_S = 12.0
"""An agent that says nothing is lost after five seconds."""

STARTED_WITHIN_S = 150.0
"""What is known at a start: torch and transformers imported by two ranks on two cores."""

BOTH = ("--member", "node1:1", "--member", "node2:1")

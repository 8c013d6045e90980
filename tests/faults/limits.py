"""Limits of the fault tests."""

from __future__ import annotations

PATIENCE_S = 180.0
"""For a machine that is busy with other work; each row says itself after how long it is late."""

LOST_WITHIN_S = 12.0
"""An agent that says nothing is lost after five seconds."""

"""Quiet node: finds the node whose NCCL log stopped first. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_mntrain.model.records.job import PartStatus

LEAD_S = 3.0
"""NCCL's log on one node must stop this long before the others' to be told: its lines have whole
seconds, and clocks of machines differ."""


def first_quiet(parts: Iterable[PartStatus], since_s: float) -> str:
    """Say which node's NCCL log stopped first, if another node's continued after the last progress;
    empty otherwise.

    Lines from before that, when NCCL connected, do not explain a stall.
    """
    said = [
        (part.evidence.nccl_s, part.node)
        for part in parts
        if part.evidence is not None and part.evidence.nccl_s is not None
    ]
    if len(said) < 2:
        return ""
    (first_s, first), (next_s, other), *_ = sorted(said)
    if next_s < since_s or next_s - first_s < LEAD_S:
        return ""
    return f"NCCL's log on {first} stopped first, {next_s - first_s:.0f} s before that on {other}"

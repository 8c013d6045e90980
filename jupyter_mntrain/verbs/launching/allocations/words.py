"""Allocations as text: the request, why it waits, and what was granted."""

from __future__ import annotations

from rich.text import Text

from jupyter_mntrain.model.sources.source import Allocation, Waiting
from jupyter_mntrain.show import formats


def called(allocation: Allocation) -> str:
    """Name an allocation in a sentence; one in the user's own job has the id of job and step."""
    job, _, step = allocation.id.partition("/")
    return f"its step in job {job}" if step else f"job {job}"


def asked_line(title: str, allocation: Allocation, cluster: str = "") -> Text:
    """Say what was requested, and under which number.

    Args:
        title: of the source.
        cluster: of the nodes, where nobody waits for them here.
    """
    nodes = formats.plural(len(allocation.slots), "node")
    rest = f"; they form cluster {cluster}" if cluster else "; Ctrl-C gives them back"
    name = called(allocation).removeprefix("its ")
    return Text.assemble(f"asked {title} for {nodes}: ", (name, "bold"), (rest, "dim"))


def waiting_line(waiting: Waiting, now_s: float) -> Text:
    """Say why an allocation waits, in words and in the scheduler's, and until when if known."""
    text = Text.assemble(("… ", "yellow"), f"waiting: {waiting.reason.cause}")
    if waiting.word not in ("", "None"):
        text.append(f" ({waiting.word})", "dim")
    if (forecast_s := waiting.forecast_s(now_s)) is not None:
        text.append(f"; expected to start in {formats.duration(forecast_s)}")
    if waiting.reason.fix:
        text.append(f" {waiting.reason.fix_line}")
    return text


def granted_line(allocation: Allocation) -> Text:
    """Name the machines that were granted."""
    hosts = ", ".join(slot.host or slot.name for slot in allocation.slots)
    return Text.assemble(("✓ ", "green"), f"granted: {hosts}; their agents start")

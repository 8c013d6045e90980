"""Liveness: up, suspect or lost, from how long a node has been silent. Pure."""

from __future__ import annotations

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import LOST_AFTER_S, SUSPECT_AFTER_S
from jupyter_mntrain.model.records.node_view import Liveness

CONNECT_S = tunables.seconds("cluster.connect_s")

PROBE_TIMEOUT_S = tunables.seconds("liveness.probe_timeout_s")

PROBE_EVERY_S = tunables.seconds("liveness.probe_interval_s")


def judge(
    silence_s: float,
    *,
    was_heard: bool,
    is_unanswered: bool,
    said_goodbye: bool = False,
    lost_after_s: float = LOST_AFTER_S,
) -> Liveness:
    """Judge a node's liveness.

    Args:
        silence_s: since its last message, or since we began to listen if there was none.
        was_heard: whether it has sent anything.
        is_unanswered: whether the newest probe failed. Silence alone proves nothing: the stream
            may be stuck, or the node's machine overloaded.
        said_goodbye: whether its last message was a goodbye.
        lost_after_s: how long it may be silent.
    """
    if said_goodbye:
        return "lost"
    if was_heard and silence_s < SUSPECT_AFTER_S:
        return "up"
    if is_unanswered and silence_s >= lost_after_s:
        return "lost"
    return "suspect" if was_heard else "connecting"


def wants_probe(silence_s: float, since_probe_s: float | None) -> bool:
    """Whether to probe a node now.

    Args:
        silence_s: since its last message.
        since_probe_s: since the last probe ended; ``None`` = none during this silence.
    """
    if silence_s < SUSPECT_AFTER_S:
        return False
    return since_probe_s is None or since_probe_s >= PROBE_EVERY_S


def forgiven(gap_s: float, tick_s: float) -> float:
    """The part of a node's silence during which this process itself did not run.

    A suspended laptop, or a kernel that holds the interpreter lock, receives nothing.
    """
    return gap_s - tick_s if gap_s > 4 * tick_s else 0.0

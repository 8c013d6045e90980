"""Groups of kinds: what code decides by, where several kinds mean the same to it."""

from __future__ import annotations

from jupyter_mntrain.model.failure.kinds import Kind

SILENCES: frozenset[Kind] = frozenset(
    {
        Kind.CONNECTION_REFUSED,
        Kind.NO_ANSWER,
        Kind.SLOW_TO_ANSWER,
        Kind.UNREACHABLE,
        Kind.BROKEN_OFF,
        Kind.NOT_AN_AGENT,
        Kind.NOT_JOINED,
        Kind.WRONG_CLUSTER,
        Kind.OTHER_AUTHORITY,
        Kind.REVOKED,
        Kind.EXPIRED,
        Kind.CLOCK_OFF,
        Kind.WRONG_NODE,
        Kind.OTHER_PROTOCOL,
    }
)
"""The node could not be reached: the problem is not its own answer."""

ANSWERS: frozenset[Kind] = SILENCES - {
    Kind.CONNECTION_REFUSED,
    Kind.NO_ANSWER,
    Kind.SLOW_TO_ANSWER,
    Kind.UNREACHABLE,
    Kind.BROKEN_OFF,
}
"""Something answered, though not as this cluster's node."""

PASSING: frozenset[Kind] = frozenset({Kind.DRAINED, Kind.OUT_OF_HOURS})
"""The node takes jobs again later: one that waits in the queue may be placed on it."""

MAYBE_DONE: frozenset[Kind] = frozenset(
    {Kind.NO_ANSWER, Kind.SLOW_TO_ANSWER, Kind.BROKEN_OFF, Kind.SILENT}
)
"""The agent may have acted on the request. Requests are idempotent: repeat it."""

USELESS_TO_REPEAT: frozenset[Kind] = frozenset({Kind.LOSS_NAN, Kind.LOSS_DIVERGED})
"""The next attempt would do the same: it computes the same steps from the same checkpoint."""

OF_THE_SCRIPT: frozenset[Kind] = frozenset(
    {
        Kind.EXCEPTION,
        Kind.NO_MODULE,
        Kind.PACKAGE_CONFLICT,
        Kind.NO_SHARED_LIBRARY,
        Kind.NO_PROGRAM,
        Kind.OTHER_MODEL,
        Kind.PATH_TOO_LONG,
        Kind.BAD_COMMAND,
    }
)
"""The script, or what is installed for it: what fails so twice in one line fails again."""

SLOWNESS: frozenset[Kind] = frozenset(
    {Kind.SLOW_RANK, Kind.LINK_SLOW, Kind.SLOW_DISK, Kind.SLOW_LOADER, Kind.SLOW_JOB}
)
"""The job runs, slower than before."""

SYMPTOMS: frozenset[Kind] = frozenset({Kind.CONNECTION_LOST, Kind.TIMED_OUT})
"""Reported by a rank that lost its peer: the cause is elsewhere."""

TAKEN: frozenset[Kind] = frozenset({Kind.TIME_LIMIT, Kind.PREEMPTED, Kind.NODES_TAKEN})
"""A scheduler took the node back."""

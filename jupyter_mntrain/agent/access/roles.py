"""Roles: which certificate may send which request. What is not in this table is refused to all.

Routes limit a node further: it may act only on jobs that a driver has placed on both nodes.
"""

from __future__ import annotations

from jupyter_mntrain.model.api import Route
from jupyter_mntrain.trust.certificates import Role

Roles = frozenset[Role]

_DRIVERS: Roles = frozenset({"driver"})
_WATCHING: Roles = frozenset({"driver", "viewer"})
_GANG: Roles = frozenset({"driver", "node"})
_ALL: Roles = frozenset({"driver", "viewer", "node"})

MAY: dict[tuple[Route, str], Roles] = {
    (Route.NODE, "GET"): _WATCHING,
    (Route.DESCRIPTION, "GET"): _DRIVERS,
    (Route.WORKPLACE, "POST"): _DRIVERS,
    (Route.FACTS, "POST"): _DRIVERS,
    (Route.SCRIPT, "POST"): _DRIVERS,
    (Route.PATHS_LISTEN, "POST"): _DRIVERS,
    (Route.PATHS_TRY, "POST"): _DRIVERS,
    (Route.PATHS_END, "POST"): _DRIVERS,
    (Route.STREAM, "GET"): _WATCHING,
    (Route.HISTORY, "GET"): _WATCHING,
    (Route.LEASES, "POST"): _GANG,
    (Route.LEASE, "DELETE"): _GANG,
    (Route.PORT, "GET"): _DRIVERS,
    (Route.BLOBS, "POST"): _DRIVERS,
    (Route.BLOBS, "PUT"): _DRIVERS,
    (Route.BLOB, "PUT"): _DRIVERS,
    (Route.BLOB, "GET"): _DRIVERS,
    (Route.MANIFEST, "POST"): _DRIVERS,
    (Route.TRANSFERS, "POST"): _DRIVERS,
    (Route.TRANSFER, "PUT"): _DRIVERS,
    (Route.PIECE, "GET"): _GANG,
    (Route.PIECE, "PUT"): _DRIVERS,
    (Route.PIECE, "POST"): _DRIVERS,
    (Route.SPACE, "GET"): _DRIVERS,
    (Route.SPACE, "POST"): _DRIVERS,
    (Route.JOBS, "GET"): _WATCHING,
    (Route.JOB, "GET"): _ALL,
    (Route.JOB, "PUT"): _DRIVERS,
    (Route.SPEC, "GET"): _WATCHING,
    (Route.DELETION, "GET"): _WATCHING,
    (Route.DELETION, "DELETE"): _DRIVERS,
    (Route.LABEL, "PUT"): _DRIVERS,
    (Route.ATTEMPT, "PUT"): _GANG,
    (Route.STOP, "POST"): _GANG,
    (Route.JOURNAL, "GET"): _WATCHING,
    (Route.SAMPLES, "GET"): _WATCHING,
    (Route.LOG, "GET"): _WATCHING,
    (Route.LOG_TIMES, "GET"): _WATCHING,
    (Route.KILL_RANK, "POST"): _DRIVERS,
    (Route.SAVE, "POST"): _DRIVERS,
    (Route.SETTINGS, "POST"): _DRIVERS,
    (Route.CHAT, "POST"): _DRIVERS,
    (Route.CHECKPOINTS, "GET"): _WATCHING,
    (Route.CHECKPOINTS, "POST"): _DRIVERS,
    (Route.CHECKPOINTS_AT, "GET"): _DRIVERS,
    (Route.JOB_FILES, "GET"): _DRIVERS,
    (Route.JOB_FILES, "POST"): _DRIVERS,
    (Route.STACKS, "POST"): _DRIVERS,
    (Route.PROBE_LEASE, "POST"): _DRIVERS,
    (Route.PROBE_LISTEN, "POST"): _GANG,
    (Route.PROBE_SEND, "POST"): _DRIVERS,
    (Route.PROBE_DEVICES, "POST"): _DRIVERS,
    (Route.BENCHED, "PUT"): _DRIVERS,
    (Route.TRUST, "GET"): _WATCHING,
    (Route.TRUST, "PUT"): _WATCHING,
}
"""``TRUST`` carries only what the authority has signed, so anybody may bring it."""

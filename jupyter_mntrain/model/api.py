"""Agent API: routes and messages between drivers and agents. Bodies are JSON, streams NDJSON.

======  =========================================  ==============================================
verb    path                                       body → answer
======  =========================================  ==============================================
GET     /v1/node                                   → NodeInfo
GET     /v1/stream                                 → NDJSON of StreamMessage: Hello, then Beat/s
POST    /v1/leases                                 LeaseRequest → LeaseGrant; repeat = renew
DELETE  /v1/leases/{job}/{attempt}                 → {}
GET     /v1/jobs                                   → [JobRecord]
GET     /v1/jobs/{job}                             → JobRecord (newest attempt)
PUT     /v1/jobs/{job}                             StartRequest of attempt 0 → JobRecord: it waits
                                                     here until its head can start it everywhere
PUT     /v1/jobs/{job}/attempts/{attempt}          StartRequest → JobRecord; repeat = no-op
POST    /v1/jobs/{job}/stop                        StopRequest → JobRecord
GET     /v1/jobs/{job}/journal?since=&follow=      → NDJSON of JournalLine with seq > since
GET     /v1/jobs/{job}/log?offset=&limit=          → bytes; headers Mntrain-Log-Size and
                                                     Mntrain-Log-Offset; offset < 0 counts from the
                                                     end
POST    /v1/jobs/{job}/save                        SaveRequest → JobRecord; of the head only
POST    /v1/jobs/{job}/stacks                      → [RankStack], of the ranks that live here
GET     /v1/port/{port}?interface=                 → PortStatus, on that interface's address
GET     /v1/trust                                  → TrustNews, what drivers left here
PUT     /v1/trust                                  TrustNews → {}; what is newer is kept
POST    /v1/probe/listen                           ProbeListen → ProbeTicket
POST    /v1/probe/send                             ProbeSend → Capacity
======  =========================================  ==============================================

All of it is TLS with a certificate of the cluster on both sides. Drivers may ask for anything. A
node may ask other nodes for ``POST /v1/probe/listen``, for the record and the stop of a job that
both take part in, and, as the head of a job that may be restarted, for the leases and the start of
its next attempt, exactly as a driver has deposited it; for anything else it gets 403. Before it has
joined, an agent answers only :mod:`jupyter_mntrain.trust.joining.messages`. A refusal is 4xx with a
:class:`~jupyter_mntrain.model.failure.problem.Problem`. Every request that changes something is
idempotent by job id and attempt number: repeating it, or its arriving late, changes nothing.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.job import Attempt, JobRecord, JobSpec
from jupyter_mntrain.model.records.node import Beat, NodeInfo


class Route(enum.StrEnum):
    """The table above, for both sides: ``format`` with values is a client's path, ``format`` with
    patterns is a server's.
    """

    NODE = "/v1/node"
    STREAM = "/v1/stream"
    LEASES = "/v1/leases"
    LEASE = "/v1/leases/{job_id}/{attempt}"
    JOBS = "/v1/jobs"
    JOB = "/v1/jobs/{job_id}"
    ATTEMPT = "/v1/jobs/{job_id}/attempts/{attempt}"
    STOP = "/v1/jobs/{job_id}/stop"
    JOURNAL = "/v1/jobs/{job_id}/journal"
    LOG = "/v1/jobs/{job_id}/log"
    SAVE = "/v1/jobs/{job_id}/save"
    STACKS = "/v1/jobs/{job_id}/stacks"
    PORT = "/v1/port/{port}"
    TRUST = "/v1/trust"
    PROBE_LISTEN = "/v1/probe/listen"
    PROBE_SEND = "/v1/probe/send"
    JOIN = "/v1/join"


PROTOCOL = 2
"""1 was without certificates. Raised when an agent could no longer serve an older driver."""

DEFAULT_PORT = 8765
LAST_PORT = 65535
STOP_GRACE_S = tunables.seconds("keeper.stop_grace_s")
LONGEST_GRACE_S = 3600.0
SERVICE_TYPE = "_mntrain._tcp.local."
LOG_SIZE_HEADER = "Mntrain-Log-Size"
LOG_OFFSET_HEADER = "Mntrain-Log-Offset"
"""Where the bytes that are answered begin: later than asked for where a long log was trimmed."""

DEFAULT_CLUSTER = "default"

LEASE_EXPIRY_S = tunables.seconds("launch.lease_expiry_s")

BEAT_INTERVAL_S = tunables.seconds("liveness.beat_interval_s")
SUSPECT_AFTER_S = tunables.seconds("liveness.suspect_after_s")
LOST_AFTER_S = tunables.seconds("liveness.lost_after_s")


class LeaseRequest(Record, frozen=True):
    """Promise me these, all or none.

    Args:
        ranks: processes to be started here.
        gpus: device indices; empty = none needed.
        interface: name; its IPv4 address comes back in the grant.
        hold_port: 0 = any free port, > 0 = exactly this one, ``None`` = this is not the head.
    """

    job_id: JobId
    attempt: int
    ranks: int
    gpus: tuple[int, ...] = ()
    interface: str | None = None
    hold_port: int | None = None
    expires_in_s: float = LEASE_EXPIRY_S


class LeaseGrant(Record, frozen=True):
    address: str
    """IPv4 address of the interface, without prefix length."""
    port: int | None
    expires_s: float


class StartRequest(Record, frozen=True):
    """Start your part of this attempt; the lease must be yours already.

    Args:
        sent_s: Unix time by the sender's clock, by which all parts tell their times.
    """

    job_id: JobId
    spec: JobSpec
    attempt: Attempt
    submitted_by: str = ""
    sent_s: float | None = None


class StopRequest(Record, frozen=True):
    """End your part. ``grace_s`` is how long torchrun may take before everything is killed."""

    reason: str
    grace_s: float = STOP_GRACE_S
    attempt: int | None = None


class SaveRequest(Record, frozen=True):
    """Have all ranks save a checkpoint after the step they are at.

    Args:
        key: of this wish: the same one again is the same wish.
        attempt: that is meant.
        is_last: end after it.
        reason: why it ends, for people.
    """

    key: Annotated[str, Meta(min_length=1, max_length=64)]
    attempt: int
    is_last: bool = False
    reason: str = ""


class PortStatus(Record, frozen=True):
    """Whether a rendezvous could be held on a port now.

    Args:
        address: where was looked.
        problem: why it cannot be had; ``None`` if it can.
        next_free: the nearest higher port that can; ``None`` if there is none close by.
    """

    port: int
    address: str
    problem: Problem | None = None
    next_free: int | None = None


class ProbeListen(Record, frozen=True):
    """Open a one-shot sink on ``address`` for a bandwidth probe."""

    address: str


class ProbeTicket(Record, frozen=True):
    port: int
    token: str


class ProbeSend(Record, frozen=True):
    """Send to another agent's sink for ``seconds`` from ``source_address``; keep the result."""

    interface: str
    source_address: str
    address: str
    port: int
    token: str
    peer: str
    seconds: float = 1.0


class Hello(Record, frozen=True, tag_field="kind", tag="hello"):
    """First message of every stream: the whole state, so that a reader needs nothing else."""

    node: NodeInfo
    jobs: tuple[JobRecord, ...]


class NodeChanged(Record, frozen=True, tag_field="kind", tag="node"):
    node: NodeInfo


class JobChanged(Record, frozen=True, tag_field="kind", tag="job"):
    record: JobRecord


class Goodbye(Record, frozen=True, tag_field="kind", tag="goodbye"):
    """The agent is shutting down in order; jobs go on under their keepers."""

    reason: str


StreamMessage = Hello | NodeChanged | JobChanged | Beat | Goodbye
stream_decoder = msgspec.json.Decoder(StreamMessage)


class TrustNews(Record, frozen=True):
    """What is signed by the cluster's authority and should get around; PEM.

    Args:
        revocations: the list of certificates that are not believed any more.
        certificates: renewed ones. Whoever holds the key of one takes it from wherever he sees it.
    """

    revocations: str
    certificates: tuple[str, ...] = ()


class ServiceRecord(Record, frozen=True):
    """The TXT record of the mDNS announcement. Untrusted: the certificate says who it is.

    Args:
        authority: names the cluster's authority, as two clusters may have one name.
        cluster: its name; empty while it belongs to none.
        joining: the id of the invitation that it wants to join with; empty once it has.
        instance: of this start of the agent: tells two machines with one node id apart.
    """

    node_id: str
    name: str
    protocol: int
    cluster: str = ""
    authority: str = ""
    joining: str = ""
    instance: str = ""


def rank_file(rank: Rank) -> str:
    """Name of the file a rank writes its samples to, in ``$MNTRAIN_METRICS_DIR``."""
    return f"rank-{rank}.ndjson"

"""Agent API: routes and messages between drivers and agents. Bodies are JSON, streams NDJSON.

======  =========================================  ==============================================
verb    path                                       body → answer
======  =========================================  ==============================================
GET     /v1/node                                   → NodeInfo
GET     /v1/node/description                       → MachineDescription; takes seconds
GET     /v1/history?since=&until=&points=          → NodeHistory, Unix seconds
POST    /v1/node/workplace                         Workplace → FoundWorkplace; may take seconds
POST    /v1/node/facts                             MachineQuestion → MachineFacts; may take seconds
POST    /v1/node/script                            AskedScript → FoundScript
POST    /v1/node/paths/listen                      PathListen → PathTicket
POST    /v1/node/paths/try                         PathsAsked → [PathTrial]; takes seconds
POST    /v1/node/paths/end                         PathEnd → PathHeard
GET     /v1/stream                                 → NDJSON of StreamMessage: Hello, Heartbeats
POST    /v1/leases                                 LeaseRequest → LeaseGrant; repeat = renew
DELETE  /v1/leases/{job}/{attempt}                 → {}
GET     /v1/jobs?limit=&after=                     → JobPage of ended jobs; search=, run=, begins=
GET     /v1/jobs/{job}                             → JobRecord (newest attempt)
GET     /v1/jobs/{job}/spec                        → JobSpec with its files
PUT     /v1/jobs/{job}                             StartRequest of attempt 0 → JobRecord that waits
PUT     /v1/jobs/{job}/attempts/{attempt}          StartRequest → JobRecord; repeat = no-op
GET     /v1/jobs/{job}/deletion                    → JobDeletion: what the next one would delete
DELETE  /v1/jobs/{job}/deletion?checkpoints=       → JobDeletion; 1 = also of the run's checkpoints
PUT     /v1/jobs/{job}/label                       JobLabel → JobRecord; an older one is ignored
POST    /v1/jobs/{job}/stop                        StopRequest → JobRecord
GET     /v1/jobs/{job}/journal?since=&follow=      → NDJSON of JournalLine with seq > since
GET     /v1/jobs/{job}/samples?points=             → NodeSamples; also rank=, begin=, end=, by=
GET     /v1/jobs/{job}/log?offset=&limit=          → bytes, and headers; offset < 0: from the end
GET     /v1/jobs/{job}/log/times?begin=&end=       → LogTimes of the bytes between two offsets
POST    /v1/jobs/{job}/save                        SaveRequest → JobRecord; of the head only
POST    /v1/jobs/{job}/settings                    SettingsRequest → JobRecord; of the head only
POST    /v1/jobs/{job}/chat                        ChatRequest → ChatAnswer; of the head only
POST    /v1/jobs/{job}/session                     SessionRequest → frames of events
GET     /v1/jobs/{job}/checkpoints                 → NodeCheckpoints, of the job's run
POST    /v1/jobs/{job}/checkpoints                 CheckpointChange → NodeCheckpoints after it
GET     /v1/checkpoints?path=                      → NodeCheckpoints in any directory of the node
POST    /v1/jobs/{job}/stacks                      → [RankStack], of the ranks that live here
GET     /v1/jobs/{job}/files                       → JobFiles: what it wrote here
POST    /v1/jobs/{job}/files                       WantedFiles → Hashing; then pieces may be read
POST    /v1/jobs/{job}/ranks/{rank}/kill           KillRequest → JobRecord; only this rank's process
POST    /v1/blobs                                  BlobQuery → BlobsMissing
PUT     /v1/blobs                                  MessagePack: small files' contents → {}
PUT     /v1/blobs/{sha256}?size=&offset=&key=      bytes → {}; parts of one upload, in order
GET     /v1/blobs/{sha256}?offset=&limit=          → bytes
POST    /v1/files/manifest                         "ROOT:NAME" → Hashing; ask until it is over
POST    /v1/files/transfers                        Deposit → TransferState; ask while it checks
PUT     /v1/files/transfers/{transfer}             → TransferState: what came whole is in place
GET     /v1/files/transfers/{transfer}/pieces/{n}  → bytes
PUT     /v1/files/transfers/{transfer}/pieces/{n}  bytes → {}
POST    /v1/files/transfers/{transfer}/pieces/{n}  PieceSource → {}: fetches it from that node
GET     /v1/files/space                            → NodeSpace
POST    /v1/files/space                            CleanRequest → Cleaned
GET     /v1/port/{port}?interface=                 → PortStatus, on that interface's address
GET     /v1/trust                                  → TrustNews, what drivers left here
PUT     /v1/trust                                  TrustNews → {}; what is newer is kept
POST    /v1/probe/lease                            MeasureLease → {}; repeat = renew
POST    /v1/probe/listen                           ProbeListen → ProbeTicket
POST    /v1/probe/send                             ProbeSend → LinkMeasurement
POST    /v1/probe/devices                          MeasureDevices → [DeviceMeasurement]
GET     /v1/probe/devices                          → MeasuringDevices, while it measures
PUT     /v1/probe/benched                          BenchedLinks → {}; kept with other measurements
======  =========================================  ==============================================

All connections are TLS with a certificate of the cluster on both sides. Drivers may send any
request. A node may send other nodes ``POST /v1/probe/listen``, read pieces of a transfer that a
driver has deposited there for it, read and stop a job that both take part in, and, as the head of a
job that may be restarted, lease and start its next attempt exactly as a driver has deposited it;
anything else is answered 403. Before it has joined, an agent answers only
:mod:`jupyter_mntrain.trust.joining.messages`. Records come without the files of their spec, which
may be megabytes. A refusal is 4xx with a :class:`~jupyter_mntrain.model.failure.problem.Problem`.
Every request that changes something is idempotent by job id and attempt number.
"""

from __future__ import annotations

import enum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.records.job import Attempt, JobRecord, JobSpec
from jupyter_mntrain.model.records.node import Gpu, Heartbeat, NodeInfo, Versions, Workplace


class Route(enum.StrEnum):
    """Paths of the table above: clients format them with values, servers with patterns."""

    NODE = "/v1/node"
    DESCRIPTION = "/v1/node/description"
    WORKPLACE = "/v1/node/workplace"
    FACTS = "/v1/node/facts"
    SCRIPT = "/v1/node/script"
    PATHS_LISTEN = "/v1/node/paths/listen"
    PATHS_TRY = "/v1/node/paths/try"
    PATHS_END = "/v1/node/paths/end"
    STREAM = "/v1/stream"
    HISTORY = "/v1/history"
    LEASES = "/v1/leases"
    LEASE = "/v1/leases/{job_id}/{attempt}"
    JOBS = "/v1/jobs"
    JOB = "/v1/jobs/{job_id}"
    SPEC = "/v1/jobs/{job_id}/spec"
    DELETION = "/v1/jobs/{job_id}/deletion"
    LABEL = "/v1/jobs/{job_id}/label"
    ATTEMPT = "/v1/jobs/{job_id}/attempts/{attempt}"
    STOP = "/v1/jobs/{job_id}/stop"
    JOURNAL = "/v1/jobs/{job_id}/journal"
    SAMPLES = "/v1/jobs/{job_id}/samples"
    LOG = "/v1/jobs/{job_id}/log"
    LOG_TIMES = "/v1/jobs/{job_id}/log/times"
    SAVE = "/v1/jobs/{job_id}/save"
    SETTINGS = "/v1/jobs/{job_id}/settings"
    CHAT = "/v1/jobs/{job_id}/chat"
    SESSION = "/v1/jobs/{job_id}/session"
    CHECKPOINTS = "/v1/jobs/{job_id}/checkpoints"
    CHECKPOINTS_AT = "/v1/checkpoints"
    JOB_FILES = "/v1/jobs/{job_id}/files"
    STACKS = "/v1/jobs/{job_id}/stacks"
    KILL_RANK = "/v1/jobs/{job_id}/ranks/{rank}/kill"
    BLOBS = "/v1/blobs"
    BLOB = "/v1/blobs/{sha256}"
    MANIFEST = "/v1/files/manifest"
    TRANSFERS = "/v1/files/transfers"
    TRANSFER = "/v1/files/transfers/{transfer}"
    PIECE = "/v1/files/transfers/{transfer}/pieces/{piece}"
    SPACE = "/v1/files/space"
    PORT = "/v1/port/{port}"
    TRUST = "/v1/trust"
    PROBE_LEASE = "/v1/probe/lease"
    PROBE_LISTEN = "/v1/probe/listen"
    PROBE_SEND = "/v1/probe/send"
    PROBE_DEVICES = "/v1/probe/devices"
    BENCHED = "/v1/probe/benched"
    JOIN = "/v1/join"


PROTOCOL = 3
"""Version of this API, raised when an agent can no longer serve older drivers. 1 had no TLS; with 2
every stream began with all jobs and their files.
"""

DEFAULT_PORT = 8765
LAST_PORT = 65535
STOP_GRACE_S = tunables.seconds("supervisor.stop_grace_s")
FAILURE_GRACE_S = tunables.seconds("supervisor.failure_grace_s")
LONGEST_GRACE_S = 3600.0
"""Longest time between SIGTERM and SIGKILL that a person may choose for `stop`."""
SERVICE_TYPE = "_mntrain._tcp.local."

LEASE_EXPIRY_S = tunables.seconds("launch.lease_expiry_s")

HEARTBEAT_INTERVAL_S = tunables.seconds("liveness.heartbeat_interval_s")
SUSPECT_AFTER_S = tunables.seconds("liveness.suspect_after_s")
LOST_AFTER_S = tunables.seconds("liveness.lost_after_s")


class LeaseRequest(Record, frozen=True):
    """Request for a lease of all these resources, or none.

    Args:
        ranks: processes to start on this node.
        gpus: device indices; empty = none.
        interface: name; the grant contains its IPv4 address.
        address: of the interface, where it has several: the one that the launch chose.
        hold_port: 0 = any free port, > 0 = exactly this one, ``None`` = this is not the head.
        workplace: what the job runs in, if that is not the agent's own.
        shares_gpus: a person named the GPUs; see :class:`Participant`.
        session: whose lease does not stand in its way; see :class:`JobSpec`.
    """

    job_id: JobId
    attempt: int
    ranks: int
    gpus: tuple[int, ...] = ()
    interface: str | None = None
    address: str | None = None
    hold_port: int | None = None
    expires_in_s: float = LEASE_EXPIRY_S
    workplace: Workplace | None = None
    shares_gpus: bool = False
    session: JobId | None = None


class LeaseGrant(Record, frozen=True):
    address: str
    """IPv4 address of the interface, without prefix length."""
    port: int | None
    expires_s: float
    versions: Versions | None = None
    gpus: tuple[Gpu, ...] = ()
    interface: str = ""
    """What is installed for the job, leased and used now; nothing of it from an older agent."""


class StartRequest(Record, frozen=True):
    """Request to start a node's part of an attempt, which must be leased already.

    Args:
        sent_s: Unix time by the sender's clock, which becomes the attempt's clock.
    """

    job_id: JobId
    spec: JobSpec
    attempt: Attempt
    submitted_by: str = ""
    sent_s: float | None = None


class StopRequest(Record, frozen=True):
    """Request to end a node's part. After ``grace_s`` seconds, everything is killed.

    Args:
        after_failure: another participant's part has failed; otherwise a person wants it.
    """

    reason: str
    grace_s: float = FAILURE_GRACE_S
    attempt: int | None = None
    after_failure: bool = False


class SaveRequest(Record, frozen=True):
    """Request that all ranks save a checkpoint after their current step.

    Args:
        key: idempotency key.
        attempt: number of the attempt.
        is_last: end after saving.
        reason: why it ends, for people.
    """

    key: Annotated[str, Meta(min_length=1, max_length=64)]
    attempt: int
    is_last: bool = False
    reason: str = ""


CheckpointAction = Literal["delete", "pin", "unpin"]


class CheckpointChange(Record, frozen=True):
    """Request to change a node's part of a checkpoint."""

    step: int
    action: CheckpointAction


class KillRequest(Record, frozen=True):
    """Request to kill one rank of an attempt at once.

    Args:
        reason: the rank's cause of death, for people.
    """

    attempt: int
    reason: str = "killed by user"


class BlobQuery(Record, frozen=True):
    """Request for a list of the file contents that a node lacks.

    Args:
        sizes: bytes by SHA-256.
    """

    sizes: Annotated[dict[str, int], Meta(max_length=100_000)]


class BlobsMissing(Record, frozen=True):
    sha256s: tuple[str, ...]


class PortStatus(Record, frozen=True):
    """Whether a port is free for a rendezvous now.

    Args:
        address: that was checked.
        problem: why it is not free; ``None`` if it is.
        next_free: the next higher free port; ``None`` if there is none close by.
    """

    port: int
    address: str
    problem: Problem | None = None
    next_free: int | None = None


class Hello(Record, frozen=True, tag_field="kind", tag="hello"):
    """First message of every stream: the node, and its jobs that have not ended.

    Every other job has ended or is unknown there; pages have the ended ones, see
    :mod:`jupyter_mntrain.model.lifecycle.listing`.
    """

    node: NodeInfo
    jobs: tuple[JobRecord, ...]


class NodeChanged(Record, frozen=True, tag_field="kind", tag="node"):
    node: NodeInfo


class JobChanged(Record, frozen=True, tag_field="kind", tag="job"):
    record: JobRecord


class JobDeleted(Record, frozen=True, tag_field="kind", tag="gone"):
    """The node has deleted an ended job."""

    job_id: JobId


class Goodbye(Record, frozen=True, tag_field="kind", tag="goodbye"):
    """The agent is shutting down; its jobs continue under their supervisors."""

    reason: str


StreamMessage = Hello | NodeChanged | JobChanged | JobDeleted | Heartbeat | Goodbye
stream_decoder = msgspec.json.Decoder(StreamMessage)


class TrustNews(Record, frozen=True):
    """Revocations and renewed certificates, signed by the authority, that agents relay; PEM.

    Args:
        revocations: the revocation list.
        certificates: renewed ones. The owner of a certificate's key may take it from anywhere.
    """

    revocations: str
    certificates: tuple[str, ...] = ()


class ServiceRecord(Record, frozen=True):
    """TXT record of the mDNS announcement. Untrusted: only the certificate proves an identity.

    Args:
        cluster: its name; empty before joining.
        authority: id of the cluster's authority, since two clusters may have the same name.
        joining: id of the invitation that it is joining with; empty afterwards.
        instance: id of this start of the agent: distinguishes two machines with one node id.
    """

    node_id: str
    name: str
    protocol: int
    cluster: str = ""
    authority: str = ""
    joining: str = ""
    instance: str = ""


def rank_file(rank: Rank) -> str:
    """Name of a rank's samples file in ``$MNTRAIN_METRICS_DIR``."""
    return f"rank-{rank}.ndjson"

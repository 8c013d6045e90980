"""Page messages: what the Jupyter server and the page exchange by WebSocket and REST.

======  ===================================  ====================================================
verb    path below ``{base}/mntrain/v1``     body → answer
======  ===================================  ====================================================
GET     /status                              → ServerStatus
GET     /nodes                               → [NodeEntry]
POST    /nodes                               AddNode → 201 NodeEntry
DELETE  /nodes/{key}                         → 204
GET     /nodes/{key}/history?last=&points=   → NodeHistory, of the last so many seconds
POST    /invitations                         Invite → 201 Invitation
POST    /own-machine/node                    MakeNode → 201 ChangedMachine
POST    /own-machine/membership              JoinCluster → 201 ChangedMachine
POST    /own-machine/service                 {} → 201 ChangedMachine
POST    /own-machine/wheel                   → 201 PackedWheel
POST    /links/measure                       MeasureLinks → [LinkMeasurement]
POST    /doctor                              DoctorRequest → DoctorAnswer
POST    /doctor/remedy                       Remedy → WorkState; begins it, or says how far it is
POST    /doctor/deep                         DoctorRequest, of a job → WorkState, in the same way
POST    /bench                               BeginBench → BenchState; GET only asks, DELETE cancels
DELETE  /launches/{cluster}                  → 204; gives back the nodes that it waits for
GET     /jobs?search=&all=&sort=             → [JobEntry]; ``all=1`` = however old
POST    /jobs                                LaunchJob → 201 LaunchedJob
GET     /compare?job=&job=                   → JobComparison, of two to four jobs
GET     /jobs/{job}                          → JobEntry
GET     /jobs/{job}/metrics?stream=&since=   → JobSeries; ``points=``; ``begin=&end=&by=step|time``
GET     /jobs/{job}/output                   → SavedOutput
GET     /jobs/{job}/logs?rank=&node=&tail=   → JobLog; ``search=`` keeps lines that contain it
GET     /jobs/{job}/log-file?rank=&node=      → all lines, as one text
GET     /jobs/{job}/files                    → WrittenFiles: what it wrote on its nodes
GET     /jobs/{job}/file?path=&node=         → that file; ``most=`` bytes of its beginning
POST    /jobs/{job}/stacks                   AskStacks → ShownStacks
GET     /jobs/{job}/spec                     → SpecFile
GET     /jobs/{job}/settings                 → JobSettings
GET     /jobs/{job}/trace                    → JobTrace: its newest recorded step
PUT     /jobs/{job}/label                    LabelJob → 202 JobEntry
GET     /jobs/{job}/removal                  → JobRemoval: what DELETE would delete
DELETE  /jobs/{job}/removal?checkpoints=     → JobRemoval; 1 = also the run's checkpoints
POST    /jobs/{job}/stop                     EndJob → 202 JobEntry
POST    /jobs/{job}/save                     SaveJob → 202 JobEntry
POST    /jobs/{job}/kill                     → 202 JobEntry
WS      /events?stream=&since=               → ServerMessage; takes PageMessage
======  ===================================  ====================================================

A refusal is 4xx or 5xx with :class:`Problem`, one of a launch by the doctor with RefusedLaunch. The
WebSocket begins with a :class:`Snapshot`, or, when ``stream`` and ``since`` are still known, with
:class:`StreamResumed` and what was missed.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from jupyter_mntrain.cluster.history.logs import LogLine
from jupyter_mntrain.doctor.check import DoctorReport
from jupyter_mntrain.doctor.every import EVERY
from jupyter_mntrain.metrics.page_entries import JobBundle, JobEntry, NodeEntry
from jupyter_mntrain.metrics.ranking import Ranking
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import STOP_GRACE_S
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.checkpoint import MOST_STEPS
from jupyter_mntrain.model.records.node import Heartbeat, Liveness
from jupyter_mntrain.model.records.setting import Origin
from jupyter_mntrain.model.text.foreign import shown_json
from jupyter_mntrain.server.allocations.waiting_launches import WaitingLaunch
from jupyter_mntrain.trust.registrar import INVITE_LIFE_S

EVENTS_VERSION = 1
"""Raised when an older page could no longer read these messages."""


class ServerStatus(Record, frozen=True):
    """The server extension's version, and the cluster it watches.

    Args:
        discovery_problem: why discovery may miss nodes.
        strangers: nodes of other clusters on this network, each with its cluster's name.
        is_driver: whether this user holds a driver's key; the first invitation creates it.
        is_read_only: whether this user may only watch.
    """

    version: str
    events_version: int
    cluster: str
    discovery_problem: Problem | None = None
    strangers: tuple[str, ...] = ()
    is_driver: bool = True
    is_read_only: bool = False


class AddNode(Record, frozen=True, forbid_unknown_fields=True):
    address: str


class Invite(Record, frozen=True, forbid_unknown_fields=True):
    """How many nodes may join with one token, and for how long."""

    uses: int = 1
    expires_in_s: float = INVITE_LIFE_S


class Invitation(Record, frozen=True):
    """The command with which machines join, and until when it is valid.

    Args:
        port: of TCP, which the machine has to let this one reach.
        versions: that it needs, by name; they are this machine's.
    """

    command: str
    uses: int
    expires_s: float
    port: int
    versions: dict[str, str]


class MakeNode(Record, frozen=True, forbid_unknown_fields=True):
    """Make the server's own machine a node. No other machine can be named.

    Args:
        name: of the node; default: the machine's.
        port: of its agent; default: the usual one, or the next at which nothing listens.
        listen: addresses of this machine to listen on; empty = all.
        without_systemd: start the agent on its own, also where systemd runs.
    """

    name: str | None = None
    port: int | None = None
    listen: tuple[str, ...] = ()
    without_systemd: bool = False


class JoinCluster(Record, frozen=True, forbid_unknown_fields=True):
    """The token with which the server's own machine joins, as node or driver."""

    token: str


class PackedWheel(Record, frozen=True):
    """The running package as a wheel on the server's machine, by its path."""

    path: str


class ChangedMachine(Record, frozen=True):
    """What the server's own machine has become.

    Args:
        role: ``node``, ``driver`` or ``viewer``.
        name: of the node or driver; empty if it was one before.
        cluster: that it has joined; empty if it was a member before.
        said: lines about its service.
    """

    role: str
    name: str = ""
    cluster: str = ""
    said: tuple[str, ...] = ()


class MeasureLinks(Record, frozen=True, forbid_unknown_fields=True):
    """Nodes by name; empty = every usable one. About a second per ordered pair."""

    nodes: tuple[str, ...] = ()


class LabelJob(Record, frozen=True):
    """A new name or note of a job; ``None`` = unchanged, empty = removed."""

    name: str | None = None
    note: str | None = None


class EndJob(Record, frozen=True, forbid_unknown_fields=True):
    grace_s: float = STOP_GRACE_S


class SaveJob(Record, frozen=True, forbid_unknown_fields=True):
    """Save a checkpoint on all ranks; with ``is_last`` the job then ends."""

    is_last: bool = False


class AskStacks(Record, frozen=True, forbid_unknown_fields=True):
    """Request the stacks of one rank, or of all."""

    rank: int | None = None


class SpecFile(Record, frozen=True):
    """A job as a file: its name and text, and the variables left out as secrets."""

    name: str
    text: str
    left_out: tuple[str, ...] = ()


class SavedOutput(Record, frozen=True):
    """The output of a job that a notebook keeps, all of one moment.

    Args:
        picture: PNG, base64; ``None`` = there is nothing to draw yet.
        width_px: displayed width of the picture.
    """

    job: JobBundle
    text: str
    picture: str | None
    width_px: int


class JobLog(Record, frozen=True):
    """The last lines of a log; ``is_cut`` if there were more than ``tail``."""

    lines: tuple[LogLine, ...]
    is_cut: bool = False


class Snapshot(Record, frozen=True, tag_field="kind", tag="snapshot"):
    """The whole state. Later changes are numbered from ``seq`` on."""

    stream: str
    seq: int
    status: ServerStatus
    nodes: tuple[NodeEntry, ...]
    jobs: tuple[JobEntry, ...]
    waiting: tuple[WaitingLaunch, ...] = ()


class StreamResumed(Record, frozen=True, tag_field="kind", tag="resumed"):
    """The stream is resumed: the missed messages follow."""

    stream: str
    seq: int


class NodeSet(Record, frozen=True, tag_field="kind", tag="node"):
    seq: int
    node: NodeEntry


class NodeHeartbeat(Record, frozen=True, tag_field="kind", tag="heartbeat"):
    """A node's heartbeat; the rest of its entry is unchanged."""

    seq: int
    key: str
    liveness: Liveness
    last_seen_s: float | None
    heartbeat: Heartbeat


class NodeGone(Record, frozen=True, tag_field="kind", tag="node-gone"):
    seq: int
    key: str


class JobSet(Record, frozen=True, tag_field="kind", tag="job"):
    seq: int
    job: JobEntry


class JobGone(Record, frozen=True, tag_field="kind", tag="job-gone"):
    seq: int
    job_id: JobId


class StatusSet(Record, frozen=True, tag_field="kind", tag="status"):
    seq: int
    status: ServerStatus


class WaitingSet(Record, frozen=True, tag_field="kind", tag="waiting"):
    """All launches that wait for nodes."""

    seq: int
    waiting: tuple[WaitingLaunch, ...]


class SeriesSent(Record, frozen=True, tag_field="kind", tag="series"):
    """Rows of a watched job; numbered separately, resumed by :class:`Watch`."""

    series: JobSeries


class Refused(Record, frozen=True, tag_field="kind", tag="problem"):
    """A message from the page was refused: unknown job, or invalid."""

    problem: Problem
    job_id: JobId | None = None


ServerMessage = (
    Snapshot
    | StreamResumed
    | NodeSet
    | NodeHeartbeat
    | NodeGone
    | JobSet
    | JobGone
    | StatusSet
    | WaitingSet
    | SeriesSent
    | Refused
)


class Watch(Record, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="watch"):
    """Request the rows of a job after ``since`` of ``stream``, and new ones as they come."""

    job_id: JobId
    stream: str = ""
    since: int = 0


class Unwatch(Record, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="unwatch"):
    job_id: JobId


def page_json(content: object) -> bytes:
    """Encode what a page shows: the boundary where untrusted text reaches it."""
    return shown_json(_encode(content))


PageMessage = Watch | Unwatch
page_decoder = msgspec.json.Decoder(PageMessage)
_encode = msgspec.json.Encoder().encode


# Page launches: what the page asks to launch, and the answers.


class LaunchJob(Record, frozen=True, forbid_unknown_fields=True):
    """Either the id of a job to run again, or the text of a job file (TOML).

    Args:
        mixed_versions: start even if versions differ between nodes. An acknowledgment for the
            earlier job, or in the job file, does not count for this one.
        skips_doctor: start whatever the doctor would find.
        begin: with the newest checkpoint in this directory on the nodes, or with this folder of
            one; default: as the job file says.
        is_queued: let it wait for its turn instead of refusing if it cannot start now.
        yes: the person has read the job file; without it one that does more than to train by a
            recipe is refused with what it does, unless it was exported or agreed to here.
    """

    job_id: JobId | None = None
    spec: str | None = None
    mixed_versions: bool = False
    skips_doctor: bool = False
    begin: str | None = None
    is_queued: bool = False
    yes: bool = False


class LaunchedJob(Record, frozen=True):
    """A job that was started or queued, and notes on its nodes."""

    job: JobEntry
    notes: tuple[Problem, ...] = ()


class ResumeJob(Record, frozen=True, forbid_unknown_fields=True):
    """Resume a run where it ended.

    Args:
        expected_step: that the person saw; refused if the newest checkpoint is another by now.
        begin: begin a new run with the checkpoint of this step instead.
        steps: that the run is to make in all.
        mixed_versions: start even if versions differ between nodes. An acknowledgment for the
            earlier job does not count for this one.
        skips_doctor: start whatever the doctor would find.
    """

    expected_step: int | None = None
    begin: int | None = None
    steps: Annotated[int, Meta(ge=1, le=MOST_STEPS)] | None = None
    mixed_versions: bool = False
    skips_doctor: bool = False


class RefusedLaunch(Problem, frozen=True, kw_only=True):
    """The first finding that would end or hang the job; the check can be skipped.

    Args:
        found: what else it found.
    """

    found: tuple[Problem, ...]


# Shown checks: what the page asks the doctor, and the answer.


class DoctorRequest(Record, frozen=True, forbid_unknown_fields=True):
    """Nodes by name; empty = all, also silent ones, or those of the job.

    Args:
        job: also look for what it reads and writes.
    """

    nodes: tuple[str, ...] = ()
    job: JobId | None = None


class CheckTitle(Record, frozen=True):
    """A row of the doctor's table."""

    id: str
    title: str


class DoctorAnswer(Record, frozen=True):
    """The doctor's report, and all checks in their order."""

    report: DoctorReport
    checks: tuple[CheckTitle, ...]


TITLES = tuple(CheckTitle(id=check.id, title=check.title) for check in EVERY)


# Settings of jobs as the page shows them.


class ShownSetting(Record, frozen=True):
    """A setting as displayed: its value, and where it was set."""

    name: str
    value: str
    origin: Origin


class JobSettings(Record, frozen=True):
    """All settings of a job: those of its recipe, then those of its launch."""

    settings: tuple[ShownSetting, ...]


class DifferingSetting(Record, frozen=True):
    """A setting that differs between the compared jobs; ``None`` = a job does not have it."""

    name: str
    values: tuple[ShownSetting | None, ...]


class JobComparison(Record, frozen=True):
    """Which settings of jobs differ, which are the same, and which job is fastest."""

    differing: tuple[DifferingSetting, ...]
    same: tuple[str, ...]
    ranking: Ranking

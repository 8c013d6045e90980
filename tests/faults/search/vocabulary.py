"""Vocabulary: which kinds of problems name what. A kind that the program gains is added here.

Each set holds the program's own kinds and, where it has none for a thing yet, the name that a kind
for it would naturally have.
"""

from __future__ import annotations

LINK_DOWN = frozenset({"link-down"})
ADDRESS_LOST = frozenset({"no-interface", "no-address", "address-lost", "address-changed"})
LINK_BROKEN = frozenset({"link-blocked", "one-way-link", "no-route", "unreachable"})
ONE_WAY = frozenset({"one-way-link"})
LINK_SLOW = frozenset({"slow-link", "link-slow", "lossy-link", "link-lossy", "slow"})
LINK_FLAPS = frozenset({"link-flapping", "link-flaps", "unstable-link"})
MTU = frozenset({"mtu-too-large"})
FLOW_LOST = frozenset({"connection-broke", "flow-lost"})
DUPLICATE = frozenset({"duplicate-address", "address-twice"})
STRAGGLER = frozenset({"straggler", "slow-rank", "rank-slow", "slow-loader", "slow"})
NODE_LOST = frozenset({"node-lost"})
SILENT_NODE = frozenset({"no-answer", "slow-to-answer", "silent", "unreachable", "broken-off"})
SYMPTOM = frozenset({"connection-lost", "timed-out"})

EXCEPTION = frozenset({"exception"})
EXITED = frozenset({"exit-code", "exited"})
ENDED_EARLY = frozenset({"ended-early"})
KILLED = frozenset({"killed"})
TERMINATED = frozenset({"terminated"})
CRASHED = frozenset({"crashed", "crashed-at-end"})
OUT_OF_MEMORY = frozenset({"out-of-memory"})
GPU_OUT_OF_MEMORY = frozenset({"gpu-out-of-memory"})
TOO_MANY_FILES = frozenset({"too-many-files", "too-many-open-files"})
TOO_MANY_PROCESSES = frozenset({"too-many-processes"})
STOPPED = frozenset({"stopped"})
FROZEN = frozenset({"stopped", "frozen"})
BUSY = frozenset({"busy"})
DEADLOCK = frozenset({"deadlock", "busy"})
IN_KERNEL = frozenset({"in-kernel"})
ALL_WAIT = frozenset({"all-wait"})
MISMATCH = frozenset({"all-wait", "collective-mismatch", "mismatch"})
RENDEZVOUS = frozenset({"all-wait", "rendezvous-mismatch", "wrong-environment"})
LONE = frozenset({"ranks-never-met", "lone-ranks", "never-met", "not-connected", "lone-worlds"})
SWALLOWED = frozenset(
    {"traceback", "swallowed-error", "printed-error", "hidden-error", "error-and-success"}
)
NOT_FINITE = frozenset({"loss-nan", "not-finite"})
NO_GRADIENT = frozenset({"zero-gradients", "loss-constant", "no-gradients"})
THREAD_DIED = frozenset({"thread-died", "exception", "busy", "deadlock"})
WORKER_DIED = frozenset({"worker-died", "killed", "out-of-memory"})

NO_ROUTE = frozenset({"no-route", "unreachable"})
NCCL_SYSTEM = frozenset({"nccl-system-error", "nccl-error", "nccl"})
NCCL_VERSION = frozenset({"mixed-versions", "nccl-version", "nccl"})

NO_MODULE = frozenset({"no-module"})
NO_FILE = frozenset({"no-file"})
NO_PERMISSION = frozenset({"no-permission"})
BAD_SCRIPT = frozenset({"syntax-error", "exception"})
BAD_ARGUMENT = frozenset({"bad-argument", "exit-code", "exited", "bad-command"})
NO_GPU = frozenset({"no-gpu", "no-cuda", "no-gpu-kernel"})
PORT_TAKEN = frozenset({"port-taken", "own-port-taken"})
NO_INTERFACE = frozenset({"no-interface"})

DISK_FULL = frozenset({"disk-full"})
READ_ONLY = frozenset({"no-state", "read-only", "read-only-disk", "no-permission"})
DISK_ERROR = frozenset({"disk-error", "io-error"})
DISK_SLOW = frozenset({"disk-slow", "slow-disk", "slow-save", "straggler", "slow-rank"})
DISK_HANGS = frozenset({"in-kernel", "disk-hangs", "disk-hung", "disk-slow"})
SHM_SMALL = frozenset({"shared-memory", "shm-too-small", "shm-full", "shared-memory-full"})
FILE_TOO_LARGE = frozenset({"file-too-large", "disk-full", "file-size-limit"})

SUPERVISOR_LOST = frozenset({"supervisor-lost"})
SUPERVISOR_FROZEN = frozenset({"supervisor-frozen", "stopped", "frozen", "supervisor-lost"})
RESTARTED = frozenset({"machine-restarted", "supervisor-lost"})
STATE_LOST = frozenset({"no-state", "no-record", "state-lost", "no-file"})
AGENT_GONE = frozenset({"connection-refused", "agent-stopped"})
AGENT_FULL = frozenset(
    {"too-many-files", "too-many-processes", "no-answer", "slow-to-answer", "not-started"}
)

REVOKED = frozenset({"revoked"})
EXPIRED = frozenset({"expired"})
CLOCK_OFF = frozenset({"clock-off"})
OTHER_AUTHORITY = frozenset({"other-authority"})
WRONG_CLUSTER = frozenset({"wrong-cluster"})
NOT_JOINED = frozenset({"not-joined"})
NOT_AN_AGENT = frozenset({"not-an-agent"})
NODE_ID_TWICE = frozenset({"node-id-twice", "wrong-node"})
REJOINED = frozenset(
    {
        "no-record",
        "no-state",
        "state-lost",
        "rejoined",
        "node-lost",
        "no-such-job",
        "supervisor-lost",
    }
)
NOT_TRUSTED = frozenset({"not-trusted"})

UNKNOWN = frozenset({"unknown", "unknown-cause", "no-progress"})
"""An honest "not known": neither right nor wrong."""

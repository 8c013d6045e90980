"""Kinds of problems: stable keys for code, tests and users of ``--json``.

Sentences may change in any release, kinds do not. No code may search a cause or a fix instead.
"""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """Kind of a problem; ``ERROR`` for problems without a kind of their own."""

    ERROR = "error"
    """No specific kind. Unknown kinds of newer versions are also read as this."""

    # Invalid requests.

    BAD_SPEC = "bad-spec"
    """The request itself is invalid."""
    BAD_COMMAND = "bad-command"
    """A verb, an option or another word of a command is unknown, missing or malformed."""
    BAD_RECIPE = "bad-recipe"
    """A recipe's field is misspelled, missing or out of range, or its data cannot be used."""
    MISSING_LIBRARY = "missing-library"
    """A required library is not installed."""
    NO_SUCH_NODE = "no-such-node"
    """No node has that name, id or address."""
    NO_SUCH_JOB = "no-such-job"
    """No reachable node knows the job."""
    NOT_TRUSTED = "not-trusted"
    """A certificate, token or proof is invalid."""
    NOT_ALLOWED = "not-allowed"
    """The caller's certificate, or Jupyter's authorizer, does not permit it."""
    TOO_MANY = "too-many"
    """A limit of open streams, jobs or connections is reached."""
    BAD_REQUEST = "bad-request"
    """A malformed request: a defect of the program that sent it."""
    NO_SUCH_ROUTE = "no-such-route"
    """The path or method is unknown."""
    TOO_LARGE = "too-large"
    """A request exceeds the size limit."""
    BROKEN = "broken"
    """The other side failed itself; its log says more."""

    # Reasons why a node cannot be installed over ssh.

    HOST_KEY = "host-key"
    """ssh does not know the host's key, or it has changed."""
    NO_LOGIN = "no-login"
    """The host lets this user not log in without a password."""
    NO_SSH = "no-ssh"
    """ssh itself failed, or is not installed."""
    NO_PYTHON = "no-python"
    """A host lacks Python of the driver's version, or a node the interpreter of a job."""
    NO_VENV = "no-venv"
    """The host's Python cannot make environments."""
    OTHER_PACKAGES = "other-packages"
    """An environment that somebody else made lacks packages, or has others."""
    JOBS_RUNNING = "jobs-running"
    """Jobs run on the node: with what would be changed, over a link that would be measured, or on
    the same CPU cores."""
    PORT_BLOCKED = "port-blocked"
    """The agent runs, and its port cannot be reached."""
    NOT_INSTALLED = "not-installed"
    """A command of an installation failed on the host."""

    # Refusals of a node.

    NODE = "node"
    """A node is unknown, or cannot do what was requested."""
    REFUSED = "refused"
    """A participant refused a lease or a start."""
    NO_GPU = "no-gpu"
    """The node has no such GPU."""
    GPU_TAKEN = "gpu-taken"
    """A GPU is leased to another job, or another program uses it."""
    OWN_PORT_TAKEN = "own-port-taken"
    """A port that a script opens itself is in use."""
    PORT_TAKEN = "port-taken"
    """The port is leased to another job, or another program listens on it."""
    NO_LEASE = "no-lease"
    """The lease has expired or was never granted."""
    NO_CHECKPOINT = "no-checkpoint"
    """There is no checkpoint to go on from, or the nodes of the job do not have all of it."""
    STILL_RUNNING = "still-running"
    """A run that is to be resumed is running, or waits for its next attempt."""
    OUT_OF_TURN = "out-of-turn"
    """The job was stopped meanwhile, or has another attempt."""
    NO_STATE = "no-state"
    """The agent's state directory is gone, was replaced or cannot be written."""
    DRAINED = "drained"
    """The node's owner has drained it: it takes no new jobs."""
    OUT_OF_HOURS = "out-of-hours"
    """It is not an hour at which the node's owner offers it. Also a warning."""
    NOT_OFFERED = "not-offered"
    """The node's owner does not offer this GPU, or what is offered cannot be read."""

    # Nodes that a scheduler gives.

    NO_SCHEDULER = "no-scheduler"
    """This machine cannot ask a scheduler for nodes: its commands or rights are missing."""
    SCHEDULER_REFUSED = "scheduler-refused"
    """A scheduler refused the request for nodes as it stands."""
    WAITS_FOR_NODES = "waits-for-nodes"
    """A scheduler will give the nodes later."""
    NEVER_GRANTED = "never-granted"
    """A scheduler has queued a request that it will never grant, however long one waits."""

    # A node cannot be reached; see SILENCES.

    CONNECTION_REFUSED = "connection-refused"
    """Nothing listens at the address."""
    NO_ANSWER = "no-answer"
    """No answer in time. The agent may have acted on the request."""
    SLOW_TO_ANSWER = "slow-to-answer"
    """The machine accepts connections, but its agent does not answer in time: it is busy or frozen.
    It may have acted on the request."""
    UNREACHABLE = "unreachable"
    """No route, or no machine of that name."""
    BROKEN_OFF = "broken-off"
    """The connection closed before the answer. The agent may have acted on the request."""
    NOT_AN_AGENT = "not-an-agent"
    """Another program answers at the address."""
    NOT_JOINED = "not-joined"
    """The agent has not joined a cluster yet."""
    WRONG_CLUSTER = "wrong-cluster"
    """The agent belongs to a cluster with another name."""
    OTHER_AUTHORITY = "other-authority"
    """The agent belongs to a cluster with this name and another certificate authority."""
    REVOKED = "revoked"
    """The node's certificate, or this driver's, was revoked."""
    EXPIRED = "expired"
    """The node's certificate, or this driver's, has expired."""
    CLOCK_OFF = "clock-off"
    """A certificate is not valid yet: one of the two clocks is wrong."""
    WRONG_NODE = "wrong-node"
    """Another node answers at the address."""
    OTHER_PROTOCOL = "other-protocol"
    """The agent speaks an older or newer protocol."""

    # Other reasons why a node cannot participate.

    SILENT = "silent"
    """A node has been silent for too long, for an unknown reason."""
    AGENT_STOPPED = "agent-stopped"
    """The agent said that it was shutting down."""
    NO_MULTICAST = "no-multicast"
    """This machine cannot find nodes: it receives no multicast, or cannot browse."""
    NODE_ID_TWICE = "node-id-twice"
    """Two machines claim the same node id."""
    MIXED_VERSIONS = "mixed-versions"
    """A node's version of torch, Python or others differs from the other nodes'."""

    # Warnings about a launch that is possible.

    SLOW_LINK = "slow-link"
    """The ranks use a slow network although the nodes share a faster one."""
    SPREAD_REPLICAS = "spread-replicas"
    """Replicas of a stage are on different nodes, so gradients cross the network."""
    TIGHT_MEMORY = "tight-memory"
    """A rank will need more memory than its GPU has."""
    STARTS_OVER = "starts-over"
    """A job is launched again from step 1 although a checkpoint of it exists."""
    OTHER_LOSSES = "other-losses"
    """A resumed run will not have the losses of an unbroken one: a setting was changed."""
    PRIVATE_FILE = "private-file"
    """A file that is sent with a job looks like a secret."""

    # Causes of a failed attempt.

    EXCEPTION = "exception"
    """A rank ended with an exception of its own code."""
    EXIT_CODE = "exit-code"
    """A process ended with an exit code and left no exception."""
    ENDED_EARLY = "ended-early"
    """A rank ended normally while others still needed it."""
    CONNECTION_LOST = "connection-lost"
    """A rank lost its connection to another one: a symptom, see SYMPTOMS."""
    TIMED_OUT = "timed-out"
    """A rank waited too long for another one: a symptom, see SYMPTOMS."""
    GPU_OUT_OF_MEMORY = "gpu-out-of-memory"
    """An allocation on a GPU failed."""
    OUT_OF_MEMORY = "out-of-memory"
    """The machine ran out of memory: the kernel killed a process, or an allocation failed."""
    KILLED = "killed"
    """A process was killed by SIGKILL, not known to be from the OOM killer."""
    TERMINATED = "terminated"
    """A process was terminated by a signal that mntrain did not send."""
    CRASHED_AT_END = "crashed-at-end"
    """A process crashed while Python closed down, after its program had reached its end."""
    CRASHED = "crashed"
    """A process crashed: SIGSEGV, SIGABRT and the like."""
    DISK_FULL = "disk-full"
    """No space was left on a disk."""
    NO_MODULE = "no-module"
    """A Python module is not installed on the node."""
    PACKAGE_CONFLICT = "package-conflict"
    """Packages of the environment do not fit together: versions, or what they were built for."""
    NO_SHARED_LIBRARY = "no-shared-library"
    """The dynamic loader finds no shared library of that name, or only an older version."""
    NO_PROGRAM = "no-program"
    """A program that the script starts is not installed, or not on the PATH of the ranks."""
    NO_FILE = "no-file"
    """A file is not on the node."""
    DAMAGED_FILE = "damaged-file"
    """A file was not written, copied or downloaded whole."""
    OTHER_MODEL = "other-model"
    """A checkpoint is of another model: its weights have other names or shapes."""
    PATH_TOO_LONG = "path-too-long"
    """The path of a socket is longer than the system allows."""
    READ_ONLY = "read-only"
    """A file system is mounted read-only, perhaps after an error of its disk."""
    DISK_ERROR = "disk-error"
    """A disk or a network file system failed to read or write."""
    FILE_TOO_LARGE = "file-too-large"
    """A file would exceed a limit of the file system or of the process."""
    TOO_MANY_PROCESSES = "too-many-processes"
    """A limit of processes or threads is reached."""
    TOO_MANY_FILES = "too-many-files"
    """A process reached its limit of open files."""
    SHARED_MEMORY = "shared-memory"
    """The shared memory of the machine or container is too small for what processes share."""
    WORKER_DIED = "worker-died"
    """A data loader's worker process was ended."""
    COLLECTIVE_MISMATCH = "collective-mismatch"
    """Ranks called different collectives, or the same one with different sizes."""
    NCCL = "nccl"
    """NCCL failed by itself: a version, the network's configuration, or the driver."""
    GPU_ERROR = "gpu-error"
    """A GPU or its driver failed."""
    GPU_ALLOCATOR = "gpu-allocator"
    """The driver refused to map a GPU's memory piece by piece, for torch's expandable segments."""
    NO_ROUTE = "no-route"
    """A rank's packets have no way to the other node."""
    NO_DOWNLOAD = "no-download"
    """A model or data set is not there, and cannot be downloaded."""
    NO_CREDENTIALS = "no-credentials"
    """A service on the internet wants a key or a token, or more rights than it has."""
    UNTRUSTED_SERVER = "untrusted-server"
    """The TLS certificate of a server has expired, or nobody known has signed it."""
    NO_PERMISSION = "no-permission"
    """The agent's user may not read or write a file."""
    NO_INTERFACE = "no-interface"
    """A network interface does not exist, is down, or has no address."""
    NO_CUDA = "no-cuda"
    """A rank wants CUDA or NCCL, and its torch or its machine has none."""
    NO_GPU_KERNEL = "no-gpu-kernel"
    """The installed torch was not built for the GPU."""
    OLD_DRIVER = "old-driver"
    """The NVIDIA driver is older than torch needs."""
    SUPERVISOR_LOST = "supervisor-lost"
    """The attempt's supervisor was killed, or the agent before it started torchrun."""
    MACHINE_RESTARTED = "machine-restarted"
    """The machine was rebooted while the job ran."""
    NOT_STARTED = "not-started"
    """torchrun itself could not be started."""
    WAITED_TOO_LONG = "waited-too-long"
    """A job waited longer than its limit, in the queue or for a node that does not answer."""
    NO_RECORD = "no-record"
    """A participant has no record of the job: its state directory was replaced or emptied."""
    NODE_LOST = "node-lost"
    """A participant does not answer, and the others wait for it or lost their connection."""

    TIME_LIMIT = "time-limit"
    """The time for which a scheduler gave the nodes was over."""
    PREEMPTED = "preempted"
    """A scheduler took the nodes for a request of higher priority."""
    NODES_TAKEN = "nodes-taken"
    """The allocation was ended from outside: by a person, an administrator or the scheduler."""
    UNKNOWN_CAUSE = "unknown-cause"
    """Ranks lost their connections, and nothing that was found explains it."""
    CONNECTION_BROKE = "connection-broke"
    """The network broke a connection, though both ends lived on."""
    ADDRESS_CHANGED = "address-changed"
    """The interface that the ranks used lost its address."""
    DUPLICATE_ADDRESS = "duplicate-address"
    """Another machine answers for the address of a node's interface: two have the same one."""
    GPU_LOST = "gpu-lost"
    """A GPU does not answer any more: it has fallen off the bus, or its driver hangs."""
    GPU_MEMORY_ERROR = "gpu-memory-error"
    """The memory of a GPU failed: an error that ECC could not correct."""
    LOSS_NAN = "loss-nan"
    """The loss or the gradient became NaN or infinite. Also a warning."""

    # Warnings about numbers: the job runs or has succeeded, but what it made may be worthless.

    LOSS_DIVERGED = "loss-diverged"
    """The loss is far above where it was, for many steps."""
    LOSS_CONSTANT = "loss-constant"
    """The loss has been exactly the same for many steps."""
    ZERO_GRADIENTS = "zero-gradients"
    """The gradient has been exactly zero for several steps."""
    NOISY_TRANSFERS = "noisy-transfers"
    """What stages send to each other in fewer bits loses much more than it did."""
    RANKS_NEVER_MET = "ranks-never-met"
    """The ranks train apart: no process group has all of them."""
    TRACEBACK = "traceback"
    """A rank printed a traceback, and exited with code 0 or has done nothing since."""
    BEGAN_AGAIN = "began-again"
    """After a restart the ranks began at step 1 again."""

    # Warnings about speed: the job runs, slower than it did before.

    SLOW_RANK = "slow-rank"
    """A rank computes longer, and the others wait for it."""
    LINK_SLOW = "link-slow"
    """A link between two nodes carries less, and the ranks wait for it."""
    SLOW_DISK = "slow-disk"
    """A rank waits for a disk, and the others wait for the rank."""
    SLOW_LOADER = "slow-loader"
    """A rank waits for its next batch, and the others wait for the rank."""
    SLOW_JOB = "slow"
    """All steps take longer, and no rank, link or disk explains it."""

    # Causes of a stall.

    STOPPED = "stopped"
    """A rank is stopped, by a signal or by its control group."""
    IN_KERNEL = "in-kernel"
    """A rank is stuck in a system call: a disk, a network file system or a driver."""
    BUSY = "busy"
    """A rank is in its own code while the others wait for it."""
    ALL_WAIT = "all-wait"
    """All ranks wait for each other."""
    NO_PROGRESS = "no-progress"
    """No rank makes progress, and some do not report what they are doing."""
    LINK_DOWN = "link-down"
    """The interface that the ranks use is down, or was several times."""
    LINK_BLOCKED = "link-blocked"
    """Two nodes cannot connect to each other, as far as is known."""
    ONE_WAY_LINK = "one-way-link"
    """A node cannot connect to another one, which can connect to it."""
    MTU_TOO_LARGE = "mtu-too-large"
    """Small packets arrive and large ones do not."""

    @classmethod
    def _missing_(cls, value: object) -> Kind:  # noqa: ARG003 - a newer agent's kind
        return cls.ERROR


# Groups of kinds: what code decides by, where several kinds mean the same to it.


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

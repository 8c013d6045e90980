"""Environment variables: the names of those that jobs and drivers read."""

import math

JOB_VARIABLE = "MNTRAIN_JOB"
"""The job's id, for scripts, and for people who inspect processes."""

ATTEMPT_VARIABLE = "MNTRAIN_ATTEMPT"
"""Number of the attempt in its job, from 1."""

RUN_VARIABLE = "MNTRAIN_RUN"
"""The run: the id of its first job. A resumed job continues it."""

RUN_ATTEMPT_VARIABLE = "MNTRAIN_RUN_ATTEMPT"
"""Number of the attempt in its run: higher than that of any attempt of an earlier job."""

NODE_VARIABLE = "MNTRAIN_NODE"
"""Display name of the node, for logs: host names repeat in containers."""

METRICS_VARIABLE = "MNTRAIN_METRICS_DIR"
"""Directory that a rank writes its samples to; unset outside of a job.

It is in the attempt's own directory, so the supervisor identifies the attempt's processes by it,
whatever their name and parent."""

CHECKPOINT_VARIABLE = "MNTRAIN_CHECKPOINT_DIR"
"""Default checkpoint directory of a run on its node. All attempts of all of its jobs share it, so
that the next one resumes from there."""

ON_NAN_VARIABLE = "MNTRAIN_ON_NAN"
"""``stop`` or ``report``, if the launch says what a loss that is NaN means: see ``--on-nan``."""

FIRST_STEP_VARIABLE = "MNTRAIN_FIRST_STEP"
"""Set where the doctor tries a recipe: the built-in trainer makes one step, with random tokens and
new weights, and neither saves nor reports anything."""

FIRST_WORLD_SIZE_VARIABLE = "MNTRAIN_FIRST_WORLD_SIZE"
"""Ranks of the run's first attempt."""

WHOLE_WORLD_SIZE_VARIABLE = "MNTRAIN_WHOLE_WORLD_SIZE"
"""Ranks of the job with all its nodes: more than ``WORLD_SIZE`` once it goes on without one."""

SAVED_STEP_VARIABLE = "MNTRAIN_SAVED_STEP"
"""Step of the newest checkpoint that an earlier attempt of the run reported; unset if there is
none."""

RESUME_FROM_VARIABLE = "MNTRAIN_RESUME_FROM"
"""Directory of the checkpoint that a new run begins with, while it has none of its own."""

RESUME_STEP_VARIABLE = "MNTRAIN_RESUME_STEP"
"""Step of the checkpoint that a resumed job was promised to go on from."""

GPU_MEMORY_VARIABLE = "MNTRAIN_GPU_MEMORY_BYTES"
"""Memory of each GPU that the node's owner offers; unset if it is all of it. The built-in trainer
allocates no more."""

TIMEOUT_VARIABLE = "MNTRAIN_COLLECTIVE_TIMEOUT_S"
"""Seconds that a rank of a script waits in a collective, where the script does not say so."""

HUB_USER_VARIABLE = "JUPYTERHUB_USER"
"""JupyterHub's, in the servers that it starts: whose it is."""

PEAK_VARIABLE = "MNTRAIN_PEAK_TFLOPS"
"""Peak of each of a node's devices, in the dtype that it trains in, where the user knows better."""

ROOTS_VARIABLE = "MNTRAIN_ROOTS"
"""Folders of a node's large files by their roots' names, as JSON: where ``models:llama`` is."""

CLOCK_VARIABLE = "MNTRAIN_CLOCK"
"""Unix time, by the attempt's clock, at which this machine's monotonic clock was zero."""

WEBHOOK_VARIABLE = "MNTRAIN_WEBHOOK"
"""In a job's environment: address that is told when the job ends or stalls."""

MAIL_VARIABLE = "MNTRAIN_MAIL"
"""In a job's environment: e-mail addresses, separated by commas, that are told the same."""

CLUSTER_VARIABLE = "MNTRAIN_CLUSTER"
"""A driver's default cluster."""

DEFAULT_CLUSTER = "default"
"""Name of the cluster where none is set."""

AGENTS_VARIABLE = "MNTRAIN_AGENTS"
"""``host:port`` of agents to watch in addition to those found, separated by blanks or commas."""

ALLOCATION_VARIABLE = "MNTRAIN_ALLOCATION"
"""Directory of an allocation whose agents a driver watches, too."""

RDMA_CHOICES = frozenset({"NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_NET", "NCCL_NET_PLUGIN"})
"""Variables by which a job's own environment says whether NCCL uses InfiniBand or RoCE."""


def mail_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses in a value of ``MNTRAIN_MAIL``."""
    return tuple(filter(None, (one.strip() for one in text.split(","))))


RECORDERS = "nccl_timeout_rank_"
"""Begins the names of the files, in the directory of metrics, in which torch leaves its flight
recorder when a collective times out; the rank follows."""

HEARTBEAT_VARIABLE = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
"""Seconds without a sign of life from NCCL's watchdog after which torch ends the process."""

_HEARTBEAT_S = 480
"""torch's own (``ProcessGroupNCCL.hpp``)."""


def heartbeat_of(timeout_s: float) -> str:
    """Return the heartbeat timeout to match a collective's timeout: if it were shorter, torch would
    end the wait without saying what it waited for.
    """
    return str(max(_HEARTBEAT_S, math.ceil(timeout_s)))

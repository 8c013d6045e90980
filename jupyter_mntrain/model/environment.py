"""Environment variables: the one list of those that jobs and drivers read."""

JOB_VARIABLE = "MNTRAIN_JOB"
"""The job's id, for scripts and for people who look at processes."""

ATTEMPT_VARIABLE = "MNTRAIN_ATTEMPT"

NODE_VARIABLE = "MNTRAIN_NODE"
"""Display name of the node, for logs: host names repeat in containers."""

METRICS_VARIABLE = "MNTRAIN_METRICS_DIR"
"""Directory a rank appends its samples to; unset outside a job.

It lies in the attempt's own directory, so it also marks the attempt's processes: the keeper finds
every one by it, whatever it is called and whoever its parent is now."""

CHECKPOINT_VARIABLE = "MNTRAIN_CHECKPOINT_DIR"
"""Where a job's ranks keep checkpoints on their node if they were told no other place. All attempts
of the job share it: the next one goes on from there."""

CLOCK_VARIABLE = "MNTRAIN_CLOCK"
"""The Unix time, by the clock of whoever started the attempt, at which the machine's monotonic
clock was at zero."""

CLUSTER_VARIABLE = "MNTRAIN_CLUSTER"
"""Which cluster a driver means when it is not told."""

AGENTS_VARIABLE = "MNTRAIN_AGENTS"
"""``host:port`` of agents a driver watches besides those it finds, apart by blanks or commas."""

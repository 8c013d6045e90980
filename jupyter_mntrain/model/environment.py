"""Variables in the environment of every process of a job. The one list of their names."""

JOB_VARIABLE = "MNTRAIN_JOB"
"""How the keeper finds every process of a job, whatever it is called."""

ATTEMPT_VARIABLE = "MNTRAIN_ATTEMPT"

NODE_VARIABLE = "MNTRAIN_NODE"
"""Display name of the node, for logs: host names repeat in containers."""

METRICS_VARIABLE = "MNTRAIN_METRICS_DIR"
"""Directory a rank appends its samples to; unset outside a job."""

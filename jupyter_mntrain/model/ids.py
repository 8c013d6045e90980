"""Identifiers: a distinct type for each, so that mypy catches mix-ups."""

import re
import secrets
from typing import NewType

NodeId = NewType("NodeId", str)
"""128 random bits in hex, created once per agent state directory and stored there, mode 0600."""

JobId = NewType("JobId", str)
"""``j-`` and eight hex digits: short to type, and unique enough for one cluster."""

Rank = NewType("Rank", int)
"""Global rank, 0 ≤ rank < world size, as in torch.distributed."""

_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Safe in an HTTP header and a DNS TXT string."""

_JOB_ID = re.compile(r"j-[0-9a-f]{8}")


def new_node_id() -> NodeId:
    return NodeId(secrets.token_hex(16))


def new_job_id() -> JobId:
    return JobId(f"j-{secrets.token_hex(4)}")


def is_job_id(text: str) -> bool:
    return _JOB_ID.fullmatch(text) is not None


def is_cluster_name(text: str) -> bool:
    return _CLUSTER_NAME.fullmatch(text) is not None

"""Environment: variables of the agent, and so of its jobs, that training or the network depends on.

Nothing else leaves the machine: a variable may hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from jupyter_mntrain.model.text.secrets import is_secret, redacted

_TOLD = re.compile(
    r"(NCCL|GLOO|TORCH|PYTORCH|TORCHELASTIC|CUDA|OMP|MKL|UCX|TP)_\w+"
    r"|PYTHON(PATH|HOME|NOUSERSITE|STARTUP)|LD_(LIBRARY_PATH|PRELOAD)|TMPDIR"
    r"|HF_(HOME|HUB_CACHE|HUB_OFFLINE|ENDPOINT|DATASETS_CACHE)|TRANSFORMERS_(CACHE|OFFLINE)"
    r"|(https?|no|all)_proxy|(HTTPS?|NO|ALL)_PROXY"
    r"|MASTER_(ADDR|PORT)|WORLD_SIZE|RANK|LOCAL_RANK|NODE_RANK"
)


def shown_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the doctor compares, without passwords of proxies."""
    return {
        name: redacted(value)
        for name, value in sorted(environment.items())
        if _TOLD.fullmatch(name) and not is_secret(name, redacted(value))
    }

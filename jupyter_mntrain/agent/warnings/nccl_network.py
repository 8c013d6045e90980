"""NCCL network: checks whether NCCL uses the InfiniBand or RoCE that the launch chose.

Where it cannot, it falls back to TCP, ten times slower, and says so in its own log only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from jupyter_mntrain.agent.attempt.supervisor import nccl_files
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Placement

INTERVAL_S = 2.0
READ_BYTES = 1 << 18
"""NCCL chooses its network in its first lines."""

_CHOSEN = re.compile(r"NCCL INFO Using network (\S.*)")
_TCP = "Socket"


class _Reason(NamedTuple):
    line: str
    """NCCL's, as a pattern."""
    cause: str
    fix: str


_REASONS = (
    _Reason(
        r"Failed to open libibverbs",
        cause="NCCL finds no libibverbs",
        fix="install it on {node}: the package rdma-core, or libibverbs1",
    ),
    _Reason(
        r"ibv_\w+ failed.*Cannot allocate memory",
        cause="its ranks may not lock memory",
        fix="set LimitMEMLOCK=infinity in the service of {node}, or --ulimit memlock=-1",
    ),
    _Reason(
        r"NET/IB : (?:No device found|Unable to open device)",
        cause="NCCL finds no adapter it can open",
        fix="run ibv_devinfo on {node}; a container needs --device /dev/infiniband "
        "--cap-add IPC_LOCK",
    ),
    _Reason(
        "",
        cause="NCCL does not say why",
        fix="look for NET/IB in NCCL's own log on {node}: {path}",
    ),
)
"""Any of them, the first that fits; NCCL's ``net_ib.cc`` and ``ibvsymbols.cc``."""


class NcclNetwork:
    """Reads NCCL's log files until one of them names the network.

    Args:
        attempt: its directory.
        own: this node's placement.
    """

    def __init__(
        self, attempt: Path, own: Placement, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._attempt = attempt
        self._own = own
        self._clock = clock
        self._next_s = 0.0
        self._is_known = not own.rdma_devices

    def look(self) -> Iterator[Problem]:
        """Yield a warning, once, if NCCL fell back to TCP. Call often."""
        now_s = self._clock()
        if self._is_known or now_s < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        for path in nccl_files(self._attempt):
            text = _beginning(path)
            if chosen := _CHOSEN.search(text):
                self._is_known = True
                if chosen[1].strip() == _TCP:
                    yield self._fell_back(path, text)
                return

    def _fell_back(self, path: Path, text: str) -> Problem:
        node = self._own.node
        reason = next(one for one in _REASONS if re.search(one.line, text))
        devices = ", ".join(self._own.rdma_devices)
        return Problem(
            kind=Kind.SLOW_LINK,
            cause=f"the ranks use TCP and not {devices}: {reason.cause}",
            fix=reason.fix.format(node=node, path=path),
            node=node,
        )


def _beginning(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(READ_BYTES).decode(errors="replace")
    except OSError:  # deleted meanwhile
        return ""

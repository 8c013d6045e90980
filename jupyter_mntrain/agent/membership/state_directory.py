"""State directory: detects that it is gone, was replaced, or is no longer writable."""

from __future__ import annotations

import os
from pathlib import Path

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId

JOBS = "jobs"


class StateDirectory:
    """The state directory of a running agent.

    Args:
        node_id: that it held when the agent started.
    """

    def __init__(self, path: Path, node_id: NodeId) -> None:
        self.path = path
        self._node_id = node_id

    def problem(self) -> Problem | None:
        """Return why jobs cannot be stored there now, or ``None``. Cheap: writes nothing."""
        cause = self._cause()
        if cause is None:
            return None
        return Problem(
            kind=Kind.NO_STATE,
            cause=f"its state directory {self.path} {cause}",
            fix=fix_of(Kind.NO_STATE),
        )

    def _cause(self) -> str | None:
        try:
            found = (self.path / "node_id").read_text(errors="replace").strip()
            flags = os.statvfs(self.path / JOBS).f_flag
        except FileNotFoundError:
            return "is gone, or some of its files are"
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        if found != self._node_id:
            return "was replaced by another node's"
        if flags & os.ST_RDONLY:
            return "is on a file system that is read-only"
        can_write = all(os.access(one, os.W_OK | os.X_OK) for one in (self.path, self.path / JOBS))
        return None if can_write else "is not writable for the agent's user"

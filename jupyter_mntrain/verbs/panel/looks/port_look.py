"""Port look: asks the head whether the chosen rendezvous port is free there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_mntrain.model.api import PortStatus
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.verbs.panel.choices import Choices, port_number
from jupyter_mntrain.verbs.panel.form import Form

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

PORT_TRUSTED_S = 5.0
"""How long the launch panel trusts the answer that a port is free: another program may take it."""

_Looked = tuple[tuple[str, int, str | None], PortStatus | MntrainError, float]
"""A question about a port, the head's answer, and its time."""


class PortLook:
    """Caches the answer about one port."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._looked: _Looked | None = None

    @property
    def answer(self) -> PortStatus | MntrainError | None:
        return self._looked[1] if self._looked else None

    def look(self, form: Form, choices: Choices, now_s: float) -> bool:
        """Ask, unless the answer is known; return ``True`` if that changes what is shown."""
        head, port = next((row for row in form.rows if row.is_head), None), _chosen(choices)
        if port is None or head is None:
            had, self._looked = self._looked, None
            return had is not None
        places = [p for p in form.placements if head.name in (p.node, p.node_id)]
        key = (head.name, port, places[0].interface if places else None)
        if self._looked and self._looked[0] == key and now_s - self._looked[2] < PORT_TRUSTED_S:
            return False
        before = self.answer
        try:
            status: PortStatus | MntrainError = self._cluster.port_status(*key)
        except MntrainError as error:
            status = error
        self._looked = (key, status, now_s)
        return str(before) != str(status)


def _chosen(choices: Choices) -> int | None:
    try:
        return port_number(choices)
    except MntrainError:  # the form shows it
        return None

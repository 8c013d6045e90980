"""Port check: whether the chosen rendezvous port is free on the head."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.model.api import PortStatus
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.verbs.panel.checks.check import Fix, RowCheck
from jupyter_mntrain.verbs.panel.checks.findings import Findings
from jupyter_mntrain.verbs.panel.choices import Choices, port_number
from jupyter_mntrain.verbs.panel.node_row import FormRow


def check_port(
    head: FormRow, choices: Choices, port: PortStatus | MntrainError | None, findings: Findings
) -> None:
    try:
        wanted = port_number(choices)
    except MntrainError as error:
        findings.add(error, to_settings=True)
        return
    if wanted is None or port is None:
        return
    if isinstance(port, MntrainError):
        cause = f"port {wanted} could not be checked: {port.cause}"
        unknown = msgspec.structs.replace(port.problem, cause=cause)
        findings.put(head.name, RowCheck(level="warning", problem=unknown))
        return
    if port.problem is None:
        findings.passed(head.name)
        return
    nearest = port.next_free
    other = None if nearest is None else msgspec.structs.replace(choices, port=str(nearest))
    findings.put(
        head.name,
        RowCheck(
            level="error",
            problem=msgspec.structs.replace(
                port.problem,
                fix=f"use port {nearest}" if nearest else "leave the port empty for a free one",
            ),
            fix=Fix(label=f"Use {nearest}", choices=other) if other else None,
        ),
    )

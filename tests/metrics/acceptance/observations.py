"""Observations of an acceptance run in which all is well, on two machines of their own."""

from __future__ import annotations

from typing import Any

import msgspec

from jupyter_mntrain.metrics.acceptance.acceptance_report import (
    AcceptanceReport,
    AcceptedNode,
    DocumentedCommand,
    GangTrial,
    InducedFault,
    Leftovers,
    Observed,
    ResumedRun,
    ScalingPoint,
)
from jupyter_mntrain.metrics.acceptance.verdicts import judge
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.doctor.benchmark import BenchReport, SizeFigures

NODES = (
    AcceptedNode("wopr", "boot-1", 2, "RTX 3090"),
    AcceptedNode("muthur", "boot-2", 2, "RTX 3090"),
)


def fault(kind: Any, **changes: Any) -> InducedFault:
    said = Problem(kind=Kind.KILLED, cause="killed by SIGKILL", node="muthur")
    made = InducedFault(kind=kind, node="muthur", rank=3, detect_s=1.2, recover_s=9.0, said=said)
    return msgspec.structs.replace(made, **changes)


def bench(line_share: float | None = 0.95, **changes: Any) -> BenchReport:
    sizes = tuple(
        SizeFigures(
            operation="all_reduce",
            size_bytes=1 << power,
            seconds=0.1,
            algorithm_bytes_per_s=1e8,
            bus_bytes_per_s=rate,
            line_share=line_share if power == 26 else 0.2,
        )
        for power, rate in ((16, 2e7), (26, 1.1e8))
    )
    made = BenchReport(
        job_id=JobId("j-1"), nodes=("wopr", "muthur"), backend="nccl", time_s=0.0, sizes=sizes
    )
    return msgspec.structs.replace(made, **changes)


POINTS = (
    ScalingPoint(("wopr",), 2, tokens_per_s=1000.0, predicted_tokens_per_s=1100.0, step_s=0.4),
    ScalingPoint(
        ("wopr", "muthur"),
        4,
        tokens_per_s=1700.0,
        predicted_tokens_per_s=1980.0,
        step_s=0.24,
        compute=0.8,
        send=0.05,
        wait=0.03,
        bubble=0.12,
    ),
)

GOOD = Observed(
    nodes=NODES,
    sizes=(1, 2),
    scaling=POINTS,
    benchmark=bench(),
    gang=GangTrial(
        first_step_s=8.0,
        ranks=4,
        wanted=4,
        refused=Problem(kind=Kind.PORT_TAKEN, cause="port 29500 is leased"),
        waited=True,
        started_after_s=1.5,
    ),
    faults=(fault("rank-killed"), fault("rank-frozen"), fault("torchrun-killed")),
    resumption=ResumedRun(saved_step=10, shards=4, compared=30),
    leftovers=Leftovers(looked_on=("wopr", "muthur")),
    commands=(DocumentedCommand("mntrain nodes", 0, 1.0),),
)


def report(observed: Observed = GOOD, **changes: Any) -> AcceptanceReport:
    made = AcceptanceReport(
        cluster="lab",
        version="0.1.0",
        time_s=1_700_000_000.0,
        took_s=300.0,
        observed=observed,
        criteria=judge(observed),
    )
    return msgspec.structs.replace(made, **changes)

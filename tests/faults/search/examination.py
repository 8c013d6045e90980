"""Examination: what the doctor says of a case that is in place before a launch; none follows."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack

import msgspec

from tests.e2e.conftest import CLUSTER
from tests.faults.search.case import Case, Moment, Statement
from tests.faults.search.grammar import MECHANISMS
from tests.faults.search.play import Result, told
from tests.faults.search.scoring import Score, grade
from tests.faults.search.stage import VICTIM, Stage
from tests.faults.search.statements import statement

BEFORE: frozenset[Moment] = frozenset({"launch"})
"""Moments at which a doctor could know."""

EXAMINED_S = 60.0


def examine(stage: Stage, case: Case) -> Result:
    """Make the fault, ask the doctor, and mend the stage. Never raises for what a case does."""
    begun = time.monotonic()
    said, trouble = None, ""
    stage.end_job()
    try:
        with ExitStack() as stack:
            for name, parameters in zip(case.mechanisms, case.parameters, strict=True):
                stack.enter_context(MECHANISMS[name].act(stage, case, parameters))
            said = ask(stage, case)
    except Exception as error:  # noqa: BLE001 - whatever a fault does to the lab, the next case runs
        trouble = "" if said is not None else f"{type(error).__name__}: {str(error)[:300]}"
        stage.spoil()
    stage.mend(keep_job=False)
    return Result(
        seed=case.seed,
        stratum=case.stratum,
        case=case.title,
        is_hard=case.is_hard,
        truth=told(case),
        verdict=tuple(said or ()),
        state="",
        score=judge(case, said or []),
        known_after_s=None,
        seconds=round(time.monotonic() - begun, 1),
        parameters=case.parameters,
        trouble=trouble,
    )


def ask(stage: Stage, case: Case) -> list[Statement]:
    """What the doctor finds on the hosts of the case's job, and why nodes do not answer."""
    asked = [stage.mntrain, "--cluster", CLUSTER, "--json", "doctor", *case.layout.names]
    asked += ["--for", str(VICTIM)]
    done = stage.host("node3").run(asked, timeout_s=EXAMINED_S * stage.patience)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        return [statement("launch", json.loads(done.stderr))]
    report = json.loads(done.stdout)
    found = [
        statement("launch", one["problem"], one["node"])
        for one in report["findings"]
        if one["level"] in ("stops", "slows")
    ]
    return found + [
        statement("launch", problem, node) for node, problem in report["silent"].items()
    ]


def judge(case: Case, said: list[Statement]) -> Score:
    """Whether one of the findings is the true one. The others are kept with the result."""
    truth = case.truth
    if not truth.accepts:
        return "false alarm" if said else "right"
    grades = [
        grade(truth, accept, msgspec.structs.replace(one, channel=channel))
        for one in said
        for accept in truth.accepts
        for channel in accept.channels
    ]
    best: tuple[Score, ...] = ("right", "partly")
    return next((one for one in best if one in grades), "wrong" if said else "silent")

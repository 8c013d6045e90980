"""Examination: what the doctor says of a case that is in place before a launch; none follows.

It is asked with the options and arguments of the case's launch. What a launch would know of a rank
of a script is what its text says: code that a rank is to run when it starts stands in the script
that the doctor is given, for that rank.

Not all that is in place before a launch can be known then. Such a draw says why
(:attr:`~tests.faults.search.case.Case.unforeseeable`), and is not asked about:

* "a stolen port": it is free until torchrun starts; code in its interpreter takes it just then;
* "a file without permission": the script makes the file, takes its permissions and becomes another
  user, all by itself;
* of "a missing variable" the draws where ``int()`` of a default fails: that has to be run.

Before a launch there are no ranks, exit codes and stacks: of those, a truth asks nothing. Which
node it names counts as always, but for code in the script: all nodes get that alike.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from tests.e2e.conftest import CLUSTER
from tests.faults.search.case import Case, Moment, Statement, Truth
from tests.faults.search.grammar import MECHANISMS
from tests.faults.search.play import Result, given_words, style_of, told
from tests.faults.search.scoring import Score, grade, is_stranger
from tests.faults.search.stage import VICTIM, Stage
from tests.faults.search.statements import statement

BEFORE: frozenset[Moment] = frozenset({"launch"})
"""Moments at which a doctor could know."""

EXAMINED_S = 60.0

_MEETS = 'meet("import")\n'


def is_foreseeable(case: Case) -> bool:
    return case.moment in BEFORE and not case.unforeseeable


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
    driver, (words, arguments) = stage.host("node3"), given_words(case)
    script = driver.home / VICTIM.name
    script.write_text(script_of(case, VICTIM))
    asked = [stage.mntrain, "--cluster", CLUSTER, "--json", "doctor", "--for", str(script)]
    asked += [*stage.options(case.layout, words), "--", "--style", style_of(case), *arguments]
    done = driver.run(asked, timeout_s=EXAMINED_S * stage.patience)
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


def script_of(case: Case, victim: Path) -> str:
    """The victim, with what its ranks are to run first written in it."""
    text = victim.read_text()
    for one in case.parameters:
        if "code" in one:
            ranks = ", ".join(map(str, one["ranks"]))
            code = f"if RANK in ({ranks},):\n{textwrap.indent(one['code'], '    ')}\n"
            text = text.replace(_MEETS, code + _MEETS)
    return text


def judge(case: Case, said: Sequence[Statement]) -> Score:
    """Whether one of the findings is the true one. The others are kept with the result."""
    truth = before(case)
    if not truth.accepts:
        alarms = [one for one in said if is_stranger(truth, one)]
        return "false alarm" if alarms else "right"
    grades = [
        grade(truth, accept, msgspec.structs.replace(one, channel=channel))
        for one in said
        for accept in truth.accepts
        for channel in accept.channels
    ]
    best: tuple[Score, ...] = ("right", "partly")
    return next((one for one in best if one in grades), "wrong" if said else "silent")


def before(case: Case) -> Truth:
    """What can be true of a case before a launch."""
    is_of_script = any("code" in one for one in case.parameters)
    accepts = tuple(
        msgspec.structs.replace(
            one, ranks=frozenset(), nodes=frozenset() if is_of_script else one.nodes
        )
        for one in case.truth.accepts
    )
    return msgspec.structs.replace(case.truth, accepts=accepts, exit_code=None, evidence="")

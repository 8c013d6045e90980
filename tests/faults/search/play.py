"""Play: one case on the stage, from the fault to the verdict, in bounded time."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import msgspec

from tests.faults.search.case import EARLY, Case, Statement
from tests.faults.search.grammar import MECHANISMS
from tests.faults.search.scoring import Score, score
from tests.faults.search.stage import Stage

START_S = 30.0
"""Added where the fault is in place before a job starts: torch is imported by all ranks."""

QUIET_S = 14.0
"""Nothing is said of a harmless fault for this long: a stall is told after 10 s."""

HELD_S = 2.0
"""A right verdict stands if nothing replaces it for this long."""

SETTLED_S = 4.0
"""The verdict on a job that is over is final after this."""

BETWEEN_S = 1.0
"""Between a distraction and the fault."""


class Result(msgspec.Struct, frozen=True):
    """One line of the file of results."""

    seed: int
    stratum: str
    case: str
    is_hard: bool
    truth: str
    verdict: tuple[Statement, ...]
    state: str
    score: Score
    known_after_s: float | None
    seconds: float
    was_misled: bool = False
    """A false statement stood for a while before the last one."""
    parameters: tuple[dict[str, Any], ...] = ()
    trouble: str = ""
    """Why the case could not be played; it is then not counted."""


class Seen(msgspec.Struct):
    """What a watch saw."""

    said: tuple[Statement, ...] = ()
    state: str = ""
    score: Score = "silent"
    known_after_s: float | None = None
    was_misled: bool = False


def play(stage: Stage, case: Case) -> Result:
    """Play one case and mend the stage. Never raises for what a case does to the lab."""
    begun = time.monotonic()
    seen, trouble = None, ""
    try:
        with ExitStack() as stack:
            seen = _watched(stage, case, stack)
    except Exception as error:  # noqa: BLE001 - whatever a fault does to the lab, the next case runs
        # What cannot be mended after the verdict costs the lab alone.
        trouble = "" if seen else f"{type(error).__name__}: {str(error)[:300]}"
        stage.spoil()
    seen = seen or Seen()
    spoils = any(MECHANISMS[name].spoils for name in case.mechanisms)
    keeps = not spoils and case.moment == "steps" and not trouble
    stage.mend(keep_job=keeps)
    return Result(
        seed=case.seed,
        stratum=case.stratum,
        case=case.title,
        is_hard=case.is_hard,
        truth=told(case),
        verdict=seen.said,
        state=seen.state,
        score=seen.score,
        known_after_s=seen.known_after_s,
        seconds=round(time.monotonic() - begun, 1),
        was_misled=seen.was_misled,
        parameters=case.parameters,
        trouble=trouble,
    )


def told(case: Case) -> str:
    """What is true, in short."""
    if case.truth.is_harmless and not case.truth.accepts:
        return "harmless"
    words = [
        f"{'/'.join(sorted(one.kinds))} on {'/'.join(sorted(one.nodes)) or 'any'}"
        + (f" rank {'/'.join(map(str, sorted(one.ranks)))}" if one.ranks else "")
        for one in case.truth.accepts
    ]
    code = f", exit code {case.truth.exit_code}" if case.truth.exit_code is not None else ""
    return " or ".join(words) + code + (" (the job goes on)" if case.truth.is_harmless else "")


def _watched(stage: Stage, case: Case, stack: ExitStack) -> Seen:
    style = style_of(case)
    is_early = case.moment in EARLY
    if is_early:
        stage.end_job()
    else:
        stage.ensure_job(case.layout, style)
        if any(MECHANISMS[name].slows for name in case.mechanisms):
            stage.await_normal()
    begin_s = time.monotonic()
    for number, (name, parameters) in enumerate(zip(case.mechanisms, case.parameters, strict=True)):
        if number:
            time.sleep(BETWEEN_S)
        stack.enter_context(MECHANISMS[name].act(stage, case, parameters))
    if is_early and not stage.bench.job:
        begin_s = _start(stage, case, style)
    return _watch(stage, case, begin_s)


def style_of(case: Case) -> str:
    """How the ranks of a case exchange what they have."""
    return "reduce" if case.seed % 2 else "ring"


def given_words(case: Case) -> tuple[list[str], list[str]]:
    """Options of a case's launch, and arguments of its script."""
    words = [word for one in case.parameters for word in one.get("words", ())]
    return words, [word for one in case.parameters for word in one.get("arguments", ())]


def _start(stage: Stage, case: Case, style: str) -> float:
    """Launch the job that the fault awaits; when its time begins."""
    words, arguments = given_words(case)
    if case.moment == "restart":
        words += ["--restarts", "1"]
    if case.moment == "end":
        arguments += ["--steps", "30"]
    stage.launch(case.layout, style, words, arguments)
    if case.moment == "restart":
        stage.await_steps()
        bystander = case.layout.ranks(case.other)[0]
        stage.put(case.layout, bystander, "step", "import os; os.kill(os.getpid(), 9)")
    return time.monotonic()


def _watch(stage: Stage, case: Case, begin_s: float) -> Seen:
    """Look until the verdict stands, or the case's time is over."""
    early_s = START_S if case.moment in EARLY else 0.0
    truth = case.truth
    base_s = QUIET_S if truth.is_harmless and not truth.accepts else truth.within_s
    limit_s = (base_s + early_s) * stage.patience
    seen = Seen()
    right_s: float | None = None
    over_s: float | None = None
    while (now_s := time.monotonic() - begin_s) < limit_s:
        said = stage.statements(case)
        seen.said, seen.state = tuple(said), str(stage.job.get("state", ""))
        seen.score = score(truth, said, seen.state)
        seen.was_misled |= seen.score in ("wrong", "false alarm") and bool(said)
        right_s = (right_s or now_s) if seen.score == "right" else None
        over_s = (over_s or now_s) if stage.is_over or not stage.bench.job else None
        is_quiet_watch = truth.is_harmless and not truth.accepts
        if right_s is not None and now_s - right_s >= HELD_S and not is_quiet_watch:
            break
        if over_s is not None and now_s - over_s >= SETTLED_S:
            break
        time.sleep(0.2)
    if truth.accepts and right_s is not None:
        seen.known_after_s = round(right_s, 1)
    return seen
